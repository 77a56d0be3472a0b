"""`ane-sweep lint PACKAGE... [--chip m4] [--json]`: where its ops would run, and why not on the ANE

A verdict on packages, ours or anybody's, for other people's CI. Reads protobufs only.

Exit code 0 when every package keeps at least --min-ane-share of its ops on the ANE and passes its gates, 1 when one does
not, 2 when one cannot be read. Where the ANE was not asked (cpu_only, cpu_and_gpu) there is nothing to fall short of.
"""

import argparse
import gc
import json
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ane_sweep.errors import PackageError
from ane_sweep.outward import visible
from ane_sweep.terminal import BAD_CONFIGURATION, NOT_ALL_OK, OK
from ane_sweep.words import Parser

HOLDS, FALLS_SHORT, UNREADABLE = OK, NOT_ALL_OK, BAD_CONFIGURATION
SCHEMA = 1


@dataclass
class Options:
    """What was asked; `share` says what --min-ane-share counts: ops, or their estimated cost."""

    paths: list[Path] = field(default_factory=list)
    chips: list[str] = field(default_factory=lambda: ["m4"])
    compute_units: str = "cpu_and_ne"
    min_ane_share: float = 0.9
    share: str = "ops"
    json: bool = False


def lint(args: list[str]) -> int:
    """Run the verb; returns its exit code. Raises ConfigError for a wrong word."""
    options = parse(args)
    was_enabled = gc.isenabled()
    gc.disable()  # a large program is some million small objects that all live to the end: a quarter of the time
    try:
        return judge(options)
    finally:
        if was_enabled:
            gc.enable()


def judge(options: Options) -> int:
    """Every package on every chip; returns the exit code."""
    from ane_sweep.placement import chips

    wanted = [chips.get(name) for name in options.chips]
    entries: list[dict[str, Any]] = []
    problems: list[dict[str, str]] = []
    worst = HOLDS
    for path in options.paths:
        try:
            loaded = _load(path)
        except PackageError as error:
            problems.append({"path": str(path), "error": str(error)})
            print(f"error: {error}", file=sys.stderr)
            worst = UNREADABLE
            continue
        for chip in wanted:
            holds = _report(path, loaded, chip, options, entries)
            worst = worst if holds else max(worst, FALLS_SHORT)
    if options.json:
        content: dict[str, Any] = {"schema": SCHEMA, "packages": entries}
        if problems:
            content["errors"] = problems
        print(json.dumps(content, separators=(",", ":")))
    return worst


def parse(args: list[str]) -> Options:
    """Options from words; `--name value` and `--name=value` alike."""
    from ane_sweep.placement.predict import COMPUTE_UNITS

    plain = Options()
    parser = Parser(
        "lint",
        "PACKAGE... [--chip m4[,a17_pro...]] [--compute-units cpu_and_ne] [--min-ane-share 0.9] [--share ops|cost] [--json]",
        "Where the ops of any package would run, and why not on the Neural Engine: a verdict for other people's CI. "
        "What it says is predicted.",
        "ane-sweep lint model.mlpackage --chip m4,a17_pro --json",
        {
            HOLDS: "every package keeps its share on the Neural Engine, or was not asked to run there",
            FALLS_SHORT: "one falls short",
            UNREADABLE: "a wrong word, or a package that cannot be read",
        },
    )
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PACKAGE", help="a .mlpackage, a .mlmodelc, or a folder of chunks"
    )
    parser.add_argument(
        "--chip", dest="chips", type=_names, default=plain.chips, metavar="NAME,...", help="predicted for (default: m4)"
    )
    parser.add_argument(
        "--compute-units", type=str.lower, choices=COMPUTE_UNITS, default=plain.compute_units, metavar="UNITS",
        help=f"what Core ML may use: {', '.join(COMPUTE_UNITS)} (default: {plain.compute_units})",
    )  # fmt: skip
    parser.add_argument(
        "--min-ane-share", type=_share, default=plain.min_ane_share, metavar="SHARE",
        help=f"from 0 to 1; less than that falls short (default: {plain.min_ane_share})",
    )  # fmt: skip
    parser.add_argument(
        "--share",
        choices=("ops", "cost"),
        default=plain.share,
        metavar="ops|cost",
        help="what it is a share of (default: ops)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, for scripts (default: text)")
    return Options(**vars(parser.read(args)))


def _names(text: str) -> list[str]:
    if names := [part for part in text.split(",") if part]:
        return names
    raise argparse.ArgumentTypeError("needs a value")


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if 0 <= value <= 1:
        return value
    raise argparse.ArgumentTypeError(f"{text}: expected a number from 0 to 1")


