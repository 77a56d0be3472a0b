"""The verdict on any package: the predicted unit of each op, reasons against the ANE, and whether enough stays on the ANE.

It reads protobufs only. Every figure in it is predicted.
"""

import os
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ane_sweep.errors import ConfigError, suggestion
from ane_sweep.memory_limits import pause_collection
from ane_sweep.mil import package as packages
from ane_sweep.placement import by_module, chips, legality, predict, programs
from ane_sweep.placement.chips import Chip, Measurements
from ane_sweep.placement.predict import AT_DEFAULT, COMPUTE_UNITS, Prediction
from ane_sweep.placement.programs import Flexible, Program
from ane_sweep.placement.rows import OpRow, cost_share, count_ops, count_text, name_types
from ane_sweep.placement.types import Placement

if TYPE_CHECKING:
    import pandas

SHARES = ("ops", "cost")
EVERY = 1_000_000  # modules: all


@dataclass(frozen=True)
class Verdict:
    """The prediction for a package on a chip. `str` gives the verdict, the reasons why ops leave the ANE, and advice.

    ok         True if at least `min_ane_share` stays on the ANE, or if the ANE was not asked for
    ane_share  from 0 to 1, of the ops or of their planner cost; a gate that closes the ANE leaves 0
    limit      what asked for the least share, for messages: "--min-ane 95"
    """

    path: Path
    chip: str
    compute_units: str
    ok: bool
    ane_share: float
    prediction: Prediction
    limit: str

    @cached_property
    def summary(self) -> Placement:
        """Return a Placement: numbers of ops by unit, their shares of the cost, `reasons` with op types and names, and `advice`."""
        return self.prediction.summary()

    @property
    def ops(self) -> list[OpRow]:
        """Return every op with its unit, and the rule and reason why it is not on the ANE."""
        return self.prediction.rows

    def frame(self) -> "pandas.DataFrame":
        """Return one row for each op, with the columns of `ane-sweep lint --json`."""
        import pandas

        return pandas.DataFrame(self.prediction.table())

    def to_dict(self) -> dict[str, Any]:
        """Return the package's entry in the output of `ane-sweep lint --json`."""
        is_chain = len(self.prediction.chunks) > 1
        gates = [
            {**vars(gate), "chunk": chunk.program.chunk if is_chain else None}
            for chunk in self.prediction.chunks
            for gate in chunk.gates
        ]
        return {
            "path": str(self.path), "chip": self.chip, "compute_units": self.compute_units, "verdict": self.ok,
            "ane_share": self.ane_share, "gates": gates, "estimate": self.prediction.estimate_entry(),
            "modules": [asdict(place) for place in self.prediction.list_modules(EVERY)],
            "modules_basis": by_module.find_basis(self.prediction.programs), "ops": self.prediction.table(),
        }  # fmt: skip

    def __str__(self) -> str:
        return self.describe("ok" if self.ok else f"NOT enough on the ANE for {self.limit}")

    def describe(self, verdict: str) -> str:
        """Return the text of a verdict in these words, for a caller that tested more than the share of the ANE."""
        return text(self.path, self.prediction, self.summary, verdict)

    __repr__ = __str__


def judge(
    path: "str | os.PathLike[str]",
    *,
    chip: str = "m4",
    compute_units: str = "cpu_and_ne",
    min_ane_share: float = 0.9,
    share: str = "ops",
    measured: Measurements | None = None,
) -> Verdict:
    """Judge one package for one chip; for `measured` see chips.get.

    Raises PackageError for an unreadable package, ConfigError for a wrong option.
    """
    compute_units = compute_units.lower()  # as coremltools spells them
    for name, word, choices in (("compute_units", compute_units, COMPUTE_UNITS), ("share", share, SHARES)):
        if word not in choices:
            raise ConfigError(f"{name}={word}: unknown{suggestion(word, choices)}; choices: {', '.join(choices)}")
    if not 0 <= min_ane_share <= 1:
        raise ConfigError(f"min_ane_share={min_ane_share}: expected a number from 0 to 1")
    wanted, limit = chips.get(chip, measured), f"min_ane_share={min_ane_share:g}"
    with pause_collection():
        return judge_programs(Path(path), load(Path(path)), wanted, compute_units, min_ane_share, share, limit)


