"""Check sizes and types that a program declares before anything is reserved for them."""

import math
import os
import resource
from collections.abc import Sequence

import torch

from ane_sweep.errors import PackageError, UnsupportedOp
from ane_sweep.mil import element_types, graph
from ane_sweep.mil.proto import MIL_pb2
from ane_sweep.reference.site import TORCH_DTYPES

MOST_DIMENSIONS = 16


def most_bytes() -> int:
    """Return the bytes that one value may take: this process's memory by the kernel's limit (a task has one) or the host's."""
    held, host = resource.getrlimit(resource.RLIMIT_DATA)[0], os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return host if held == resource.RLIM_INFINITY else min(held, host)


def check_sizes(block: MIL_pb2.Block, where: str) -> None:
    """Refuse declared tensors that cannot be held, and those of types that are not executed here.

    The former are damage, or an attempt to make the reader reserve them. Raises errors.PackageError, errors.UnsupportedOp.
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
    """Refuse a value whose size is only known while the program runs, before it is made. Raises errors.PackageError."""
    size, most = math.prod(shape) * dtype.itemsize, most_bytes()
    if size > most:
        raise _too_large(where, shape, size, most)


def _too_large(what: str, shape: Sequence[int | None], size: int, most: int) -> PackageError:
    return PackageError(
        f"{what} of shape {list(shape)} would take {size / 1e9:.3g} GB, and this process may have {most / 1e9:.3g}; "
        "is the file damaged?"
    )
