"""Check the sizes and types that a program declares before memory is reserved for them."""

import math
from collections.abc import Sequence

import torch

from ane_sweep import memory_limits
from ane_sweep.errors import PackageError, UnsupportedOp
from ane_sweep.mil import element_types, graph
from ane_sweep.mil.proto import MIL_pb2
from ane_sweep.reference.site import TORCH_DTYPES

MOST_DIMENSIONS = 16
most_bytes = memory_limits.most_bytes


def check_sizes(block: MIL_pb2.Block, where: str) -> None:
    """Refuse declared tensors that are too large, and types that this runtime does not execute.

    Too large ones come from damage, or from an attack on the reader's memory. Raises errors.PackageError,
    errors.UnsupportedOp.
    """
    graph.check_sizes(block, where)
    _check(block, where, most_bytes())


def _check(block: MIL_pb2.Block, where: str, most: int) -> None:
    for proto in block.operations:
        for value in proto.outputs:
            kind = element_types.tensor_type(value.type)
            if kind is None:
                continue
            if kind.dtype not in TORCH_DTYPES and kind.dtype != "string":
                raise UnsupportedOp(
                    f"{where}: the reference runtime does not compute with {kind.dtype} values (`{value.name}`, made by "
                    f"`{proto.type}`); known: {', '.join(TORCH_DTYPES)}"
                )
            if len(kind.shape) > MOST_DIMENSIONS:
                raise PackageError(f"{where}: `{value.name}` has {len(kind.shape)} dimensions; the file is damaged")
            if kind.byte_count > most:
                raise _too_large(f"{where}: `{value.name}`, made by `{proto.type}`,", kind.shape, kind.byte_count, most)
        for inner in proto.blocks:
            _check(inner, where, most)


def check_shape(shape: Sequence[int], dtype: torch.dtype, where: str) -> None:
    """Refuse a value that is too large and whose size becomes known only at run time, before it is made. Raises errors.PackageError."""
    size, most = math.prod(shape) * dtype.itemsize, most_bytes()
    if size > most:
        raise _too_large(where, shape, size, most)


def _too_large(what: str, shape: Sequence[int | None], size: int, most: int) -> PackageError:
    return PackageError(
        f"{what} of shape {list(shape)} would take {size / 1e9:.3g} GB, and this process may have {most / 1e9:.3g}; "
        "is the file damaged?"
    )