def load(path: Path) -> list[Program]:
    """Load the programs at a path: a package, or a folder that holds model.mlpackage or a chain of chunks."""
    is_folder = path.is_dir() and path.suffix not in (".mlpackage", ".mlmodelc")
    return programs.load_chain(packages.program_paths(path) if is_folder else [path])


def judge_programs(
    path: Path, loaded: list[Program], chip: Chip, compute_units: str, min_ane_share: float, share: str, limit: str
) -> Verdict:
    """Judge loaded programs by their worst enumerated shape. A gate that moves the whole program off the ANE leaves a share of 0."""
    prediction = predict.predict_chain(loaded, chip, compute_units)
    every = [prediction.rows, *(at.rows for _, at in prediction.at_shapes)]
    found = min(cost_share(one).ane if share == "cost" else count_ops(one).share("ane") for one in every)
    asked = compute_units in ("all", "cpu_and_ne") and bool(prediction.rows)
    holds = not asked or found >= min_ane_share
    return Verdict(path, chip.chip, compute_units, holds, round(found, 6), prediction, limit)


def text(path: Path, prediction: Prediction, summary: Placement, verdict: str) -> str:
    """Format a verdict, given in words, for people: units of the ops, why ops leave the ANE, and advice. All of it is predicted."""
    ops, share = summary.ops, summary.cost_share
    chunks = f", {len(prediction.chunks)} chunks" if len(prediction.chunks) > 1 else ""
    lines = [
        f"{path}: {verdict} (predicted for {summary.chip}, {summary.compute_units}{chunks})",
        f"  ops   {ops.ane} ANE, {ops.gpu} GPU, {ops.cpu} CPU of {ops.total}; "
        f"{share.ane:.1%} of the planner cost (not of the time) on the ANE; "
        f"{count_text(summary.segments, 'segment')}, {count_text(summary.transitions, 'transition')}",
        f"  time  {time_text(prediction)}",
    ]
    for chunk in prediction.chunks:
        lines += [f"  gate  {gate.gate} ({gate.effect}): {gate.reason}" for gate in chunk.gates]
    for entry in summary.reasons[:8]:
        kinds = name_types(entry.op_types.items())
        lines.append(f"  why   {entry.ops} off the ANE ({kinds}): {entry.reason} [{entry.confidence}; {entry.source}]")
    basis = by_module.find_basis(prediction.programs)
    lines += [f"  in    {line}" for line in by_module.format_modules(prediction.list_modules(by_module.LINES), basis)]
    lines += [f"  do    {advice}" for advice in (summary.advice or [])[:5]]
    lines += [
        f"  note  the pipeline's {kind} is no ML Program and is not judged: it runs on the CPU"
        for chunk in prediction.chunks
        for kind in chunk.program.others
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
    if summary.choice:
        lines.append(f"  unit  {summary.choice} [low]")
    contested = sum(row.preferred == "ane" and legality.disputed(row.site) for row in prediction.rows)
    lines += [f"  note  {legality.DISPUTED.format(ops=count_text(contested, 'op'))}"] if contested else []
    return "\n".join(lines)


def time_text(prediction: Prediction) -> str:
    """Return the estimate with its band and its basis as text, or the reason why there is no estimate."""
    found = prediction.estimate
    if found is None:
        return f"not estimated: {prediction.not_estimated}"
    return f"about {found.ms:.3g} ms ({found.low_ms:.3g} to {found.high_ms:.3g}), estimated from {found.anchor}"


def shape_text(flexible: Flexible) -> str:
    """Return a text about the input shapes for which the verdict holds."""
    if flexible.default is None:
        return (
            f"input {flexible.name} takes several shapes and its default one is not stated: its sizes count as unknown"
        )
    return f"input {flexible.name} takes a range of shapes: all of this is for its default, {list(flexible.default)}; {AT_DEFAULT}"
