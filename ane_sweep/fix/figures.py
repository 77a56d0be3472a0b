"""The figures by which a rewrite is judged: the prediction for a chip, before and after."""

from dataclasses import dataclass

from ane_sweep.mil import weights
from ane_sweep.mil.package import Package
from ane_sweep.placement import predict, programs
from ane_sweep.placement.chips import Chip
from ane_sweep.placement.rows import cost_share, count_ops

_SAME = 0.005  # the smallest relative change of an estimate or a cost that counts

NO_GAIN = "no gain is predicted"


@dataclass(frozen=True)
class Figures:
    """A program's prediction for a chip; `refused` are ops that the Neural Engine does not take, `closed` gates that
    keep the whole program off it.
    """

    ops: int
    on_ane: int
    refused: int
    cost_ane: float
    off_ane_ms: float
    segments: int
    closed: int
    estimate_ms: float | None
    bytes: int


def measure_figures(package: Package, chip: Chip) -> Figures:
    """Return the figures of a package on a chip with compute units cpu_and_ne. Raises errors.PackageError."""
    prediction = predict.predict_chain([programs.describe_package(package, is_brief=True)], chip, "cpu_and_ne")
    rows = prediction.rows
    counted, estimate = count_ops(rows), prediction.estimate
    return Figures(
        ops=counted.total,
        on_ane=counted.ane,
        refused=sum("ane" not in row.verdict.supported for row in rows),
        cost_ane=cost_share(rows).ane,
        off_ane_ms=sum(row.ms for row in rows if row.preferred != "ane"),
        segments=sum(chunk.segments for chunk in prediction.chunks),
        closed=sum(gate.effect == "cpu" for chunk in prediction.chunks for gate in chunk.gates),
        estimate_ms=estimate.ms if estimate is not None else None,
        bytes=package.spec.ByteSize() + package.measure_blobs(weights.program_blob_values(package.spec.mlProgram)),
    )


def find_gain(before: Figures, after: Figures, may_leave: bool = False) -> tuple[bool, str]:
    """Return (True, the gain) if the prediction improves, else (False, the reason against the rewrite).

    A whole program that would leave the Neural Engine is no gain, however fast, unless it `may_leave`. Else the first
    figure that differs decides: gates that keep the whole program off the Neural Engine, the estimate, ops that the Neural
    Engine refuses, its planner cost elsewhere, segments.
    """
    steps = [
        ("gates closed", float(before.closed), float(after.closed), 0.0),
        ("ops refused", float(before.refused), float(after.refused), 0.0),
        ("ms of planner cost off the Neural Engine", before.off_ane_ms, after.off_ane_ms, _SAME * before.off_ane_ms),
        ("segments", float(before.segments), float(after.segments), 0.0),
    ]
    if before.estimate_ms is not None and after.estimate_ms is not None:
        steps.insert(1, ("ms estimated", before.estimate_ms, after.estimate_ms, _SAME * before.estimate_ms))
    leaves = before.on_ane and not after.on_ane
    off = f"the whole program leaves the Neural Engine: {before.on_ane} of {before.ops} -> 0 of {after.ops} ops there"
    for name, one, other, same in steps:
        if abs(one - other) > same:
            text = f"{one:.4g} -> {other:.4g} {name}"
            if leaves and not may_leave:
                return False, f"{off} ({text}); `--only` applies it"
            text = f"{text}; {off}" if leaves else text
            return (True, text) if other < one else (False, f"the prediction gets worse: {text}")
    return False, NO_GAIN
