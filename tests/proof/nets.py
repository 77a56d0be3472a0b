"""`ane-sweep fix` on a folder of packages, whoever made them: figures before and after, and both packages run anew.

    python -m tests.proof.make_nets FOLDER              nets of torchvision, timm, transformers and diffusers
    python -m tests.proof.nets FOLDER ... [--write]     a row for each .mlpackage below; --write makes tests/proof/NETS.md

fix proves each place, and the whole program, on inputs of its own. Here both packages are read from disk and run on other
inputs (SEED): in fp32 the largest difference, relative to the largest output, and in fp16 the PSNR against the original in
fp32. A net is "worse" if fp32 differs by more than the rewrites allow, fp16 loses 1 dB, or the prediction gains nothing and fp16 less
than 1 dB; "failed" if fix gives up.
"""

import argparse
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ane_sweep import tables
from ane_sweep.errors import AneSweepError
from ane_sweep.fix import driver, figures, proof
from ane_sweep.fix.rewrite import REWRITES
from ane_sweep.fix.trials import Report
from ane_sweep.mil import package as packages
from ane_sweep.mil.element_types import NUMPY
from ane_sweep.placement import programs
from ane_sweep.reference import pipeline
from tests.proof.pages import format_table

CHIP, SEED = "m4", 2026
LATER_OPS = 1e-3  # of the largest output: bounds are those of a place, and later ops may enlarge what it leaves
LOST_DB, ENOUGH_DB = 1.0, 120.0
TARGET = Path(__file__).with_name("NETS.md")
HEADS = (
    "net", "ops on the ANE", "cost there", "segments", "estimate", "fp32", "fp16 PSNR", "rewrites applied", "s", "result",
)  # fmt: skip


def draw_inputs(path: Path) -> dict[str, np.ndarray]:
    """Return random inputs at the default shape: normal numbers, 0 or 1 for whole numbers."""
    known, _ = programs.inputs_at(packages.read(path), "main", {})
    generator, values = np.random.default_rng(SEED), {}
    for name, tensor in known.items():
        dtype, shape = NUMPY[tensor.dtype], tuple(size or 1 for size in tensor.shape)
        drawn = generator.standard_normal(shape) if dtype.kind == "f" else generator.integers(0, 2, shape)
        values[name] = np.asarray(drawn).astype(dtype)
    return values


def compare(before: Path, after: Path) -> tuple[float, float, float]:
    """Return the largest relative difference in fp32, and the PSNR in fp16 of the original and of the rewritten program."""
    values = draw_inputs(before)

    def run(path: Path, mode: str) -> dict[str, np.ndarray]:
        return {name: np.asarray(value) for name, value in pipeline.load(path, numerics=mode).predict(values).items()}

    exact, made = run(before, "fp32"), run(after, "fp32")
    half, fixed = run(before, "fp16"), run(after, "fp16")
    assert exact.keys() == made.keys()
    floats = [name for name, value in exact.items() if value.dtype.kind == "f"]
    return (
        max(proof.largest_difference(exact[name], made[name]) for name in exact),
        min([math.inf, *(proof.compare_db(exact[name], half[name]) for name in floats)]),
        min([math.inf, *(proof.compare_db(exact[name], fixed[name]) for name in floats)]),
    )


def judge(report: Report, found: tuple[float, float, float] | None) -> str:
    """Return "gain", "left alone", or "worse" with the reason."""
    if found is None:
        return "left alone"
    difference, half, fixed = found
    largest = max(REWRITES[trial.rewrite].bound for trial in report.applied)
    most = max(LATER_OPS, 10 * largest) if largest else 0.0
    if not difference <= most:
        return f"worse: fp32 differs by {difference:.2g}, more than {most:.2g}"
    if fixed < min(half - LOST_DB, ENOUGH_DB):
        return "worse: fp16 loses"
    gains, text = figures.find_gain(report.before, report.after)
    if not gains and fixed > half + LOST_DB:
        return "gain (accuracy)"
    return "gain" if gains else f"worse: {text}"


def fix_net(path: Path, folder: Path) -> list[str]:
    """Fix a package, run it before and after, and return its row."""
    begun, target, report = time.monotonic(), folder / "fixed.mlpackage", None
    try:
        report = driver.fix(path, target, CHIP)
        seconds = time.monotonic() - begun
        found = compare(path, target) if report.written else None
    except AneSweepError as error:
        return [path.stem, *[""] * 7, f"{time.monotonic() - begun:.0f}", f"failed: {error}"]
    one, two = report.before, report.after
    pairs = [
        (f"{one.on_ane} of {one.ops}", f"{two.on_ane} of {two.ops}"), (f"{one.cost_ane:.1%}", f"{two.cost_ane:.1%}"),
        (str(one.segments), str(two.segments)), (write_ms(one.estimate_ms), write_ms(two.estimate_ms)),
    ]  # fmt: skip
    counts = Counter(change.rewrite for trial in report.applied for change in trial.changes)
    checks = ["", ""]
    if found is not None:
        checks = ["equal" if found[0] == 0 else f"{found[0]:.1g}", f"{found[1]:.1f} -> {found[2]:.1f} dB"]
    return [
        path.stem, *(old if old == new else f"{old} -> {new}" for old, new in pairs), *checks,
        ", ".join(f"{name} x{count}" for name, count in counts.items()), f"{seconds:.0f}", judge(report, found),
    ]  # fmt: skip


def write_ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g} ms"


def fix_nets(folders: Sequence[Path]) -> Iterator[list[str]]:
    """Yield the row of every package below some folders."""
    for path in sorted(path for folder in folders for path in folder.rglob("*.mlpackage")):
        with tempfile.TemporaryDirectory() as made:
            yield fix_net(path, Path(made))


def count_results(rows: Sequence[Sequence[str]]) -> str:
    found = Counter(row[-1].partition(":")[0].partition(" (")[0] for row in rows)
    return ", ".join(f"{found[word]} {word}" for word in ("gain", "left alone", "worse", "failed"))


def write_page(rows: Sequence[Sequence[str]]) -> str:
    """Return the page of all rows."""
    assert __doc__ is not None
    return (
        "# `ane-sweep fix` on nets and packages of others\n\n"
        f"Written by `python -m tests.proof.nets FOLDER --write`. {count_results(rows)}. Placement and estimates are predicted for "
        f"{CHIP}, nothing was measured on a chip.\n\n{__doc__.partition('NETS.md')[2].strip()}\n\n{format_table(HEADS, rows)}\n"
    )


def main(words: Sequence[str]) -> int:
    """Print the table; return 1 if a net is worse or failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.nets")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(words)
    rows = []
    for row in fix_nets(given.folders):
        rows.append(row)
        print(" | ".join(row), flush=True)
    print(tables.aligned(rows, heads=HEADS), count_results(rows), sep="\n")
    if given.write:
        TARGET.write_text(write_page(rows), encoding="utf-8")
    return int(any(row[-1].startswith(("worse", "failed")) for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
