"""The proof of a rewritten program as a whole, and the search for the change that breaks it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ane_sweep.errors import PackageError
from ane_sweep.fix import proof
from ane_sweep.fix.rewrite import REWRITES
from ane_sweep.mil.element_types import NUMPY
from ane_sweep.mil.graph import view_program
from ane_sweep.mil.package import Package
from ane_sweep.mil.weights import blob_values
from ane_sweep.placement import programs
from ane_sweep.reference.regions import run_ops

MODES = ("fp32", "fp16")
MOST_WHOLE_BYTES = 256 << 20  # of the weights of a program that is run as a whole
_WHOLE_DB = 60.0  # the least PSNR in fp32 of a whole program whose rewrites are not all exact


@dataclass(frozen=True)
class WholeProof:
    """The proof of all functions: `text` tells it; with a `problem` it fails. A program too large to be run has no problem."""

    text: str
    problem: str | None = None


def prove(before: Package, after: Package, names: Sequence[str]) -> WholeProof:
    """Prove every function of a package as a whole, after the rewrites with these names."""
    is_exact = all(REWRITES[name].bound == 0.0 for name in names)
    mends_nan = any(REWRITES[name].mends_nan for name in names)
    kept = [REWRITES[name] for name in names if REWRITES[name].kind == "accuracy"]
    lost = max((one.lost_db for one in kept), default=proof.LOST_DB)
    for function in sorted(before.spec.mlProgram.functions):
        try:
            problem = prove_whole(before, after, function, is_exact, lost, mends_nan)
        except PackageError as error:
            return WholeProof(f"not proven as a whole: {error}")
        if problem is not None:
            return WholeProof(problem, problem)
    return WholeProof("the whole program computes the same on random inputs")


def find_first(count: int, holds: Callable[[int], bool]) -> int:
    """Return a number of changes from 1 to `count` with which the program fails and with one fewer does not, by halving.

    With none it holds, with all it fails.
    """
    good, bad = 0, count
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return bad


def prove_whole(
    before: Package, after: Package, function: str, is_exact: bool, lost: float = proof.LOST_DB, mends_nan: bool = False
) -> str | None:
    """Run a function of the original and of the rewritten package on random inputs. Return the problem, or None.

    `lost`: the dB that the PSNR in fp16 may fall. Raises errors.PackageError if it cannot be run here, or is too large.
    """
    operations = view_program(before, function).block.operations
    if before.measure_blobs(value for proto in operations for value in blob_values(proto)) > MOST_WHOLE_BYTES:
        raise PackageError("too large to be run as a whole")
    generator = np.random.default_rng(proof.SEED)

    def compute() -> dict[str, tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
        values = draw_function_inputs(before, function, generator)
        one, other = ({mode: run_function(part, function, values, mode) for mode in MODES} for part in (before, after))
        return {mode: (one[mode], other[mode]) for mode in MODES}

    made = [compute()]
    problem = _find_problem(made, is_exact, mends_nan, lost)
    draws, chance = proof.plan_draws([value.shape for value in made[0]["fp32"][0].values() if value.dtype.kind == "f"])
    is_finite = all(np.isfinite(value).all() for value in made[0]["fp16"][1].values())
    if problem is None or draws == 1 or not is_finite:
        return problem
    return _find_problem([*made, *(compute() for _ in range(draws - 1))], is_exact, mends_nan, lost + chance)


def run_function(
    package: Package, name: str, given: Mapping[str, np.ndarray], mode: str, more: Iterable[str] = ()
) -> dict[str, np.ndarray]:
    """Return a function's outputs and some `more` values, and its states when it is done."""
    program = view_program(package, name)
    inputs = {value.name: value.type for value in program.function.inputs}
    return run_ops(package, program.opset, program.block.operations, [*program.outputs, *more], inputs, given, mode)


def draw_function_inputs(
    package: Package, function: str, generator: np.random.Generator, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> dict[str, np.ndarray]:
    """Return random inputs of a function, by default of its default shape: normal numbers, 0 or 1 for whole numbers and booleans."""
    values = {}
    for name, tensor in programs.inputs_at(package, function, dict(shapes or {}))[0].items():
        dtype, shape = NUMPY[tensor.dtype], tuple(size or 1 for size in tensor.shape)
        drawn = generator.standard_normal(shape) if dtype.kind == "f" else generator.integers(0, 2, shape)
        values[name] = np.asarray(drawn).astype(dtype)
    return values


def _find_problem(
    made: Sequence[Mapping[str, tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]], is_exact: bool, mends_nan: bool,
    lost: float,
) -> str | None:  # fmt: skip
    """Return what is wrong with the outputs of a whole program over all draws, or None."""
    for name in made[0]["fp32"][0]:
        (value, other), (half, fixed) = (
            [np.stack([one[mode][side][name] for one in made]) for side in (0, 1)] for mode in ("fp32", "fp16")
        )
        value = proof.mend_nan(value, other) if mends_nan else value
        if is_exact and proof.largest_difference(value, other) > 0.0:
            return f"the whole program's output {name} differs in fp32"
        if value.dtype.kind != "f":
            continue
        if (reached := proof.compare_db(value, other)) < _WHOLE_DB:
            return f"the whole program's output {name} has {reached:.1f} dB in fp32"
        old, new = proof.compare_db(value, half), proof.compare_db(value, fixed)
        if new < min(old - lost, proof.ENOUGH_DB):
            return f"the whole program's output {name} loses accuracy in fp16: {old:.1f} -> {new:.1f} dB"
    return None
