"""Read weight.bin by mapping it, and write it by streaming.

Layout (coremltools 9.0, mlmodel/src/MILBlob/Blob/StorageFormat.hpp), little-endian, everything on 64-byte boundaries:

    header   64 bytes   count u32, version u32 (= 2), zeros
    record   64 bytes   sentinel u32 (0xDEADBEEF), dtype u32, size u64, data offset u64, padding_bits u64, zeros
    data     `size` bytes at `data offset` (from the start of the file)

A program refers to the offset of the *record*. Element types below one byte are packed, lowest bits first;
`padding_bits` are the unused bits of the last byte, and matter for those types alone: coremltools up to 7.2
leaves uninitialised memory in these eight bytes.
"""

import contextlib
import mmap
import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ane_sweep.errors import PackageError
from ane_sweep.mil.proto import MIL_pb2

ALIGNMENT = 64
SENTINEL = 0xDEADBEEF
VERSION = 2
_HEADER = struct.Struct("<II")
_RECORD = struct.Struct("<IIQQQ")
_PIECE_BYTES = 64 << 10
_POINTER = b"version https://git-lfs.github.com/spec/"
_MOST_POINTER_BYTES = 1024

_NAMES = (
    "fp16", "fp32", "uint8", "int8", "bf16", "int16", "uint16", "int4", "uint1", "uint2", "uint4", "uint3", "uint6", "int32",
    "uint32", "fp8e4m3fn", "fp8e5m2",
)  # fmt: skip
# code in the file -> (name as in MIL, bits an element)
DTYPES = {code: (name, int(re.findall(r"\d+", name)[0])) for code, name in enumerate(_NAMES, 1)}


BlobKey = tuple[str, int]


def refuse_pointer(path: Path, size: int) -> None:
    """Raise PackageError if a file is only a git-lfs pointer (git-lfs.com, specification v1)."""
    if size > _MOST_POINTER_BYTES:
        return
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise PackageError(
                f"{path}: a git-lfs pointer of {size} bytes and not the file itself; get it with `git lfs pull`"
            )


@dataclass(frozen=True, slots=True)
class BlobRecord:
    """One payload of a weight file: `size` bytes at `data_offset`; `dtype` is the file's code for the element type."""

    dtype: int
    size: int
    data_offset: int
    padding_bits: int

    @property
    def dtype_name(self) -> str:
        return DTYPES[self.dtype][0]


def give_back(memory: mmap.mmap, *part: int) -> None:
    """Give the pages of a mapped file back to the system, all of them or those from a start for a length; its content stays."""
    if (advice := getattr(mmap, "MADV_DONTNEED", None)) is not None:
        memory.madvise(advice, *part)


class BlobFile:
    """A weight file, mapped read-only and never copied. Payloads keep the file mapped for as long as they live.

    Raises errors.PackageError for a file that is missing, truncated or of another layout.
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        try:
            self.size = self.path.stat().st_size
        except OSError as error:
            raise PackageError(
                f"{path}: the weight file cannot be read ({error.strerror}); convert the model again"
            ) from error
        refuse_pointer(self.path, self.size)
        if self.size < ALIGNMENT:
            raise PackageError(f"{path}: {self.size} bytes are too few for a weight file; convert the model again")
        self.bytes = np.memmap(self.path, dtype=np.uint8, mode="r")
        _, version = _HEADER.unpack_from(self.bytes.data, 0)
        if version != VERSION:
            raise PackageError(f"{path}: weight file version {version}, only version {VERSION} is known")
        self._records: dict[int, BlobRecord] = {}

    def record(self, offset: int) -> BlobRecord:
        """Return the record at `offset`, checked against the file's size."""
        if offset not in self._records:
            self._records[offset] = self._read_record(offset)
        return self._records[offset]

    def _read_record(self, offset: int) -> BlobRecord:
        def refuse(why: str) -> PackageError:
            return PackageError(
                f"{self.path}: weight record at byte {offset}: {why}; the file is damaged or not this program's, "
                "convert the model again"
            )

        if offset % ALIGNMENT or offset < ALIGNMENT or offset + ALIGNMENT > self.size:
            raise refuse(f"no record can start there in a file of {self.size} bytes")
        sentinel, dtype, size, data_offset, padding_bits = _RECORD.unpack_from(self.bytes.data, offset)
        if sentinel != SENTINEL:
            raise refuse("it lacks the mark that starts a record")
        if dtype not in DTYPES:
            raise refuse(f"its element type {dtype} is not known")
        if data_offset % ALIGNMENT or data_offset < offset + ALIGNMENT or data_offset + size > self.size:
            raise refuse(f"its data ({size} bytes at {data_offset}) is not inside the file of {self.size} bytes")
        if DTYPES[dtype][1] >= 8:
            padding_bits = 0
        if padding_bits > 7:
            raise refuse(f"{padding_bits} padding bits cannot be right")
        return BlobRecord(dtype, size, data_offset, padding_bits)

    def payload(self, offset: int) -> np.ndarray:
        """Return the bytes of the record at `offset`, uint8, a view into the file."""
        record = self.record(offset)
        return np.asarray(self.bytes)[record.data_offset : record.data_offset + record.size]

    def release(self, offset: int) -> None:
        """Give the pages of a record's payload back to the system, which reads them again when they are needed."""
        record = self.record(offset)
        start = record.data_offset // mmap.PAGESIZE * mmap.PAGESIZE
        held: mmap.mmap = getattr(self.bytes, "_mmap")  # noqa: B009 (numpy declares no such attribute)
        give_back(held, start, record.data_offset + record.size - start)

    def pieces(self, offset: int) -> Iterator[bytes]:
        """Yield the payload of the record at `offset` in pieces.

        Copying a file this way does not make its pages count as this process's memory.
        """
        record = self.record(offset)
        with open(self.path, "rb", buffering=0) as file:
            file.seek(record.data_offset)
            left = record.size
            while left:
                piece = file.read(min(left, _PIECE_BYTES))
                if not piece:
                    raise PackageError(f"{self.path}: ended while it was read; is something else writing it?")
                left -= len(piece)
                yield piece


