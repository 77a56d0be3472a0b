"""drift: finds where a program loses accuracy, op by op. A report starts it; cells do not use it.

params  count: how many of the ops with the largest losses are listed
inputs  program; reference (its first input is predicted); exact, if the program was made from another one (compressed
        weights): that other program in fp32 is then the baseline
facts   values: [[op index, PSNR dB of the value], ...] in the order of the program; grown: the ops at which the drift
        grows most, [{index, type, name, psnr_db, own, drift, jump}] (explained in reference/trace.py);
        lossy: the ops with the largest own loss; blocks: the same figures for the output of each attention and
        feed-forward block, in order; modules: the drift by torch module
        (reference/drift_by_module.py); left_out: the number of values without a counterpart, or with several, ""
        if all have one (values of two programs are matched by their place in them). A psnr_db of infinity is written
        as 200
"""

from pathlib import Path

from ane_sweep import reference
from ane_sweep.bridge.stages import Stage
from ane_sweep.mil import package
from ane_sweep.mil.graph import Program
from ane_sweep.mil.line import line_up
from ane_sweep.reference import drift_by_module, trace
from ane_sweep.stats.psnr import recorded_db
from ane_sweep.worker import params
from ane_sweep.worker.feeds.arrays import Inputs
from ane_sweep.worker.stages import StageResult

STAGE = Stage(order=150, many="drifts", timeout_s=3600, base_gib=0.8, per_byte=2.0, planned=False, packages=True)


class Params(params.Params, frozen=True):
    """Parameters of this stage; see the module's docstring."""

    count: int


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Run the program and its fp32 form in step. Raises errors.PackageError if it cannot be executed."""
    (path,) = package.program_paths(inputs["program"])
    count = Params.read(params).count
    (true,) = package.program_paths(inputs.get("exact", inputs["program"]))
    feeds = Inputs(inputs["reference"])[0]
    model, exact = reference.load(path), reference.load(true, numerics="fp32")
    left_out = ""
    if "exact" in inputs:
        compared = trace.compare_values(exact, model, feeds)
        found, left_out = compared.seen, str(compared.matching)
    else:
        found = trace.measure_drift(model, exact, feeds)
    seen = [item for item in found if item.psnr_db is not None]
    grown = (lambda item: item.drift) if "exact" in inputs else (lambda item: item.jump)
    handed_on = _find_block_outputs(model.program)
    facts = {
        "values": [[item.index, recorded_db(item.psnr_db or 0.0)] for item in seen],
        "grown": [_to_entry(item) for item in trace.rank_worst(seen, count, grown)],
        "lossy": [_to_entry(item) for item in trace.rank_worst(seen, count, lambda item: item.own)],
        "blocks": [_to_entry(item) for item in seen if item.name in handed_on],
        "modules": [row.to_dict() for row in drift_by_module.roll_up(seen, model)],
        "left_out": left_out,
    }
    return StageResult(realised={"numerics": model.realised["numerics"]}, facts=facts)


def _to_entry(item: trace.ObservedValue) -> dict[str, object]:
    kept = {name: getattr(item, name) for name in ("index", "type", "name", "own", "drift", "jump")}
    return {**kept, "psnr_db": recorded_db(item.psnr_db or 0.0)}


def _find_block_outputs(program: Program) -> set[str]:
    """Return the names of the sums at the ends of blocks: later ops read no other earlier value.

    At such a place the fewest bytes cross from one half of the program to the other (the residual stream alone).
    """
    line = line_up(program)
    sums = [p for p in line.positions if line.compute[p - 1].type == "add"]
    least = min((line.crossing[p] for p in sums), default=0)
    return {line.compute[p - 1].outputs[0] for p in sums if line.crossing[p] == least}
