"""`ane-sweep lint`: a verdict on packages, ours or anybody's, for other people's CI. Reads protobufs only.

Exit code 0 when every package keeps at least --min-ane-share of its ops on the ANE and passes its gates, 1 when one does
not, 2 when one cannot be read. Where the ANE was not asked (cpu_only, cpu_and_gpu) there is nothing to fall short of.
"""

import gc
import json
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ane_sweep.errors import ConfigError, PackageError
from ane_sweep.outward import visible

HOLDS, FALLS_SHORT, UNREADABLE = 0, 1, 2
SCHEMA = 1
USAGE = (
    "ane-sweep lint PACKAGE... [--chip m4[,a17_pro...]] [--compute-units cpu_and_ne] [--min-ane-share 0.9] "
    "[--share ops|cost] [--json]"
)
_VALUES = ("--chip", "--compute-units", "--min-ane-share", "--share")


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
    if any(arg in ("--help", "-h") for arg in args):
        print(USAGE)
        return HOLDS
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

    options, words = Options(), list(args)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word == "--json":
            options.json = True
        elif name in _VALUES:
            if not equals:
                if not words:
                    raise ConfigError(f"{name}: needs a value; {USAGE}")
                value = words.pop(0)
            _set(options, name, value)
        elif word.startswith("-"):
            raise ConfigError(f"{word}: unknown option; {USAGE}")
        else:
            options.paths.append(Path(word))
    if not options.paths:
        raise ConfigError(f"lint needs at least one package; {USAGE}")
    if options.compute_units not in COMPUTE_UNITS:
        raise ConfigError(f"--compute-units {options.compute_units}: unknown; choices: {', '.join(COMPUTE_UNITS)}")
    return options


def _set(options: Options, name: str, value: str) -> None:
    if name == "--chip":
        options.chips = [part for part in value.split(",") if part]
        if not options.chips:
            raise ConfigError(f"{name}: needs a value; {USAGE}")
    elif name == "--compute-units":
        options.compute_units = value.lower()
    elif name == "--share":
        if value not in ("ops", "cost"):
            raise ConfigError(f"--share {value}: unknown; choices: ops, cost")
        options.share = value
    else:
        try:
            options.min_ane_share = float(value)
        except ValueError:
            options.min_ane_share = math.nan
        if not 0 <= options.min_ane_share <= 1:
            raise ConfigError(f"--min-ane-share {value}: expected a number from 0 to 1")


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
            {**gate, "chunk": chunk.program.chunk if is_chain else None}
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
    """(whether enough stays on the ANE, its share). A gate that closes the ANE leaves a share of 0."""
    from ane_sweep.placement import predict

    rows = prediction.rows
    counted = predict.count_ops(rows)["ane"] / max(len(rows), 1)
    share = predict.cost_share(rows)["ane"] if options.share == "cost" else counted
    asked = options.compute_units in ("all", "cpu_and_ne") and bool(rows)
    return not asked or share >= options.min_ane_share, round(share, 6)


def text(path: Path, prediction: Any, holds: bool) -> str:
    """The verdict for people: where ops go, why they leave, what to change. Everything in it is predicted."""
    summary = prediction.summary()
    ops, share = summary["ops"], summary["cost_share"]
    chunks = f", {len(prediction.chunks)} chunks" if len(prediction.chunks) > 1 else ""
    lines = [
        f"{path}: {'ok' if holds else 'NOT mainly on the ANE'} (predicted for {summary['chip']}, {summary['compute_units']}{chunks})",
        f"  ops   {ops['ane']} ANE, {ops['gpu']} GPU, {ops['cpu']} CPU of {ops['total']}; "
        f"{share['ane']:.1%} of the estimated cost on the ANE; {summary['segments']} segments, {summary['transitions']} transitions",
        f"  time  {time_text(prediction)}",
    ]
    for chunk in prediction.chunks:
        lines += [f"  gate  {gate['gate']} ({gate['effect']}): {gate['reason']}" for gate in chunk.gates]
    for entry in summary["reasons"][:8]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in list(entry["op_types"].items())[:4])
        lines.append(
            f"  why   {entry['ops']} off the ANE ({kinds}): {entry['reason']} [{entry['confidence']}; {entry['source']}]"
        )
    lines += [f"  do    {advice}" for advice in summary["advice"][:5]]
    lines += [f"  note  {shape_text(one)}" for one in prediction.flexible]
    if summary["compute_units"] in ("all", "cpu_and_gpu"):
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
    kinds = {"enumerated": "one of several shapes", "range": "a range of shapes"}
    return (
        f"input {flexible.name} takes {kinds[flexible.kind]}: all of this is for its default, {list(flexible.default)}"
    )