class BlobWriter:
    """A writer of a weight file, record by record; a context manager. `add` returns the offset to put into the program."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.count = 0
        self._file: BinaryIO

    def __enter__(self) -> "BlobWriter":
        self._file = open(self.path, "wb", buffering=0)
        self._file.write(bytes(ALIGNMENT))
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        if kind is None:
            self._file.seek(0)
            self._file.write(_HEADER.pack(self.count, VERSION))
        self._file.close()

    def add(self, source: BlobFile, offset: int) -> int:
        """Copy a record of another file, payload untouched, and return its offset."""
        record = source.record(offset)
        return self.add_pieces(record.dtype, record.size, record.padding_bits, source.pieces(offset))

    def add_pieces(self, dtype: int, size: int, padding_bits: int, pieces: Iterator[bytes]) -> int:
        """Write a record of `size` bytes given in pieces and return its offset; `dtype` is a code of DTYPES."""
        start = self.reserve(dtype, size, padding_bits)
        written = self.fill(start, pieces)
        if written != size:
            raise ValueError(f"{self.path}: a record announced {size} bytes and brought {written}")
        return start

    def reserve(self, dtype: int, size: int, padding_bits: int) -> int:
        """Reserve a record of `size` bytes and return its offset; `fill` writes the bytes later, from any thread and in any order."""
        start = self._pad()
        self._file.write(_RECORD.pack(SENTINEL, dtype, size, start + ALIGNMENT, padding_bits).ljust(ALIGNMENT, b"\0"))
        self._file.seek(size, os.SEEK_CUR)
        self._pad()
        self.count += 1
        return start

    def fill(self, offset: int, pieces: Iterable[bytes | np.ndarray]) -> int:
        """Write the bytes of the record reserved at `offset` and return their number."""
        start = at = offset + ALIGNMENT
        for piece in pieces:
            view = memoryview(piece if isinstance(piece, bytes) else piece.data)
            while view:  # a write may take less than it was given
                written = os.pwrite(self._file.fileno(), view, at)
                at, view = at + written, view[written:]
        if hasattr(os, "posix_fadvise"):  # Linux then begins to write it to the disk, which a flush would wait for
            os.posix_fadvise(self._file.fileno(), start, at - start, os.POSIX_FADV_DONTNEED)
        return at - start

    def _pad(self) -> int:
        position = self._file.tell()
        padding = -position % ALIGNMENT
        if padding:
            self._file.write(bytes(padding))
        return position + padding


def blob_values(proto: MIL_pb2.Operation) -> Iterator[MIL_pb2.Value]:
    """Yield every Value message of an Operation whose data is in a weight file, nested blocks included, in stable order."""
    held, given = proto.attributes, proto.inputs
    values = [held[name] for name in sorted(held)]
    values += [one.value for name in sorted(given) for one in given[name].arguments if not one.name]
    yield from (value for value in values if value.HasField("blobFileValue"))
    for block in proto.blocks:
        for inner in block.operations:
            yield from blob_values(inner)


def blob_key(value: MIL_pb2.Value) -> BlobKey:
    """Return the weight file and the offset in it of a value's data."""
    return value.blobFileValue.fileName, value.blobFileValue.offset


def program_blob_values(program: MIL_pb2.Program) -> Iterator[MIL_pb2.Value]:
    """Yield every Value message of a program whose data is in a weight file, function by function."""
    for function in program.functions.values():
        for block in function.block_specializations.values():
            for proto in block.operations:
                yield from blob_values(proto)
