"""A safetensors file, mapped read-only. safetensors maps it writable for torch, so that all of it counts against a memory limit."""

import math
import mmap
import warnings
from pathlib import Path

import torch
from torch import Tensor

from ane_sweep.errors import WeightsError
from ane_sweep.mil import untrusted
from ane_sweep.mil.weights import give_back

_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "U16": torch.uint16, "U32": torch.uint32, "U64": torch.uint64,
}  # fmt: skip


class SafetensorsFile:
    """The tensors of a file by name. Raises WeightsError for a file that is truncated, inconsistent or of other dtypes.

    shapes   the shape of each
    """

    def __init__(self, path: Path):
        try:
            self.header = untrusted.read_safetensors_header(path)
            with path.open("rb") as file:
                self.memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise WeightsError(f"{path} is no whole safetensors file ({error}); fetch it again") from error
        self.shapes = {name: tuple(tensor["shape"]) for name, tensor in self.header.items()}
        self.start = len(self.memory) - max((one["data_offsets"][1] for one in self.header.values()), default=0)
        if other := sorted({one["dtype"] for one in self.header.values()} - _DTYPES.keys()):
            raise WeightsError(f"{path} holds {', '.join(other)}; it can be read with {', '.join(_DTYPES)}")

    def view(self, name: str) -> Tensor:
        """Return a tensor that lies in the mapped file: writing into it ends the process."""
        dtype, count = _DTYPES[self.header[name]["dtype"]], math.prod(self.shapes[name])
        if not count:
            return torch.empty(self.shapes[name], dtype=dtype)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given buffer is not writable")
            offset = self.start + self.header[name]["data_offsets"][0]
            return torch.frombuffer(self.memory, dtype=dtype, count=count, offset=offset).view(self.shapes[name])

    def release_pages(self) -> None:
        """Give what has been read back to the system."""
        give_back(self.memory)
