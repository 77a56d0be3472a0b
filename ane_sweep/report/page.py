"""A writer of reports: one self-contained HTML file, and Markdown.

The page contains its style, script, plots and figures. A Content-Security-Policy forbids network access, also for
anything hidden in a record.
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
from ane_sweep.report import blocks, document, first
from ane_sweep.report.blocks import Section
from ane_sweep.report.document import Sweep

HTML_NAME, MARKDOWN_NAME, FIGURES = "report.html", "report.md", "figures"
_HERE = Path(__file__).parent
_EMPTY = first.Head(title="empty sweep", sweep="", counts=[], lines=[], cautions=[])


def as_html(sweep: Sweep, made: list[Section] | None = None) -> str:
    """Return the whole report as one page."""
    style, script = ((_HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        blocks.environment()
        .get_template("page.html.j2")
        .render(
            head=document.head(sweep) if sweep.records else _EMPTY,
            sections=document.sections(sweep) if made is None else made,
            html=lambda block: Markup(blocks.html(block)),  # escaped by its own template
            facts=first.facts(sweep.shown) if sweep.records else {},
            style=style,
            script=script,
            digest=f"sha256-{digest}",
        )
    )


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
        long = [b for b in section.blocks if isinstance(b, blocks.Grid) and b.fold is not None and len(b.rows) > 60]
        if text := "".join(blocks.markdown(block) for block in section.blocks if block not in long):
            parts.append(f"\n## {section.title}\n\n{text}")
    return "".join(parts).rstrip() + "\n"


def write(folder: Path) -> Path:
    """Write report.html, report.md and figures/ into a run's folder and return the first. Raises ConfigError if it cannot."""
    put(folder, texts(Sweep.read(folder)))
    return folder / HTML_NAME


def texts(sweep: Sweep) -> dict[str, str]:
    """Return {file name: text} of the whole report; its plots come last as separate files (for slides and the tracker),
    in the light page's colours.
    """
    made = document.sections(sweep)
    found = {MARKDOWN_NAME: as_markdown(sweep, made), HTML_NAME: as_html(sweep, made)}
    named = [(s.anchor, svg) for s in made for b in s.blocks if isinstance(b, blocks.Plots) for svg, _ in b.items]
    for n, (anchor, svg) in enumerate(named, 1):
        start = svg.index(">", svg.index("<svg")) + 1
        white = '<rect width="100%" height="100%" fill="#fff"/>'
        found[f"{FIGURES}/{n:02}-{anchor}.svg"] = svg[:start] + white + svg[start:]
    return found


def put(folder: Path, made: dict[str, str]) -> None:
    """Write the texts that `texts` made. Raises ConfigError if it cannot."""
    for old in disk.make_folder(folder, FIGURES).glob("*.svg"):
        old.unlink()
    for name, text in made.items():
        save(folder / name, text, disk.replace_file)


def save(path: Path, text: str, opened: Callable[[Path], AbstractContextManager[Path]] = open_user_file) -> Path:
    """Write a text to a path, by default one given by the user. Raises ConfigError if it cannot be written."""
    try:
        with opened(path) as aside:
            aside.write_text(text, encoding="utf-8", errors="backslashreplace")  # paths that are no UTF-8
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error
    return path
