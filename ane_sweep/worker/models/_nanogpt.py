"""Translation of nanoGPT's state to that of Hugging Face's GPT-2.

The names are the same, but linear layers keep (out, in) and GPT-2's keep (in, out), compiled modules put `_orig_mod.`
before every name, and with bias=False there are no biases: this module uses zeros, which give the same function.
"""

from collections.abc import Iterator
from pathlib import Path

import torch

from ane_sweep.worker.models._types import Tensors

_COMPILED = "_orig_mod."
_LINEAR = tuple(f"{name}.weight" for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"))
_BIASED = (*_LINEAR, "ln_1.weight", "ln_2.weight", "ln_f.weight")


class NanogptTensors:
    """The tensors of a nanoGPT checkpoint (`inner`) under GPT-2's names and in its shapes."""

    def __init__(self, inner: Tensors):
        self.folder: Path = inner.folder
        self._inner = inner
        self._names = {name.removeprefix(_COMPILED): name for name in inner.shapes}
        self.shapes = {
            name: inner.shapes[own][:: -1 if name.endswith(_LINEAR) else 1] for name, own in self._names.items()
        }
        biased = any(name.endswith("c_attn.bias") for name in self.shapes)
        weights = [] if biased else [name for name in self.shapes if name.endswith(_BIASED)]
        self._zeros = {name.removesuffix("weight") + "bias": self.shapes[name][-1:] for name in weights}
        self.shapes |= self._zeros

    def tensors(self, names: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield (name, tensor) for each name."""
        yield from ((name, torch.zeros(self._zeros[name])) for name in names if name in self._zeros)
        back = {self._names[name]: name for name in names if name not in self._zeros}
        for own, tensor in self._inner.tensors(list(back)):
            yield back[own], tensor.t() if back[own].endswith(_LINEAR) else tensor
