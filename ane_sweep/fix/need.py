"""Whether a program needs an accuracy rewrite: its places, run on the values that the program itself computes there.

A place is proven on values of any size; a rewrite that costs time is worth it only where the program comes near the values
that fp16 loses.
"""

from collections.abc import Sequence

import numpy as np

from ane_sweep.errors import PackageError
from ane_sweep.fix import proof, whole
from ane_sweep.fix.proof import Region
from ane_sweep.mil.package import Package
from ane_sweep.mil.weights import blob_values

HEADROOM = 8.0  # random inputs are tamer than real ones: a place is also run on so many times the values seen
GOOD_DB = 60.0  # an fp16 place of single roundings has 65 to 80 dB: beyond this a program needs nothing
MOST_BYTES = 4 << 30  # of the weights of a program that is run once in fp32
_MOST_VALUES = 256 << 20  # bytes of values that are kept from that run


def find_need(package: Package, changed: Package, function: str, regions: Sequence[Region]) -> str | None:
    """Return the gain at the first place that the program needs, such as "38.2 -> 71.0 dB", or None if it needs none.

    `regions` are the places of one function, as it is in `package` and becomes in `changed`. Each is run in the Neural
    Engine's arithmetic, before and after, on the values that the program computes there from random inputs, and with each
    of its inputs in turn HEADROOM times as large. Raises errors.PackageError if the program is too large or cannot be run,
    or if no place is found that needs it and the values of some are unknown.
    """
    seen = _observe(package, function, regions)
    opset = package.spec.mlProgram.functions[function].opset
    observed = [region for region in regions if all(name in seen for name in region.inputs)]
    for region in observed:
        values = {name: seen[name] for name in region.inputs}
        for name in (None, *(name for name in values if _is_data(values[name]))):
            given = values if name is None else values | {name: values[name] * values[name].dtype.type(HEADROOM)}
            exact = region.run(changed, opset, 0, given, "fp32")
            before, after = (
                min(map(proof.compare_db, exact, region.run(changed, opset, side, given, "ane"))) for side in (0, 1)
            )
            if before < GOOD_DB and after > before + proof.LOST_DB:
                return f"{before:.1f} -> {after:.1f} dB" + (f" on {HEADROOM:g} times the values seen" if name else "")
    if missed := len(regions) - len(observed):
        raise PackageError(f"the values at {missed} of {len(regions)} places are not known")
    return None


def _observe(package: Package, function: str, regions: Sequence[Region]) -> dict[str, np.ndarray]:
    """Return the values that the regions read, as one run of the function in fp32 computes them."""
    proto = package.spec.mlProgram.functions[function]
    block = proto.block_specializations[proto.opset]
    if package.measure_blobs(value for op in block.operations for value in blob_values(op)) > MOST_BYTES:
        raise PackageError("the program is too large to be run here")
    given = whole.draw_function_inputs(package, function, np.random.default_rng(proof.SEED))
    made = {value.name for op in block.operations for value in op.outputs}
    names = dict.fromkeys(name for region in regions for name in region.inputs if name in made)
    found = whole.run_function(package, function, given, "fp32", names)
    kept, left = {}, _MOST_VALUES
    for name in [*given, *names]:
        value = given[name] if name in given else found[name]
        if value.nbytes <= left:
            left -= value.nbytes
            kept[name] = value
    return kept


def _is_data(value: np.ndarray) -> bool:
    """Return True for floats that may be larger with other inputs, False for whole numbers and for masks of 0 and 1."""
    return value.dtype.kind == "f" and not np.isin(value, (0, 1)).all()
