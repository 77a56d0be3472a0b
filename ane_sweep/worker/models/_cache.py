"""The key-value cache of the decoders: one package of two functions that share weights, and with cache=stateful states.

    prefill   the whole window at once: inputs and outputs are those of the program without a cache. Leaves every
              position's keys and values in the states. A prompt shorter than the window is padded on the right: decode
              overwrites the padding's entries, and until then no token sees them.
    decode    one token. Inputs: input_ids (1,1) int32, or inputs_embeds (1,1,C); `cache_position` (1,) int32, its place
              in the window, 0 .. S-1; causal_mask (1,1,1,S) and key_mask (1,S) if the masks are inputs.
              Output: logits (1,1,V) of that token.
    states    key_cache_0, value_cache_0, key_cache_1 ...: two a layer, so that a program can be cut between layers.
              original: (1, key heads, L, head dim); split_einsum: (1, key heads * head dim, 1, L), channels first.
              L is seq_len, padded by pad_last_axis if set. They are fp16, the only type of states in an ML Program.

With cache=explicit the same tensors are outputs `new_key_cache_0` ... of both functions, and inputs `key_cache_0` ...
of decode. It returns them with the token's own keys and values put in by a select, as programs did before Core ML had
states (more-ane-transformers notes, 15 April 2023).

Values that depend on the position alone (learned and rotary positions, rows of the causal mask, windows, ALiBi) are
tables with a row for each position of the window, from which decode takes one: angles computed from a position in fp16
would be off by radians from a few hundred tokens on.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ane_sweep.bridge.building import DECODE, NEW, PREFILL
from ane_sweep.worker.models import _hf
from ane_sweep.worker.models._ports import Port, Ports
from ane_sweep.worker.models._types import Dynamic


class Memory:
    """The states during one call.

    position   (1,), the place of the one new token; None if the whole window comes at once
    axis       the axis of a state along which positions run
    length     its size, also for a prefill that is given no states
    """

    def __init__(self, states: list[tuple[Tensor, Tensor]], axis: int, length: int, position: Tensor | None = None):
        self.states, self.axis, self.length, self.position = states, axis, length, position
        self.new: list[Tensor] = []  # outputs of an explicit cache
        self._rows: dict[int, tuple[Tensor, Tensor]] = {}  # by table, which is kept so that its id stays its own

    def keep(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values, and return the keys and values of all positions."""
        for state, new in zip(self.states[layer], (key, value)):
            if self.position is None:
                state[:] = new
            else:
                start = (slice(None),) * self.axis
                state[(*start, slice(self.position, self.position + 1))] = new
        return (key, value) if self.position is None else self.states[layer]

    def row(self, table: Tensor, axis: int) -> Tensor:
        """Return the new token's row of a table, looked up once per call, or the whole table for a whole window."""
        if self.position is None:
            return table
        if id(table) not in self._rows:
            self._rows[id(table)] = table, table.index_select(axis, self.position)
        return self._rows[id(table)][1]