def _load(path: Path) -> list[Any]:
    """The programs at a path: a package, or a folder that holds model.mlpackage or a chain of chunks."""
    from ane_sweep.mil import package
    from ane_sweep.placement import programs

    is_folder = path.is_dir() and path.suffix not in (".mlpackage", ".mlmodelc")
    if not is_folder:
        return programs.load_chain([path])
    return programs.load_chain(package.program_paths(path))


def _report(path: Path, loaded: list[Any], chip: Any, options: Options, entries: list[dict[str, Any]]) -> bool:
    """Predict, say so, and return whether the verdict holds."""
    from ane_sweep.placement import predict

    prediction = predict.predict_chain(loaded, chip, options.compute_units)
    holds, share = verdict(prediction, options)
    if options.json:
        is_chain = len(prediction.chunks) > 1
        gates = [
            {**vars(gate), "chunk": chunk.program.chunk if is_chain else None}
            for chunk in prediction.chunks
            for gate in chunk.gates
        ]
        entries.append(
            {
                "path": str(path), "chip": chip.chip, "compute_units": options.compute_units, "verdict": holds,
                "ane_share": share, "gates": gates, "estimate": prediction.estimate_entry(), "ops": prediction.table(),
            }
        )  # fmt: skip
    else:
        print(visible(text(path, prediction, holds)))
    return holds


def verdict(prediction: Any, options: Options) -> tuple[bool, float]:
    """(whether enough stays on the ANE, its share: of enumerated shapes the least). A gate that closes the ANE leaves a
    share of 0.
    """
    from ane_sweep.placement import predict

    rows = prediction.rows
    every = [rows, *(found.rows for _, found in prediction.at_shapes)]
    by_cost = options.share == "cost"
    share = min(predict.cost_share(one).ane if by_cost else predict.count_ops(one).share("ane") for one in every)
    asked = options.compute_units in ("all", "cpu_and_ne") and bool(rows)
    return not asked or share >= options.min_ane_share, round(share, 6)


def text(path: Path, prediction: Any, holds: bool) -> str:
    """The verdict for people: where ops go, why they leave, what to change. Everything in it is predicted."""
    summary = prediction.summary()
    ops, share = summary.ops, summary.cost_share
    chunks = f", {len(prediction.chunks)} chunks" if len(prediction.chunks) > 1 else ""
    lines = [
        f"{path}: {'ok' if holds else 'NOT mainly on the ANE'} (predicted for {summary.chip}, {summary.compute_units}{chunks})",
        f"  ops   {ops.ane} ANE, {ops.gpu} GPU, {ops.cpu} CPU of {ops.total}; "
        f"{share.ane:.1%} of the estimated cost on the ANE; {summary.segments} segments, {summary.transitions} transitions",
        f"  time  {time_text(prediction)}",
    ]
    for chunk in prediction.chunks:
        lines += [f"  gate  {gate.gate} ({gate.effect}): {gate.reason}" for gate in chunk.gates]
    for entry in summary.reasons[:8]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in list(entry.op_types.items())[:4])
        lines.append(f"  why   {entry.ops} off the ANE ({kinds}): {entry.reason} [{entry.confidence}; {entry.source}]")
    lines += [f"  do    {advice}" for advice in summary.advice[:5]]
    others = [kind for chunk in prediction.chunks for kind in chunk.program.others]
    lines += [
        f"  note  the pipeline's {kind} is no ML Program and is not judged: it runs on the CPU" for kind in others
    ]
    for shapes, found in prediction.at_shapes:
        there = found.summary().ops
        sizes = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        lines.append(f"  at    {sizes}: {there.ane} of {there.total} ops ANE; {time_text(found)}")
    lines += [f"  note  {shape_text(one)}" for one in prediction.flexible if not one.shapes]
    lines += [
        f"  note  {file.removeprefix('@model_path/')} is not there: judged by what the program declares, it cannot be run"
        for file in dict.fromkeys(file for chunk in prediction.chunks for file in chunk.program.without)
    ]
    if summary.compute_units in ("all", "cpu_and_gpu"):
        lines.append("  note  the choice against the GPU has no public constants and is not modelled")
    return "\n".join(lines)


def time_text(prediction: Any) -> str:
    """The estimate with its band and what it rests on, or why there is none."""
    found = prediction.estimate
    if found is None:
        return f"not estimated: {prediction.not_estimated}"
    return f"about {found.ms:.3g} ms ({found.low_ms:.3g} to {found.high_ms:.3g}), estimated from {found.anchor}"


def shape_text(flexible: Any) -> str:
    """What is judged of an input that takes several shapes."""
    if flexible.default is None:
        return (
            f"input {flexible.name} takes several shapes and its default one is not stated: its sizes count as unknown"
        )
    from ane_sweep.placement.predict import AT_DEFAULT

    return f"input {flexible.name} takes a range of shapes: all of this is for its default, {list(flexible.default)}; {AT_DEFAULT}"
