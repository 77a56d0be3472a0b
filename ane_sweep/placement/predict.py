"""Predict the unit of each op of a program from legality, estimates, the cheapest path and the gates.

    predict_chain(chain, chip, units) ->    Prediction      one program, or chunks in the order they run
    Prediction.summary()                                    the record's `placement` entry
    Prediction.table()                                      one row for each op

Everything here is of kind "predicted". The choice against the GPU has no public constants: under `all` it follows from
how much faster the GPU is estimated to be (choice.py), and is not predicted for chips without figures; under
`cpu_and_gpu` the GPU takes what it can of a program that would keep the CPU busy for 1 ms. Both have a lower
confidence.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ane_sweep.errors import ConfigError, PackageError
from ane_sweep.placement import advice, chips, choice, costs, gates, latency, legality, path, programs, reasons, work
from ane_sweep.placement.by_module import KEPT, list_modules
from ane_sweep.placement.chips import Chip
from ane_sweep.placement.programs import Flexible, Program
from ane_sweep.placement.rows import OpRow, cost_share, count_ops
from ane_sweep.placement.sites import Site
from ane_sweep.placement.types import Gate, ModulePlace, Part, Placement

COMPUTE_UNITS = ("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne")

# 20 ms on the ANE, fixed and as a range of batches (#1909, 2023); three quarters of the ops there at the default shape (#2370)
AT_DEFAULT = (
    "of a range only the default shape is judged: programs were seen on the ANE there (coremltools#1909, #2370), and off it at "
    "other shapes and as a whole"
)


@dataclass
class ChunkResult:
    """A program's prediction; `timed` are the rows of its default function, which a call runs: an estimate is of these alone."""

    program: Program
    rows: list[OpRow]
    timed: list[OpRow]
    gates: list[Gate]
    segments: int
    transitions: int
    work: work.Work
    choice: str | None = None

    def part(self) -> Part:
        ops, share = count_ops(self.rows), cost_share(self.rows)
        return Part(self.program.chunk, ops, share, self.segments, self.transitions, gates=self.gates)


