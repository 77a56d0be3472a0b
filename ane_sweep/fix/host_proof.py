"""The proof of a rewrite that changes the interface: the new program with the host's new part against the old program."""

import math
from collections.abc import Sequence

import numpy as np

from ane_sweep.errors import PackageError
from ane_sweep.fix.interface import Change, Run, Values
from ane_sweep.fix.proof import ENOUGH_DB, LOST_DB, SEED, Proof, compare_db, largest_difference
from ane_sweep.fix.whole import MOST_WHOLE_BYTES, draw_function_inputs, run_function
from ane_sweep.mil import graph as mil
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import MIL_pb2
from ane_sweep.mil.weights import program_blob_values
from ane_sweep.reference.regions import run_ops


def prove_change(before: Package, change: Change) -> Proof:
    """Run every comparison of a change on random inputs. The results must be the same bits in fp32, and in fp16 as near
    as before. Raises PackageError if they cannot be run here.
    """
    if before.measure_blobs(program_blob_values(before.spec.mlProgram)) > MOST_WHOLE_BYTES:
        raise PackageError("too large to be run as a whole")
    found = Proof(0.0, math.inf, math.inf, math.inf, math.inf)
    for run in change.runs:
        one = _compare(before, change.package, run)
        problem = found.problem or (f"{run.after}: {one.problem}" if one.problem else None)
        worst = min(found.fp16_before, one.fp16_before), min(found.fp16_after, one.fp16_after)
        found = Proof(max(found.difference, one.difference), *worst, math.inf, math.inf, problem)
    return found


def _compare(before: Package, after: Package, run: Run) -> Proof:
    given = draw_function_inputs(before, run.before, np.random.default_rng(SEED), run.shapes)
    values = {**given, **_run_part(before, run, run.head, given)}
    exact, half = (run_function(before, run.before, given, mode) for mode in ("fp32", "fp16"))
    new = run.to_new(values)
    made, fixed = (run.to_old(given, _finish(before, after, run, new, mode)) for mode in ("fp32", "fp16"))
    difference = max(largest_difference(value, made[name]) for name, value in exact.items())
    floats = [name for name, value in exact.items() if value.dtype.kind == "f"]
    old = min((compare_db(exact[name], half[name]) for name in floats), default=math.inf)
    now = min((compare_db(exact[name], fixed[name]) for name in floats), default=math.inf)
    problem = None
    if difference > 0.0:
        problem = f"fp32 differs by {difference:.2g} of the largest output"
    elif now < min(old - LOST_DB, ENOUGH_DB):
        problem = f"fp16 loses accuracy: {old:.1f} -> {now:.1f} dB"
    return Proof(difference, old, now, math.inf, math.inf, problem)


def _finish(before: Package, after: Package, run: Run, given: Values, mode: str) -> Values:
    """Return the outputs of the new function, and what the host makes of them."""
    names = {value.name for value in after.spec.mlProgram.functions[run.after].inputs}
    made = run_function(after, run.after, {name: value for name, value in given.items() if name in names}, mode)
    return {**made, **_run_part(before, run, run.tail, made)}


def _run_part(package: Package, run: Run, ops: Sequence[MIL_pb2.Operation], given: Values) -> dict[str, np.ndarray]:
    """Return what some ops of the old function make, with its constants; in fp32, as the host computes."""
    if not ops:
        return {}
    program = mil.view_program(package, run.before)
    own = [proto for proto in program.block.operations if proto.type == "const" or proto.type.startswith("constexpr_")]
    made = [value.name for proto in ops for value in proto.outputs]
    types = {name: program.types[name] for name in given if name in program.types}
    return run_ops(package, program.opset, [*own, *ops], made, types, {name: given[name] for name in types}, "fp32")
