"""Writes a report down: one HTML file that needs nothing else, and Markdown.

The page holds its style, its script, its plots and the figures that the script chooses by. It asks for no network, and
says so to the browser (Content-Security-Policy), so that nothing a record holds could.
"""

import base64
import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from markupsafe import Markup

from ane_sweep import outward
from ane_sweep.bridge import disk
from ane_sweep.bridge.disk import open_user_file
from ane_sweep.errors import ConfigError
from ane_sweep.report import blocks, document, first, templating
from ane_sweep.report.blocks import Section
from ane_sweep.report.document import Sweep

HTML_NAME, MARKDOWN_NAME, FIGURES = "report.html", "report.md", "figures"
_HERE = Path(__file__).parent


def as_html(sweep: Sweep, made: list[Section] | None = None) -> str:
    """Return the whole report as one page."""
    style, script = ((_HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    made = document.sections(sweep) if made is None else made
    nothing: dict[str, object] = {"title": "empty sweep", "sweep": "", "counts": [], "lines": [], "cautions": []}
    return templating.page(
        "page.html.j2",
        head=document.head(sweep) if sweep.records else nothing,
        sections=made,
        html=lambda block: Markup(blocks.html(block)),  # escaped by its own template
        facts=first.facts(sweep.shown) if sweep.records else {},
        style=style,
        script=script,
        digest=_digest(script),
    )


def _digest(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def as_markdown(sweep: Sweep, made: list[Section] | None = None) -> str:
    """Return the report without plots; long folded tables are left out."""
    if not sweep.records:
        return "no records\n"
    head = document.head(sweep)
    counted = ", ".join(f"{count} {status}" for status, count in head["counts"])
    parts = [f"# sweep {outward.markdown(sweep.records[0].sweep)}\n\n"]
    above = [f"{head['title']}; {len(sweep.records)} cells: {counted}", *head["lines"], *head["cautions"]]
    parts += [f"- {outward.markdown(line)}\n" for line in above]
    for section in document.sections(sweep) if made is None else made:
        text = "".join(blocks.markdown(block) for block in section.blocks if not _long(block))
        if text:
            parts.append(f"\n## {section.title}\n\n{text}")
    return "".join(parts).rstrip() + "\n"


def _long(block: blocks.Block) -> bool:
    return isinstance(block, blocks.Grid) and block.fold is not None and len(block.rows) > 60


def write(folder: Path) -> Path:
    """Write report.html, report.md and figures/ into a run's folder and return the first. Raises ConfigError if it cannot."""
    put(folder, texts(Sweep.read(folder)))
    return folder / HTML_NAME


def texts(sweep: Sweep) -> dict[str, str]:
    """Return {file name: text} of the whole report, its plots as files of their own (for slides and for the tracker) last."""
    made = document.sections(sweep)
    named = [(s.anchor, svg) for s in made for b in s.blocks if isinstance(b, blocks.Plots) for svg, _ in b.items]
    plots = {f"{FIGURES}/{n:02}-{anchor}.svg": _on_white(svg) for n, (anchor, svg) in enumerate(named, 1)}
    return {MARKDOWN_NAME: as_markdown(sweep, made), HTML_NAME: as_html(sweep, made), **plots}


def _on_white(svg: str) -> str:
    """Return the plot in the light page's colours."""
    start = svg.index(">", svg.index("<svg")) + 1
    return svg[:start] + '<rect width="100%" height="100%" fill="#fff"/>' + svg[start:]


def put(folder: Path, made: dict[str, str]) -> None:
    """Write the texts that `texts` made. Raises ConfigError if it cannot."""
    for old in disk.make_folder(folder, FIGURES).glob("*.svg"):
        old.unlink()
    for name, text in made.items():
        _write(folder / name, text, disk.replace_file)


def save(path: Path, text: str) -> Path:
    """Write a text to a path that the user gave. Raises ConfigError if it cannot be written."""
    _write(path, text, open_user_file)
    return path


def _write(path: Path, text: str, opened: Callable[[Path], AbstractContextManager[Path]]) -> None:
    try:
        with opened(path) as aside:
            aside.write_text(text, encoding="utf-8", errors="backslashreplace")  # paths that are no UTF-8
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error