@dataclass
class Prediction:
    chip: Chip
    compute_units: str
    chunks: list[ChunkResult] = field(default_factory=list)
    estimate: latency.Estimate | None = None
    not_estimated: str | None = None
    at_shapes: list[tuple[dict[str, tuple[int, ...]], "Prediction"]] = field(default_factory=list)

    @property
    def is_ranged(self) -> bool:
        return any(chunk.program.is_ranged for chunk in self.chunks)

    @property
    def rows(self) -> list[OpRow]:
        return [row for chunk in self.chunks for row in chunk.rows]

    @property
    def programs(self) -> list[Program]:
        return [chunk.program for chunk in self.chunks]

    @property
    def flexible(self) -> list[Flexible]:
        """Return the inputs that take several shapes. Ops are judged at the default shapes; `at_shapes` covers each enumerated one."""
        return list(dict.fromkeys(one for chunk in self.chunks for one in chunk.program.flexible))

    def summary(self) -> Placement:
        """Return the record's placement entry."""
        rows = self.rows
        return Placement(
            kind="predicted",
            chip=self.chip.chip,
            compute_units=self.compute_units,
            ops=count_ops(rows),
            cost_share=cost_share(rows),
            segments=sum(chunk.segments for chunk in self.chunks),
            transitions=sum(chunk.transitions for chunk in self.chunks),
            chunks=[chunk.part() for chunk in self.chunks],
            reasons=reasons.list_reasons(rows),
            advice=advice.advise(rows, [gate for one in self.chunks for gate in one.gates], self.flexible, self.saving),
            confidence=confidence(self),
            flexible=[
                {"name": one.name, "kind": one.kind, "default": one.default}
                | ({"shapes": one.shapes} if one.shapes else {})
                | ({"doubt": AT_DEFAULT} if one.kind == "range" else {})
                for one in self.flexible
            ]
            or None,
            at_shapes=[
                {
                    "shapes": shapes, "ops": asdict(count_ops(found.rows)),
                    "cost_share_ane": cost_share(found.rows).ane, "estimate": found.estimate_entry(),
                }
                for shapes, found in self.at_shapes
            ] or None,
            not_estimated=self.not_estimated,
            hand_over_ms=self.estimate.hand_over_ms if self.estimate and len(self.chunks) > 1 else None,
            modules=self.list_modules() or None,
            choice="; ".join(dict.fromkeys(chunk.choice for chunk in self.chunks if chunk.choice)) or None,
        )  # fmt: skip

    def list_modules(self, most: int = KEPT) -> list[ModulePlace]:
        """Return the torch modules that cost most or keep most ops off the Neural Engine: see by_module.py."""
        return list_modules(self.rows, self.programs, most)

    def saving(self, rows: Sequence[OpRow]) -> advice.Saving | None:
        """Return the time saved if the Neural Engine took these rows, or None if there is no estimate."""
        if self.estimate is None or any(row.preferred == "gpu" for chunk in self.chunks for row in chunk.timed):
            return None
        chunks = [(chunk.timed, chunk.work) for chunk in self.chunks]
        return advice.estimate_saving(chunks, rows, self.chip, self.estimate.ms)

    def estimate_entry(self) -> dict[str, Any]:
        """Return the latency estimate with the band, anchor and confidence to show with it, or the reason for its absence."""
        if self.estimate is None:
            return {"kind": "estimated", "latency_ms": None, "reason": self.not_estimated}
        found = self.estimate
        return {
            "kind": "estimated", "latency_ms": round(found.ms, 4), "low_ms": round(found.low_ms, 4),
            "high_ms": round(found.high_ms, 4), "anchor": found.anchor, "confidence": found.confidence,
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        """Return one row of JSON values for each op, in file order, chunk by chunk."""
        total = sum(row.ms for row in self.rows) or 1.0
        is_chain = len(self.chunks) > 1
        return [
            {
                "function": row.site.function, "chunk": row.chunk if is_chain else None, "name": row.site.name, "op_type": row.site.type,
                "module": row.site.module,
                "supported": list(row.verdict.supported), "preferred": row.preferred,
                "cost_share": round(row.ms / total, 8), "reason": row.reason, "confidence": row.confidence,
            }
            for row in self.rows
        ]  # fmt: skip


def predict_chain(chain: Sequence[Program], chip: Chip, compute_units: str) -> Prediction:
    """Predict each chunk separately, as each is a program to Core ML.

    Raises ConfigError for unknown units, PackageError for ops that cannot be judged.
    """
    if compute_units not in COMPUTE_UNITS:
        raise ConfigError(f"compute_units={compute_units}: unknown; choices: {', '.join(COMPUTE_UNITS)}")
    prediction = Prediction(chip, compute_units)
    mapped = 0
    for program in chain:
        try:
            result = _predict(program, chip, compute_units, mapped)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise PackageError(
                f"{program.path}: an op has inputs or sizes that it cannot have ({error}); is the file damaged?"
            ) from error
        mapped += program.weight_file_bytes
        prediction.chunks.append(result)
    works = [chunk.work for chunk in prediction.chunks]
    has_layout = bool(latency.of_chip(chip)["ane"].get("layout_here"))
    speaks_against = (
        latency.explain_withholding(
            [row.site for row in chunk.timed], [row.preferred for row in chunk.timed], chip, has_layout
        )
        for chunk in prediction.chunks
    )
    prediction.not_estimated = latency.missing(works, chip) or next(filter(None, speaks_against), None)
    if prediction.not_estimated is None:
        prediction.estimate = latency.estimate(works, chip, is_flexible=prediction.is_ranged)
    prediction.at_shapes = [(shapes, predict_chain(there, chip, compute_units)) for shapes, there in _each_shape(chain)]
    return prediction


def _each_shape(chain: Sequence[Program]) -> Iterator[tuple[dict[str, tuple[int, ...]], list[Program]]]:
    """Yield a chain at the first enumerated shape of all its programs, then at the second, and so on."""
    for index in range(max((len(program.at_shapes) for program in chain), default=0)):
        each = [one.at_shapes[min(index, len(one.at_shapes) - 1)] if one.at_shapes else ({}, one) for one in chain]
        yield dict(item for shapes, _ in each for item in shapes.items()), [program for _, program in each]


def _predict(program: Program, chip: Chip, compute_units: str, mapped: int) -> ChunkResult:
    found = gates.check(program, chip, mapped)
    placed, said = [_place(sites, program, chip, compute_units, found) for sites in program.functions.values()], None
    for rows in placed if compute_units == "all" else ():
        said = choice.against_the_gpu(rows, chip)
    units = [[row.preferred for row in rows] for rows in placed]
    counts = [path.count_segments(one) for one in units]
    timed, every = placed[0], [row for rows in placed for row in rows]  # the default function is the first
    done = work.work_of([row.site for row in timed], units[0], counts[0][1], work.cache_bytes(chip.family))
    segments, transitions = map(sum, zip(*counts))
    return ChunkResult(program, every, timed, found, segments, transitions, done, said)


def _place(sites: Sequence[Site], program: Program, chip: Chip, compute_units: str, found: list[Gate]) -> list[OpRow]:
    rows = []
    for site in sites:
        verdict = legality.judge(site, chip)
        ane_ms = costs.estimate_ms(site, "ane") if "ane" in verdict.supported else None
        rows.append(OpRow(site, program.chunk, verdict, costs.estimate_ms(site, "cpu"), ane_ms))
    closed = next(((gate.reason, gate.confidence) for gate in found if gate.effect == "cpu"), None)
    if compute_units == "cpu_only":
        closed = "only the CPU was asked", "high"
    if compute_units == "cpu_and_gpu":
        choice.on_the_gpu(rows)
    elif closed is not None:
        for row in rows:
            row.reason, row.confidence = closed
    else:
        _along_the_path(rows, chip, compute_units)
        for row in rows if program.is_ranged else ():
            row.confidence = "low"
    return rows


def _along_the_path(rows: list[OpRow], chip: Chip, compute_units: str) -> None:
    units, _ = path.choose([(row.cpu_ms, None if row.site.nested else row.ane_ms) for row in rows])
    ceiling = "medium" if chip.is_calibrated else "low"
    for row, unit in zip(rows, units, strict=True):
        row.preferred = unit
        row.confidence = row.verdict.confidence
        if unit == "ane":
            row.reason = "on the cheapest path"
        elif row.verdict.reason is not None:
            row.reason = row.verdict.reason
        elif row.site.nested:
            row.reason, row.confidence = "inside control flow, which runs on the CPU", "medium"
        if (unit == "ane" or row.verdict.rule is None) and row.confidence == "high":
            row.confidence = ceiling  # a legal op's place hangs on estimates, not on rules
        if compute_units == "all":
            row.confidence = "low"
    reasons.explain_stays(rows)


def confidence(prediction: Prediction) -> str:
    """Return the confidence in a whole prediction: never above medium, because estimates decide.

    It is low for a chip outside the calibrated family, for ranges of shapes, for loops, whose ops have a share of the cost
    as if they ran once, and if the GPU may be used.
    """
    is_plain = not prediction.is_ranged and not any(row.site.nested for row in prediction.rows)
    calibrated = prediction.chip.is_calibrated and is_plain
    return "medium" if calibrated and prediction.compute_units in ("cpu_and_ne", "cpu_only") else "low"


def op_times(path: Path, chip: str) -> dict[str, float]:
    """Return {name of the first output: milliseconds} of each op of the default function: planner costs, not latencies.

    The cost is that on the ANE if the chip's ANE supports the op, else on the CPU. A lookup costs the rows it reads.
    Raises errors.PackageError, errors.ConfigError.
    """
    row, found = chips.get(chip), {}
    for site in next(iter(programs.load(path).functions.values())):
        unit = "ane" if "ane" in legality.judge(site, row).supported else "cpu"
        found[site.name] = work.lookup_ms(site) if site.type == "gather" else costs.estimate_ms(site, unit)
    return found
