"""The key-value cache of the decoders: one package of two functions that share weights, and with cache=stateful states.

    prefill   the whole window at once: inputs and outputs are those of the program without a cache. Leaves every
              position's keys and values in the states. A prompt shorter than the window is padded on the right: decode
              overwrites what the padding left, and until then no token sees it.
    decode    one token. Inputs: input_ids (1,1) int32, or inputs_embeds (1,1,C); `cache_position` (1,) int32, where in
              the window it stands, 0 .. S-1; causal_mask (1,1,1,S) and key_mask (1,S) where the masks are inputs.
              Output: logits (1,1,V) of that token.
    states    key_cache_0, value_cache_0, key_cache_1 ...: two a layer, so that a program can be cut between layers.
              original: (1, key heads, L, head dim); split_einsum: (1, key heads * head dim, 1, L), channels first.
              L is seq_len, or what pad_last_axis makes of it. fp16 in an ML Program, which knows no other states.

With cache=explicit the same tensors are outputs `new_key_cache_0` ... of both functions, and inputs `key_cache_0` ... of
decode, which gives them back with the token's own put in by a select, as the programs did that came before states
(more-ane-transformers notes, 15 April 2023).

What depends on the position alone (learned and rotary positions, rows of the causal mask, windows, ALiBi) is a table
with a row for each position of the window, from which decode takes one: angles computed from a position in fp16 would
be off by radians from a few hundred tokens on.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ane_sweep.bridge.building import DECODE, NEW, PREFILL
from ane_sweep.worker.models import _hf
from ane_sweep.worker.models._ports import Port, Ports


class Memory:
    """The states during one call. `position` (1,) of the one new token, or None when the whole window comes at once;
    `axis` of a state along which positions run.
    """

    def __init__(self, states: list[tuple[Tensor, Tensor]], axis: int, position: Tensor | None = None):
        self.states, self.axis, self.position = states, axis, position
        self._rows: dict[int, tuple[Tensor, Tensor]] = {}  # by table, which is kept so that its id stays its own

    def keep(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Remember a layer's new keys and values; returns those of all positions."""
        for state, new in zip(self.states[layer], (key, value)):
            if self.position is None:
                state[:] = new
            else:
                start = (slice(None),) * self.axis
                state[(*start, slice(self.position, self.position + 1))] = new
        return (key, value) if self.position is None else self.states[layer]

    def row(self, table: Tensor, axis: int) -> Tensor:
        """The part of a table that belongs to the new token, once a call; all of it when the whole window comes."""
        if self.position is None:
            return table
        if id(table) not in self._rows:
            self._rows[id(table)] = table, table.index_select(axis, self.position)
        return self._rows[id(table)][1]


