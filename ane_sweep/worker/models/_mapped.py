"""Tensors in mapped files: when memory is short the system writes them out and takes it back, in place of killing the process."""

import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ane_sweep.mil.weights import give_back
from ane_sweep.worker.models._safetensors import SafetensorsFile

LARGE = 1 << 30  # bytes that stay in memory
_PART = 1 << 22  # bytes of a new tensor that `BuildInFiles` looks at
_MAKERS = [  # of new tensors, which share no memory
    getattr(torch.ops.aten, name) for name in
    ("empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "full", "rand", "randn", "clone", "_to_copy")
]  # fmt: skip
_FILES: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()  # by the address of their first number
_FORKS: list[None] = []  # one entry for each fork of this process
os.register_at_fork(after_in_parent=lambda: _FORKS.append(None))


class TensorFiles:
    """The real tensors of one module: the first LARGE bytes of them in memory, the others in files of the folder, if one is given.

    size   bytes that count as in memory already
    """

    def __init__(self, folder: Path | None, size: int = 0):
        self.folder, self.size = folder, size

    def keep(self, tensor: Tensor, is_filled: bool = True) -> Tensor:
        """Return the tensor itself (also on a full disk), or an equal one with the same strides in a file, which goes with it.

        is_filled   False for a tensor whose numbers are still to be written, into a file whose blocks are taken
        """
        self.size += tensor.nbytes
        span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
        is_dense = tensor.numel() == span > 0  # else it has gaps, or one number is several of its own
        if self.folder is None or self.size <= LARGE or not is_dense:
            return tensor
        numbers = tensor.detach().as_strided((span,), (1,))
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:
                # writing into a mapping without blocks would end in a signal on a full disk
                if not is_filled and hasattr(os, "posix_fallocate"):  # Linux
                    os.posix_fallocate(file.fileno(), 0, tensor.nbytes)
                else:
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


class BuildInFiles(TorchDispatchMode):
    """A context in which the large tensors that code makes lie in files of this process's TMPDIR, as TensorFiles has it.

    Such a tensor cannot be resized, and a forked process writes into it, not into a copy.

    source   a file that tensors are copied from: what has been copied is given back to the system
    """

    def __init__(self, size: int = 0, source: SafetensorsFile | None = None):
        super().__init__()
        self.files, self.source = TensorFiles(Path(tempfile.gettempdir()), size), source
        self.last, self.forks = 0, len(_FORKS)  # the address of the last tensor in a file; forks before

    @property
    def was_forked(self) -> bool:
        """True if a process was forked that may have written into tensors in files."""
        return self.last > 0 and len(_FORKS) > self.forks

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[Tensor, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        made: object = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.copy_.default and self.source is not None:
            release_pages(args[0].data_ptr())
            self.source.release_pages()
        if func.overloadpacket not in _MAKERS or type(made) is not Tensor or made.device.type != "cpu":
            return made
        if made.layout != torch.strided or made.is_quantized or made.is_nested or made.nbytes < _PART:
            return made
        release_pages(self.last)  # whoever asks for another has filled the one before
        kept = self.files.keep(made, not func.overloadpacket.__name__.startswith("empty"))
        self.last = kept.data_ptr() if kept is not made else self.last
        return kept


def release_pages(address: int | None = None) -> None:
    """Give the pages of the file at an address back to the system, or those of all files. They stay in its cache while that has room."""
    for memory in _FILES.values() if address is None else filter(None, [_FILES.get(address)]):
        give_back(memory)


@contextmanager
def releasing_pages(module: nn.Module) -> Iterator[None]:
    """Give the pages of a layer's numbers in files back after each of its calls, in this context."""

    def release(layer: nn.Module, *_: object) -> None:
        for value in layer.parameters(recurse=False):
            release_pages(value.data_ptr())

    layers = [one for one in module.modules() if any(p.data_ptr() in _FILES for p in one.parameters(recurse=False))]
    hooks = [layer.register_forward_hook(release) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
