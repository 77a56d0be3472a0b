"""Weights from file to file: coremltools' compression, weight by weight, none of them all in memory.

coremltools reads every weight of a program into memory, keeps what it makes of each beside it, and copies that again to
write it. While `streamed()` is open it works on the same numbers by the same functions, but weights are views into the
package's own file, what was made of one waits in a scratch file until it is written, and pages of both are given back
after every weight. Scales are computed in slabs on all cores; a slab's numbers depend on nothing outside it. A test
compares the bytes with those of coremltools left alone.

An attribute that another coremltools lacks is left alone: then it takes more memory, and does nothing else.
"""

import importlib
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

from ane_sweep.mil.weights import BlobFile

LEAST_BYTES = 1 << 16  # smaller arrays stay in memory
SLAB_NUMBERS = 1 << 20
_DTYPES = {"fp16": np.float16, "fp32": np.float32}


class Scratch:
    """Arrays that wait in a file, and files that weights are read from."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the last view into it)
        self._end = 0
        self._maps: list[mmap.mmap] = []
        self._sources: dict[str, BlobFile] = {}

    def keep(self, array: np.ndarray) -> np.ndarray:
        """The same array, in the file; read-only."""
        if array.nbytes < LEAST_BYTES or _is_mapped(array):
            return array
        for piece in _pieces(np.ascontiguousarray(array)):
            self._file.write(piece)
        self._file.flush()
        held = mmap.mmap(self._file.fileno(), array.nbytes, prot=mmap.PROT_READ, offset=self._end)
        self._maps.append(held)
        self._end += -(-array.nbytes // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        self._file.seek(self._end)
        return np.frombuffer(held, array.dtype).reshape(array.shape)

    def weight(self, path: str, offset: int, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
        """A weight as it lies in a weight file."""
        source = self._sources.get(path)
        if source is None:
            source = self._sources[path] = BlobFile(Path(path))
        return source.payload(offset).view(dtype).reshape(shape)

    def give_back(self) -> None:
        """The pages that reading has brought in; what they hold is still in the files."""
        for held in (*self._maps, *(source.bytes._mmap for source in self._sources.values())):  # type: ignore[attr-defined]
            if hasattr(mmap, "MADV_DONTNEED"):
                held.madvise(mmap.MADV_DONTNEED)


def _is_mapped(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array.obj if isinstance(array, memoryview) else array, mmap.mmap)


def _pieces(array: np.ndarray) -> Iterator[memoryview]:
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, flat.size, 8 << 20):
        yield flat[start : start + (8 << 20)].data


@contextmanager
def stream_weights() -> Iterator[Scratch]:
    """Not for threads: one compression a process, as workers do."""
    scratch, undo = Scratch(), []
    try:
        for module, owner, name, make in PATCHES:
            found: Any = importlib.import_module(module)
            found = getattr(found, owner, None) if owner else found
            original = vars(found).get(name) if found is not None else None
            if original is not None:
                undo.append((found, name, original))
                setattr(found, name, make(original, scratch))
        yield scratch
    finally:
        for found, name, original in reversed(undo):
            setattr(found, name, original)


def _make_loader(original: Any, scratch: Scratch) -> Callable[..., Any]:
    # coremltools reads through three copies: the reader's, bytes, an array.
    def load_value(context: Any, spec: Any) -> Any:
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


def _make_transform(original: Any, scratch: Scratch) -> Callable[..., None]:
    def transform_op(self: Any, op: Any) -> None:
        original(self, op)
        scratch.give_back()

    return transform_op


def _make_constant(original: Any, scratch: Scratch) -> Any:
    def add_const(cls: Any, val: Any, name: str, before_op: Any) -> Any:
        return original.__func__(cls, scratch.keep(val) if isinstance(val, np.ndarray) else val, name, before_op)

    return classmethod(add_const)


def _make_sparse(original: Any, scratch: Scratch) -> Any:
    # Its own makes eight bytes of each number, twice, to pack one bit.
    from coremltools.optimize import _utils

    def produce(val: np.ndarray) -> Any:
        flat, step = val.reshape(-1), SLAB_NUMBERS // 8 * 8
        parts = [flat[start : start + step] for start in range(0, flat.size, step)]
        there = [part != 0 for part in parts]
        return _utils.SparseParamsIos16(
            nonzero_data=np.concatenate([part[mask] for part, mask in zip(parts, there)]),
            mask=np.concatenate([np.packbits(mask, bitorder="little") for mask in there]),
            shape=val.shape,
        )

    return staticmethod(produce)


def _make_slabs(original: Any, scratch: Scratch) -> Callable[..., Any]:
    def compute_qparams_by_dtype(weight: np.ndarray, dtype: Any, mode: str, block_sizes: list[int]) -> Any:
        """(numbers, scales, offsets or None), cut where no block is."""
        axis = next((axis for axis, size in enumerate(block_sizes) if size > 0), None)
        if axis is None or weight.shape[axis] % block_sizes[axis] or weight.size <= SLAB_NUMBERS:
            return original(weight, dtype, mode, block_sizes)
        blocks = weight.shape[axis] // block_sizes[axis]
        count = min(blocks, -(-weight.size // SLAB_NUMBERS))
        edges = [blocks * index // count * block_sizes[axis] for index in range(count + 1)]
        cuts = [(slice(None),) * axis + (slice(start, stop),) for start, stop in pairwise(edges)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            parts = list(pool.map(lambda cut: original(weight[cut], dtype, mode, block_sizes), cuts))
        if any(part is None for part in parts):
            return None
        data, scales, offsets = zip(*parts)
        joined = None if offsets[0] is None else np.concatenate(offsets, axis)
        return _join(data, axis), np.concatenate(scales, axis), joined

    return compute_qparams_by_dtype


def _join(parts: tuple[np.ndarray, ...], axis: int) -> np.ndarray:
    """np.concatenate, which would forget how many bits of each byte count."""
    return np.concatenate(parts, axis).view(parts[0].dtype)


def _make_writer(original: Any, scratch: Scratch) -> Callable[..., int]:
    # It copies each weight three times on its way: flattened, as bytes, in order.
    def offset_by_writing(var: Any, writer: Any) -> int:
        value = var.val
        if value.dtype == np.float16:
            offset = writer.write_fp16_data(np.ascontiguousarray(value).reshape(-1).view(np.uint16))
        else:
            offset = original(var, writer)
        if value.nbytes >= LEAST_BYTES:
            scratch.give_back()
        return int(offset)

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
