"""Stacks of arrays in .npz files, written and read one input at a time, as a language model's logits need much memory."""

import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ane_sweep.errors import StageError


class StackWriter:
    """A writer of (count, ...) arrays by name to one .npz, plane by plane; memory holds one plane.

    with StackWriter(out / "outputs.npz", count=2) as stack:
        stack.put(0, {"logits": first})
    """

    def __init__(self, path: Path, count: int):
        self.path, self.count = path, count
        self._parts: dict[str, BinaryIO] = {}

    def put(self, index: int, arrays: dict[str, np.ndarray]) -> None:
        """Append plane `index`, in order, of every array; shapes and dtypes are those of the first call.

        Plain writes, not a map of the file: on a full disk a map ends the process with SIGBUS, a write says so.
        """
        for name, array in arrays.items():
            array = np.ascontiguousarray(array)
            if index == 0:
                self._parts[name] = self._part(name).open("wb")
                header = {"descr": array.dtype.str, "fortran_order": False, "shape": (self.count, *array.shape)}
                write_header: Callable[[BinaryIO, dict[str, object]], None] = np.lib.format.write_array_header_1_0
                write_header(self._parts[name], header)
            self._parts[name].write(array.data)

    def __enter__(self) -> "StackWriter":
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        names = list(self._parts)
        for part in self._parts.values():
            part.close()
        if failure is None:
            with zipfile.ZipFile(self.path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
                for name in names:
                    # A fixed date: the same arrays give the same file.
                    info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
                    with self._part(name).open("rb") as part, archive.open(info, "w", force_zip64=True) as member:
                        while block := part.read(1 << 22):
                            member.write(block)
        for name in names:
            self._part(name).unlink()

    def _part(self, name: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{name}.part")


class Inputs:
    """The inputs in a reference's inputs.npz or calibration.npz; item i is a copy of the i-th, ready to predict.

    valid   (N, S) bool: the positions that hold real text

    Raises StageError if the file holds no inputs.
    """

    def __init__(self, reference: Path, name: str = "inputs.npz") -> None:
        path = reference / name
        self._stacks = map_arrays(path)
        self.valid = self._stacks.pop("valid")
        if not self._stacks or not len(self):
            raise StageError(f"{path}: holds no inputs; delete the folder and run again")

    def __len__(self) -> int:
        return len(self.valid)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return {name: np.array(stack[index]) for name, stack in self._stacks.items()}


def to_array(value: object) -> np.ndarray | None:
    """Return an output as numbers (pixel levels, probabilities in the order of their labels), or None for a text."""
    if isinstance(value, dict):
        return np.array([value[key] for key in sorted(value, key=str)], np.float32)
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        return None
    return array.astype(np.float32 if array.dtype.kind == "f" or hasattr(value, "mode") else np.int32)


def pad_rows(array: np.ndarray, rows: int) -> np.ndarray:
    """Pad an array with rows of zeros, as non-maximum suppression returns a varying number of rows."""
    if not array.ndim or len(array) >= rows:
        return array
    return np.concatenate([array, np.zeros((rows - len(array), *array.shape[1:]), array.dtype)])


def list_further_shapes(reference: Path) -> list[str]:
    """List the shapes besides the default for which a reference has data: `1x3x256x256`, in inputs@1x3x256x256.npz."""
    return sorted(path.stem.partition("@")[2] for path in reference.glob("inputs@*.npz"))


def map_arrays(path: Path) -> dict[str, np.ndarray]:
    """Map all arrays of an .npz file by name, each like `map_array`."""
    return {name: map_array(path, name) for name in list_names(path)}


def list_names(path: Path) -> list[str]:
    """List the names of the arrays in an .npz."""
    with zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def map_array(path: Path, name: str) -> np.ndarray:
    """Return one array of an .npz as a read-only map of the file, or as a copy if it is compressed."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED:
        with np.load(path) as arrays:
            array: np.ndarray = arrays[name]
            return array
    with path.open("rb") as file:
        # The local header repeats name and extra field with lengths of its own (PKWARE APPNOTE 4.3.7).
        file.seek(info.header_offset + 26)
        name_length, extra_length = struct.unpack("<HH", file.read(4))
        file.seek(name_length + extra_length, 1)
        formats: Any = np.lib.format  # its functions carry no types
        version = formats.read_magic(file)
        read_header = formats.read_array_header_1_0 if version == (1, 0) else formats.read_array_header_2_0
        shape, fortran, dtype = read_header(file)
        offset = file.tell()
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")
