"""Tensors in mapped files: when memory is short the system writes them out and takes it back, in place of killing the process."""

import mmap
import tempfile
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from ane_sweep.mil.weights import give_back

LARGE = 1 << 30  # bytes that stay in memory
_FILES: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()  # by the address of their first number


class TensorFiles:
    """The real tensors of one module: the first LARGE bytes of them in memory, the others in files of the folder, if one is given."""

    def __init__(self, folder: Path | None):
        self.folder, self.size = folder, 0

    def keep(self, tensor: Tensor) -> Tensor:
        """Return the tensor itself (also on a full disk), or an equal one with the same strides in a file, which goes with it."""
        self.size += tensor.nbytes
        span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
        is_dense = tensor.numel() == span > 0  # else it has gaps, or one number is several of its own
        if self.folder is None or self.size <= LARGE or not is_dense:
            return tensor
        numbers = tensor.detach().as_strided((span,), (1,))
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:
                # writing into the mapping would end in a signal on a full disk
                file.write(numbers.view(torch.uint8).numpy().data)
                file.flush()
                memory = mmap.mmap(file.fileno(), tensor.nbytes)
        except OSError:
            return tensor
        made = (
            torch.from_numpy(np.frombuffer(memory, np.uint8))
            .view(tensor.dtype)
            .as_strided(tensor.shape, tensor.stride())
        )
        _FILES[made.data_ptr()] = memory
        return made


def release_pages(address: int | None = None) -> None:
    """Give the pages of the file at an address back to the system, or those of all files. They stay in its cache while that has room."""
    for memory in _FILES.values() if address is None else filter(None, [_FILES.get(address)]):
        give_back(memory)
