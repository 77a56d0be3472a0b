"""Which lists of a module's blocks repeat: the same calls of torch with the same numbers, block after block.

The whole module is run once on tensors without numbers (torch's FakeTensorMode), which takes no memory and little time,
and everything that it calls is written down; blocks repeat where what is written down does.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from ane_sweep.worker.grow.sequence import Unlike

LEAST_BLOCKS = 6  # of a list that is worth the trouble
TURNS = 2  # pieces that a longer program has more: two, so that what one adds can be seen to be what the next adds
_MOST_PERIOD = 4


@dataclass(frozen=True)
class Repeat:
    """A list of blocks by its place in the module. All but the first and the last are alike, or come in turns."""

    path: str
    count: int
    period: int

    def kept(self, turns: int) -> list[int]:
        """Which blocks a shallow module has: the first, enough for a piece to repeat in, `turns` more, and the last."""
        least = 3 if self.period == 1 else 2 * self.period + 2
        number = least + (self.count - least) % self.period + turns * self.period
        return [*range(number - 1), self.count - 1]

    def copies(self) -> int:
        """How often the piece is put in to make all blocks of those that `kept(0)` keeps."""
        return (self.count - len(self.kept(0))) // self.period


def found(module: nn.Module, examples: tuple[Tensor, ...]) -> list[Repeat]:
    """The lists that repeat. Raises Unlike where there is none, or the module cannot be run without numbers."""
    lists = dict(_lists(module))
    if not lists:
        raise Unlike(f"it has no list of {LEAST_BLOCKS} blocks or more")
    calls, entered = _written_down(module, examples, lists)
    return [Repeat(path, len(entered[path]), _period(calls, entered[path], path)) for path in lists]


def worthwhile(lists: list[Repeat]) -> list[Repeat]:
    """Of them the longest for which fewer blocks are converted than there are. Raises Unlike."""
    for number in range(len(lists), 0, -1):
        chosen = sorted(lists, key=lambda one: -one.count)[:number]
        few = sum(len(one.kept(0)) for one in chosen)
        converted = (number + 1) * few + sum(len(one.kept(TURNS)) - len(one.kept(0)) for one in chosen)
        if converted < sum(one.count for one in chosen):
            return chosen
    raise Unlike("its lists of blocks are so short that converting them all is as fast")


def _lists(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The outermost long lists of blocks."""
    for name, child in module.named_children():
        place = f"{path}.{name}" if path else name
        blocks = list(child.children()) if isinstance(child, nn.ModuleList) else []
        if len(blocks) >= LEAST_BLOCKS and len({type(one) for one in blocks}) == 1:
            if len({id(one) for one in blocks}) == len(child._modules):
                yield place, child
        else:
            yield from _lists(child, place)


@contextmanager
def swapped(module: nn.Module, make: Callable[[str, Tensor], Tensor]) -> Iterator[None]:
    """While this is open, make(name, tensor) is in the place of each parameter and buffer; what is shared stays so."""
    undo, known = [], {}
    try:
        for prefix, owner in module.named_modules():
            for kind in (owner._parameters, owner._buffers):
                for leaf, tensor in list(kind.items()):
                    if tensor is not None:
                        name = f"{prefix}.{leaf}" if prefix else leaf
                        if id(tensor) not in known:
                            known[id(tensor)] = make(name, tensor)
                        undo.append((kind, leaf, tensor))
                        kind[leaf] = known[id(tensor)]
        yield
    finally:
        for kind, leaf, tensor in reversed(undo):
            kind[leaf] = tensor


@contextmanager
def shortened(module: nn.Module, kept: dict[str, list[int]]) -> Iterator[None]:
    """While this is open, lists hold the blocks `kept` alone, numbered anew."""
    undo = []
    try:
        for path, indices in kept.items():
            blocks = module.get_submodule(path)
            all_of_them = blocks._modules
            undo.append((blocks, all_of_them))
            blocks._modules = {str(new): all_of_them[str(old)] for new, old in enumerate(indices)}
        yield
    finally:
        for blocks, all_of_them in undo:
            blocks._modules = all_of_them


def in_whole(name: str, lists: list[Repeat], longer: int | None) -> str:
    """What a tensor of a module with few blocks (of one list more) is called in the whole one."""
    for which, one in enumerate(lists):
        if name.startswith(f"{one.path}."):
            number, _, rest = name.removeprefix(f"{one.path}.").partition(".")
            return f"{one.path}.{one.kept(TURNS if which == longer else 0)[int(number)]}.{rest}"
    return name


