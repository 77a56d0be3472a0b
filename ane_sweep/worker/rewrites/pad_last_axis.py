"""pad_last_axis: the sequence is padded inside the program to a multiple, as the Neural Engine packs the last axis."""

import torch.nn.functional as F
from torch import Tensor, nn

from ane_sweep.bridge.rewrites import Rewrite, round_up
from ane_sweep.worker.models import _ane, _hf
from ane_sweep.worker.models._cache import Memory
from ane_sweep.worker.models._ports import Port, Ports

REWRITE = Rewrite(
    order=40,
    help="sequence padded inside the program to a multiple of this; 0: not",
    plain=0,
    choices=(0, 64),
    changes="module",
    models="texts",
    pads=True,
)


class Padded(nn.Module):
    """A module whose `inner` gets `more` additional positions, which no real token sees: they are masked, or come later."""

    def __init__(self, inner: nn.Module, ports: Ports, more: int):
        super().__init__()
        self.inner, self.ports, self.more = inner, ports, more

    def forward(self, *inputs: Tensor, **memory: Memory) -> tuple[Tensor, ...]:
        made = self.inner(*map(self._pad, self.ports.inputs, inputs), **memory)
        lengths = {port.shape[1] for port in self.ports.inputs[:1]}
        return tuple(
            value[:, : port.shape[1]] if len(port.shape) == 3 and port.shape[1] in lengths else value
            for port, value in zip(self.ports.outputs, made)
        )

    def _pad(self, port: Port, value: Tensor) -> Tensor:
        if port.name == "causal_mask":
            return F.pad(value, (0, self.more, 0, self.more), value=_hf.MASKED)
        if port.name in ("attention_mask", "key_mask"):
            return F.pad(value, (0, self.more))
        return _ane.pad_tokens(value, self.more)


def rewrite(module: nn.Module, ports: Ports, value: int) -> nn.Module:
    seq_len = ports.inputs[0].shape[1]
    more = round_up(seq_len, value) - seq_len
    return Padded(module, ports, more) if more else module
