"""README's first sweep: MiniLM with its trained weights, both variants, whole and in two chunks"""

import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from ane_sweep.bridge import record
from ane_sweep.results.answer import answer
from tests.bench import Row, _kept, ane_sweep

SWEEP = ["-m", "model=minilm", "variant=original,split_einsum", "chunks=1,2"]
README = Path(__file__).parents[2] / "README.md"
PICTURE = README.parent / "ane_sweep" / "docs" / "report.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_HEADS = "| model | variant | chunks | M4, estimated ms | ANE ops % (predicted) | PSNR dB | MB |\n"
_TABLE = re.compile(re.escape(_HEADS) + r"(?:\|.*\n)+(?:\n> .*\n)?")
ANSWER = "answer"


def run() -> list[Row]:
    records = swept(SWEEP)
    return [*(Row(what(one), figures(one)) for one in records), Row(ANSWER, answer(records)[0])]


def keep(rows: list[Row]) -> Path:
    """Keep the rows, and write README's table and its picture of the report anew. Raises RuntimeError without a browser."""
    kept = _kept.keep("demo", rows)
    README.write_text(_TABLE.sub(lambda _: table(rows), README.read_text(encoding="utf-8")), encoding="utf-8")
    _take_picture(max(_find_outputs().glob("runs/*")) / "report.html")
    return kept


def swept(args: list[str]) -> list[record.Record]:
    """Return the records of one sweep. $ANE_SWEEP_OUT may name the folder of its outputs; else they end with this process."""
    ane_sweep(args, _find_outputs())
    return record.read_records(max(_find_outputs().glob("runs/*")))


def _find_outputs() -> Path:
    return Path(os.environ.get("ANE_SWEEP_OUT") or _make_scratch().name)


@cache
def _make_scratch() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of this process's sweeps, which is deleted when the process ends."""
    return tempfile.TemporaryDirectory()


def what(one: record.Record) -> str:
    return " ".join([one.cell["model"], one.cell["variant"], f"chunks={one.cell['chunks']}"])


def figures(one: record.Record) -> str:
    """Return what does not depend on this host: estimate and predicted share of ops for an M4, PSNR and size."""
    ane, total = (one.value(f"ops_{name}", "predicted", "m4") for name in ("ane", "total"))
    share, size = (ane or 0) / (total or 1), one.value("package_bytes") or 0
    low, middle, high = (one.value(f"latency_{name}ms", "estimated", "m4") for name in ("low_", "", "high_"))
    said = [
        f"M4: {middle:.2f} ms ({low:.1f} to {high:.1f})",
        f"{100 * share:.0f} % of ops on the ANE",
        f"{one.value('psnr_db'):.1f} dB",
        f"{size / 1e6:.1f} MB",
    ]
    return "; ".join(said)


def table(rows: list[Row]) -> str:
    """Return README's table of the rows and the sweep's answer, as Markdown."""
    lines = [_HEADS, "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n"]
    for row in rows:
        if row.what == ANSWER:
            lines.append(f"\n> {row.ours}\n")
            continue
        estimate, share, psnr, size = row.ours.split("; ")
        cell = row.what.replace("chunks=", "").split()
        shown = [estimate.removeprefix("M4: ").replace(" ms", ""), *(text.split()[0] for text in (share, psnr, size))]
        lines.append(f"| {' | '.join([*cell, *shown])} |\n")
    return "".join(lines)


def _take_picture(page: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise RuntimeError(f"{PICTURE.name} was not taken: none of {', '.join(BROWSERS)} is on the PATH; install one")
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1400,860", f"--screenshot={PICTURE}"]
    subprocess.run([browser, *options, page.resolve().as_uri()], check=True, capture_output=True, timeout=120)