class _Writer(TorchDispatchMode):
    """Every call: its name, and its arguments as what made them, as a tensor of the module's, or as they are."""

    def __init__(self, names: dict[int, str]):
        super().__init__()
        self.names = names
        self.calls: list[tuple[Any, ...]] = []
        self.made: dict[int, tuple[int, int]] = {}
        self.alive: list[Any] = []  # so that an id stays its own
        self.digests: dict[int, str] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        call = (str(func), tuple(self._said(one) for one in tree_leaves((args, kwargs or {}))))
        result = func(*args, **(kwargs or {}))
        self.alive.append((args, kwargs, result))
        for output, one in enumerate(tree_leaves(result)):
            if isinstance(one, Tensor):
                self.made[id(one)] = len(self.calls), output
        self.calls.append(call)
        return result

    def _said(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return repr(value)
        if id(value) in self.made:
            return self.made[id(value)]
        if id(value) in self.names:
            return self.names[id(value)]
        if type(value) not in (Tensor, nn.Parameter):
            return f"tensor {list(value.shape)}"
        if id(value) not in self.digests:
            self.alive.append(value)
            with _disable_current_modes():
                content = value.detach().contiguous().view(-1).numpy()
            self.digests[id(value)] = f"{content.dtype}{list(value.shape)} {hashlib.sha256(content.data).hexdigest()}"
        return self.digests[id(value)]


def _written_down(module, examples, lists) -> tuple[list[tuple[Any, ...]], dict[str, list[int]]]:
    """(calls, for each list where among them each of its blocks begins)."""
    names: dict[int, str] = {}
    entered: dict[str, list[tuple[int, int]]] = {path: [] for path in lists}
    with FakeTensorMode(allow_non_fake_inputs=True):

        def empty(name: str, tensor: Tensor) -> Tensor:
            if name not in parameters:
                return tensor  # a buffer is what it holds
            made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
            names[id(made)] = f"module {name}"
            return made

        parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        inputs = [torch.empty(one.shape, dtype=one.dtype) for one in examples]
        writer = _Writer(names)
        hooks = [
            inner.register_forward_pre_hook(_enter(entered[path], number, writer))
            for path, blocks in lists.items()
            for number, inner in _own(blocks)
        ]
        try:
            with torch.no_grad(), _left_alone(module), swapped(module, empty), writer:
                module(*inputs)
        except Exception as error:
            raise Unlike(f"it cannot be run without numbers ({type(error).__name__})") from error
        finally:
            for hook in hooks:
                hook.remove()
    return writer.calls, {path: _starts(path, found, len(lists[path])) for path, found in entered.items()}


@contextmanager
def _left_alone(module: nn.Module) -> Iterator[None]:
    """What modules put into themselves while this is open, such as a mask for the next time, is taken out again."""
    before = [
        (
            one,
            vars(one).copy(),
            {name: value.copy() for name, value in vars(one).items() if type(value) in (dict, list)},
        )
        for one in module.modules()
    ]
    try:
        yield
    finally:
        for one, attributes, inside in before:
            vars(one).clear()
            vars(one).update(attributes)
            for name, content in inside.items():
                held = attributes[name]
                held.clear()
                held.update(content) if isinstance(held, dict) else held.extend(content)


def _own(blocks: nn.Module) -> Iterator[tuple[int, nn.Module]]:
    """(number of the block, module in it) of what is in one block alone."""
    each = [list(block.modules()) for block in blocks.children()]
    shared = Counter(id(inner) for block in each for inner in block)
    yield from ((number, inner) for number, block in enumerate(each) for inner in block if shared[id(inner)] == 1)


def _enter(entered: list[tuple[int, int]], number: int, writer: _Writer):
    def hook(module: nn.Module, given: Any) -> None:
        entered.append((number, len(writer.calls)))

    return hook


def _starts(path: str, entered: list[tuple[int, int]], count: int) -> list[int]:
    starts: list[int] = []
    for number, at in entered:
        if number == len(starts):
            starts.append(at)
        elif number != len(starts) - 1:
            raise Unlike(f"the blocks of {path} are not run one after the other")
    if len(starts) != count:
        raise Unlike(f"not all blocks of {path} are run")
    return starts


def _period(calls: list[tuple[Any, ...]], starts: list[int], path: str) -> int:
    """After how many blocks they repeat, the first and the last aside. Raises Unlike."""
    for period in range(1, _MOST_PERIOD + 1):
        turns = [range(first, len(starts) - 1, period) for first in range(1, period + 1)]
        if len(starts) > 4 * period + 1 and all(_alike(calls, starts, list(blocks), path) for blocks in turns):
            return period
    raise Unlike(f"the blocks of {path} are not alike")


def _alike(calls: list[tuple[Any, ...]], starts: list[int], blocks: list[int], path: str) -> bool:
    """Whether blocks call the same on the same: on what lies as far back, on the same tensor, on what is their own by
    the same name."""
    each = [calls[starts[number] : starts[number + 1]] for number in blocks]
    if len({len(one) for one in each}) > 1:
        return False

    def same(values: tuple[Any, ...]) -> bool:
        if all(value == values[0] for value in values):
            return True
        if all(isinstance(value, tuple) for value in values):
            back: set[Any] = {(starts[number] - value[0], value[1]) for number, value in zip(blocks, values)}
        else:
            back = {str(value).replace(f"module {path}.{number}.", "own ", 1) for number, value in zip(blocks, values)}
        return len(back) == 1

    return all(
        len({(name, len(given)) for name, given in column}) == 1
        and all(same(values) for values in zip(*(given for _, given in column)))
        for column in zip(*each)
    )