class Given(Memory):
    """Keys and values that came in, and `new`, which go out: nothing is written in place."""

    def __init__(self, states: list[tuple[Tensor, Tensor]], axis: int, position: Tensor | None = None):
        super().__init__(states, axis, position)
        self.new: list[Tensor] = []

    def keep(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if self.position is not None:
            key, value = (self._put(old, new) for old, new in zip(self.states[layer], (key, value)))
        self.new += [key, value]
        return key, value

    def _put(self, old: Tensor, new: Tensor) -> Tensor:
        shape = [-1 if axis == self.axis else 1 for axis in range(old.dim())]
        here = torch.arange(old.shape[self.axis]) == self.position
        return torch.where(here.reshape(shape), new, old)


class HuggingFaceCache:
    """As much of transformers' Cache as its attention layers use. Masks and positions come ready, so length is never
    asked for in earnest."""

    is_compileable = False

    def __init__(self, memory: Memory):
        self.memory = memory

    def update(self, key: Tensor, value: Tensor, layer_idx: int, *args, **kwargs) -> tuple[Tensor, Tensor]:
        return self.memory.keep(layer_idx, key, value)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0


class PerLayer(nn.Module):
    """A function of `layers` blocks that has two tensors a block, by `names`, as states or at its ends."""

    def __init__(self, all_names: list[str]):
        super().__init__()
        self.all_names, self.names = tuple(all_names), list(all_names)

    def keep_layers(self, count: int) -> None:
        self.names = list(self.all_names[: 2 * count])

    def absent(self) -> set[str]:
        """Names of ports and states of blocks that it has not just then."""
        gone = set(self.all_names) - set(self.names)
        return gone | {NEW + name for name in gone}


def present(module: nn.Module, ports: Ports) -> Ports:
    """Those of the layers that the module has just then."""
    gone = module.absent() if isinstance(module, PerLayer) else set()
    inputs, outputs = ([port for port in some if port.name not in gone] for some in (ports.inputs, ports.outputs))
    return Ports(tuple(inputs), tuple(outputs))


class Function(PerLayer):
    """`core(tokens, *masks, memory)` with states of its own name space: prefill, or decode.

    `more`: positions of the states beyond seq_len, for decode's masks; prefill's core pads itself.
    """

    def __init__(self, core: nn.Module, states: dict[str, Tensor], axis: int, decode: bool, more: int):
        super().__init__(list(states))
        self.core, self.axis, self.decode, self.more = core, axis, decode, more
        for name, state in states.items():
            self.register_buffer(name, state, persistent=False)

    def forward(self, tokens: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        position = None
        if self.decode:
            position, *rest = rest
            fill = (_hf.MASKED, 0.0)
            rest = [F.pad(mask, (0, self.more), value=value) if self.more else mask for mask, value in zip(rest, fill)]
        states = [getattr(self, name) for name in self.names]
        memory = Memory(list(zip(states[::2], states[1::2])), self.axis, position)
        return self.core(tokens, *rest, memory=memory)


def names(layers: int) -> list[str]:
    return [f"{what}_cache_{layer}" for layer in range(layers) for what in ("key", "value")]


class Passing(PerLayer):
    """`core(tokens, *masks, memory)` with its keys and values as inputs (of decode) and outputs."""

    def __init__(self, core: nn.Module, all_names: list[str], axis: int, decode: bool, more: int):
        super().__init__(all_names)
        self.core, self.axis, self.decode, self.more = core, axis, decode, more

    def forward(self, tokens: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        position, caches = None, ()
        if self.decode:
            count = len(self.names)
            position, *masks = rest[:-count]
            caches, fill = rest[-count:], (_hf.MASKED, 0.0)
            rest = [F.pad(mask, (0, self.more), value=value) if self.more else mask for mask, value in zip(masks, fill)]
        memory = Given(list(zip(caches[::2], caches[1::2])), self.axis, position)
        return (*self.core(tokens, *rest, memory=memory), *memory.new)


class Explicit(nn.Module):
    """Both functions on one set of weights."""

    states: dict[str, Tensor] = {}

    def __init__(
        self, prefill: nn.Module, decode: nn.Module, layers: int, shape: tuple[int, ...], axis: int, more: int
    ):
        super().__init__()
        self.names, self.shape = names(layers), shape
        each = {PREFILL: (prefill, False), DECODE: (decode, True)}
        self.functions = nn.ModuleDict({n: Passing(c, self.names, axis, at, more) for n, (c, at) in each.items()})

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.functions[PREFILL](*inputs)

    def with_caches(self, ports: Ports, function: str) -> Ports:
        """The ports of a function without a cache, and those of the keys and values."""
        given = [Port(name, self.shape, "float32") for name in self.names if function == DECODE]
        left = [Port(NEW + name, self.shape, "float32") for name in self.names]
        return Ports((*ports.inputs, *given), (*ports.outputs, *left))

    def reset(self) -> None:
        """Nothing is kept here."""


class Cached(nn.Module):
    """Both functions on one set of weights and states; called as a module it is prefill."""

    def __init__(
        self, prefill: nn.Module, decode: nn.Module, layers: int, shape: tuple[int, ...], axis: int, more: int
    ):
        super().__init__()
        states = {name: torch.zeros(shape) for name in names(layers)}
        each = {PREFILL: (prefill, False), DECODE: (decode, True)}
        self.functions = nn.ModuleDict({n: Function(core, states, axis, at, more) for n, (core, at) in each.items()})

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.functions[PREFILL](*inputs)

    def _apply(self, fn, recurse: bool = True):
        """To another device: each function would get states of its own."""
        super()._apply(fn, recurse)
        for name, state in self.states.items():
            setattr(self.functions[DECODE], name, state)
        return self

    @property
    def states(self) -> dict[str, Tensor]:
        return {name: getattr(self.functions[PREFILL], name) for name in self.functions[PREFILL].names}

    def reset(self) -> None:
        """States as they are in the beginning: zeros."""
        for state in self.states.values():
            state.zero_()
