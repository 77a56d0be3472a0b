"""Compression by coremltools weight by weight, from file to file, instead of with all weights in memory.

coremltools reads every weight of a program into memory, keeps its compressed form too, and copies that again to write it.
Inside `stream_weights()` it works on the same numbers by the same functions, but weights are views into the package's own
file, compressed forms wait in a scratch file until they are written, and pages of both are released after every weight.
Scales are computed in slabs on all cores; a slab's numbers depend on nothing outside it. A test compares the bytes with
those of unpatched coremltools.

An attribute that another coremltools lacks is not patched: then compression only takes more memory.
"""

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ane_sweep.mil.proto import MIL_pb2
from ane_sweep.mil.weights import BlobFile, give_back
from ane_sweep.worker.patches import find_changes, replace_attributes

LEAST_BYTES = 1 << 16  # smaller arrays stay in memory
SLAB_NUMBERS = 1 << 20
_DTYPES = {"fp16": np.float16, "fp32": np.float32}


class Scratch:
    """A scratch file for arrays that wait to be written, and the files that weights are read from."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the last view into it)
        self._end = 0
        self._maps: list[mmap.mmap] = []
        self._sources: dict[str, BlobFile] = {}

    def keep(self, array: np.ndarray) -> np.ndarray:
        """Move an array to the file; return it as a read-only view."""
        if array.nbytes < LEAST_BYTES or _is_mapped(array):
            return array
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for start in range(0, flat.size, 8 << 20):
            self._file.write(flat[start : start + (8 << 20)].data)
        self._file.flush()
        held = mmap.mmap(self._file.fileno(), array.nbytes, prot=mmap.PROT_READ, offset=self._end)
        self._maps.append(held)
        self._end += -(-array.nbytes // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        self._file.seek(self._end)
        return np.frombuffer(held, array.dtype).reshape(array.shape)

    def weight(self, path: str, offset: int, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
        """Return a weight as a view into its weight file."""
        if path not in self._sources:
            self._sources[path] = BlobFile(Path(path))
        return self._sources[path].payload(offset).view(dtype).reshape(shape)

    def give_back(self) -> None:
        """Release the memory pages that reading has loaded; their content is still in the files."""
        for held in (*self._maps, *(getattr(source.bytes, "_mmap") for source in self._sources.values())):  # noqa: B009
            give_back(held)


def _is_mapped(array: object) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array.obj if isinstance(array, memoryview) else array, mmap.mmap)


@contextmanager
def stream_weights() -> Iterator[Scratch]:
    """Patch coremltools inside this context. Not thread-safe: a process compresses one program at a time."""
    scratch = Scratch()
    with replace_attributes(find_changes(PATCHES, scratch)):
        yield scratch


def _make_loader(original: Callable[..., object], scratch: Scratch) -> object:
    # coremltools reads through three copies: the reader's, bytes, an array.
    def load_value(context: Any, spec: MIL_pb2.Value) -> object:
        if spec.WhichOneof("value") == "blobFileValue":
            from coremltools.converters.mil.frontend.milproto.helper import proto_to_types
            from coremltools.converters.mil.mil import types

            kind = proto_to_types(spec.type)
            dtype = _DTYPES.get(types.builtin_to_string(kind.get_primitive())) if types.is_tensor(kind) else None
            if dtype is not None:
                where = spec.blobFileValue
                path = os.path.join(context.weights_dir, where.fileName.split("/")[-1])
                return scratch.weight(path, where.offset, dtype, kind.get_shape())
        return original(context, spec)

    return load_value


def _make_transform(original: Callable[..., object], scratch: Scratch) -> object:
    def transform_op(self: object, op: object) -> None:
        original(self, op)
        scratch.give_back()

    return transform_op


def _make_constant(original: Any, scratch: Scratch) -> object:
    def add_const(cls: object, val: object, name: str, before_op: object) -> object:
        return original.__func__(cls, scratch.keep(val) if isinstance(val, np.ndarray) else val, name, before_op)

    return classmethod(add_const)


def _make_sparse(original: object, scratch: Scratch) -> object:
    # Its own makes eight bytes of each number, twice, to pack one bit.
    from coremltools.optimize import _utils

    def produce(val: np.ndarray) -> object:
        flat, step = val.reshape(-1), SLAB_NUMBERS // 8 * 8
        parts = [flat[start : start + step] for start in range(0, flat.size, step)]
        there = [part != 0 for part in parts]
        return _utils.SparseParamsIos16(
            nonzero_data=np.concatenate([part[mask] for part, mask in zip(parts, there)]),
            mask=np.concatenate([np.packbits(mask, bitorder="little") for mask in there]),
            shape=val.shape,
        )

    return staticmethod(produce)


Parameters = tuple[np.ndarray, np.ndarray, np.ndarray | None]  # numbers, scales, offsets


def _make_slabs(original: Callable[..., Parameters | None], scratch: Scratch) -> object:
    def compute_qparams_by_dtype(
        weight: np.ndarray, dtype: object, mode: str, block_sizes: list[int]
    ) -> Parameters | None:
        """Return (numbers, scales, offsets or None), computed in slabs that cut no block."""
        axis = next((axis for axis, size in enumerate(block_sizes) if size > 0), None)
        if axis is None or weight.shape[axis] % block_sizes[axis] or weight.size <= SLAB_NUMBERS:
            return original(weight, dtype, mode, block_sizes)
        blocks = weight.shape[axis] // block_sizes[axis]
        count = min(blocks, -(-weight.size // SLAB_NUMBERS))
        edges = [blocks * index // count * block_sizes[axis] for index in range(count + 1)]
        cuts = [(slice(None),) * axis + (slice(start, stop),) for start, stop in pairwise(edges)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(lambda cut: original(weight[cut], dtype, mode, block_sizes), cuts))
        parts = [part for part in results if part is not None]
        if len(parts) < len(results):
            return None
        numbers, scales = (np.concatenate([part[which] for part in parts], axis) for which in (0, 1))
        offsets = [part[2] for part in parts if part[2] is not None]
        # np.concatenate drops the dtype's metadata: how many bits of each byte count
        return numbers.view(parts[0][0].dtype), scales, np.concatenate(offsets, axis) if offsets else None

    return compute_qparams_by_dtype


def _make_writer(original: Callable[..., int], scratch: Scratch) -> object:
    # It copies each weight three times on its way: flattened, as bytes, in order.
    def offset_by_writing(var: Any, writer: Any) -> int:
        value = var.val
        if value.dtype == np.float16:
            offset: int = writer.write_fp16_data(np.ascontiguousarray(value).reshape(-1).view(np.uint16))
        else:
            offset = original(var, writer)
        if value.nbytes >= LEAST_BYTES:
            scratch.give_back()
        return offset

    return offset_by_writing


_PASSES = "coremltools.optimize.coreml._quantization_passes"
_LOAD = "coremltools.converters.mil.frontend.milproto.load"
PATCHES = (
    (_LOAD, "", "_load_value", _make_loader),
    (_PASSES, "prune_weights", "transform_op", _make_transform),
    (_PASSES, "palettize_weights", "transform_op", _make_transform),
    (_PASSES, "linear_quantize_weights", "transform_op", _make_transform),
    ("coremltools.converters.mil.mil.builder", "Builder", "_add_const", _make_constant),
    (_PASSES, "prune_weights", "_produce_sparse_param", _make_sparse),
    ("coremltools.optimize._utils", "", "compute_qparams_by_dtype", _make_slabs),
    ("coremltools.converters.mil.backend.mil.helper", "", "_get_offset_by_writing_data", _make_writer),
)
