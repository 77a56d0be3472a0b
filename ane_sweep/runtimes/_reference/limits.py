"""Sizes and types that a program declares, checked before anything is reserved for them."""

import math
from typing import Any

from ane_sweep.errors import PackageError, UnsupportedOp
from ane_sweep.mil import graph
from ane_sweep.runtimes._reference.site import TORCH_DTYPES

MOST_BYTES = 1 << 40  # no machine that runs this holds more in one tensor
MOST_DIMENSIONS = 16


def check_sizes(block: Any, where: str) -> None:
    """Refuse declared tensors that cannot be (damage, or an attempt to make the reader reserve them), and those of
    types that are not executed here.
    """
    for proto in block.operations:
        for value in proto.outputs:
            kind = graph.tensor_type(value.type)
            if kind is None:
                continue
            if kind.dtype not in TORCH_DTYPES and kind.dtype != "string":
                raise UnsupportedOp(
                    f"{where}: the reference runtime does not compute with {kind.dtype} values (`{value.name}`, made by "
                    f"`{proto.type}`); known: {', '.join(TORCH_DTYPES)}"
                )
            lengths = [length for length in kind.shape if length is not None]
            if len(kind.shape) > MOST_DIMENSIONS or math.prod(lengths) > MOST_BYTES:
                raise PackageError(
                    f"{where}: `{value.name}` is declared as {kind.dtype} {list(kind.shape)}, which no machine can "
                    "hold; the file is damaged"
                )
        for inner in proto.blocks:
            check_sizes(inner, where)