class ExplicitMemory(Memory):
    """States that are inputs and outputs of the program: nothing is written in place."""

    def keep(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if self.position is not None:
            key, value = (self._insert(old, new, self.position) for old, new in zip(self.states[layer], (key, value)))
        self.new += [key, value]
        return key, value

    def _insert(self, old: Tensor, new: Tensor, position: Tensor) -> Tensor:
        shape = [-1 if axis == self.axis else 1 for axis in range(old.dim())]
        is_new = torch.eq(torch.arange(old.shape[self.axis]), position)
        return torch.where(is_new.reshape(shape), new, old)


class HuggingFaceCache:
    """The part of transformers' Cache that its attention layers use.

    Masks and positions are passed in complete, so the length of 0 is never used.
    """

    is_compileable = False

    def __init__(self, memory: Memory):
        self.memory = memory

    def update(
        self, key: Tensor, value: Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        return self.memory.keep(layer_idx, key, value)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0


class CachedFunction(nn.Module):
    """Prefill or decode: `core(tokens, *masks, memory)`. It can be cut to its first blocks for a while.

    names   of its two cache tensors a block; `states` holds these tensors, or nothing if they are inputs and outputs
    axis    of a cache tensor along which positions run, and how many these are
    more    number of positions of a cache beyond seq_len, for decode's masks; prefill's core pads itself
    """

    def __init__(
        self, core: nn.Module, names: list[str], states: dict[str, Tensor], axis: tuple[int, int], decode: bool,
        more: int,
    ):  # fmt: skip
        super().__init__()
        self.all_names, self.names = tuple(names), list(names)
        self.core, self.axis, self.decode, self.more = core, axis, decode, more
        self.is_stateful = bool(states)
        for name, state in states.items():
            self.register_buffer(name, state, persistent=False)

    def keep_layers(self, count: int) -> None:
        self.names = list(self.all_names[: 2 * count])

    def forward(self, tokens: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        position: Tensor | None = None
        states: Sequence[Tensor] = [getattr(self, name) for name in self.names] if self.is_stateful else ()
        masks = rest
        if self.decode:
            first = len(rest) if self.is_stateful else len(rest) - len(self.names)
            position, masks, states = rest[0], _pad_masks(rest[1:first], self.more), states or rest[first:]
        make = Memory if self.is_stateful else ExplicitMemory
        memory = make(list(zip(states[::2], states[1::2])), *self.axis, position)
        return (*self.core(tokens, *masks, memory=memory), *memory.new)


def select_present(module: nn.Module, ports: Ports) -> Ports:
    """Return the ports without those of blocks that the module has removed."""
    caches = set(module.all_names).difference(module.names) if isinstance(module, CachedFunction) else set()
    gone = caches.union(NEW + name for name in caches)
    inputs, outputs = ([port for port in some if port.name not in gone] for some in (ports.inputs, ports.outputs))
    return Ports(tuple(inputs), tuple(outputs))


def _pad_masks(masks: Sequence[Tensor], more: int) -> tuple[Tensor, ...]:
    """Return the causal mask and the key mask, if present, extended by `more` positions that no token sees."""
    fill = (_hf.MASKED, 0.0)
    return tuple(F.pad(mask, (0, more), value=value) if more else mask for mask, value in zip(masks, fill))


class KeyValueCache(nn.Module):
    """Both functions on one set of weights, with states or with the cache as inputs and outputs; called, it is prefill."""

    def __init__(
        self,
        prefill: nn.Module,
        decode: nn.Module,
        layers: int,
        shape: tuple[int, ...],
        axis: int,
        more: int,
        is_stateful: bool,
    ):
        super().__init__()
        self.names = [f"{what}_cache_{layer}" for layer in range(layers) for what in ("key", "value")]
        self.shape = shape
        states = {name: torch.zeros(shape) for name in self.names} if is_stateful else {}
        each = {PREFILL: (prefill, False), DECODE: (decode, True)}
        self.functions = nn.ModuleDict(
            {
                name: CachedFunction(core, self.names, states, (axis, shape[axis]), at, more)
                for name, (core, at) in each.items()
            }
        )

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.functions[PREFILL](*inputs)

    def with_caches(self, ports: Ports, function: str) -> Ports:
        """Return the ports of a function without a cache together with those of an explicit one."""
        caches = [Port(name, self.shape, "float32") for name in self.names if function == DECODE]
        new = [Port(NEW + name, self.shape, "float32") for name in self.names]
        return Ports((*ports.inputs, *caches), (*ports.outputs, *new))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "KeyValueCache":
        """Move to another device, such that the two functions still share their states; torch would copy them."""
        super()._apply(fn, recurse)
        for name, state in self.states.items():
            setattr(self.functions[DECODE], name, state)
        return self

    @property
    def states(self) -> dict[str, Tensor]:
        """The states by name; an explicit cache, which belongs to the caller, has none."""
        prefill: Dynamic = self.functions[PREFILL]
        return {name: getattr(prefill, name) for name in prefill.names if prefill.is_stateful}

    def reset(self) -> None:
        """Set the states to zero."""
        for state in self.states.values():
            state.zero_()
