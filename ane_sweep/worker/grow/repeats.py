"""Lists of a module's blocks, and the module with fewer of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from ane_sweep.worker.grow.sequence import Unlike
from ane_sweep.worker.models import _cache

LEAST_BLOCKS = 6  # of a list that is worth the trouble
MOST_PERIOD = 4


@dataclass(frozen=True)
class Trial:
    """How many pieces more the longer conversion has: two, so that what one adds can be seen to be what the next adds."""

    turns: int = 2
    always: bool = False  # and not only where it pays


@dataclass(frozen=True)
class Repeat:
    """Blocks that are alike, or come in turns of `period`: `count` children of the module at `path`, with others `before`
    and `after`."""

    path: str
    count: int
    period: int = 1
    before: int = 0
    after: int = 0
    trial: Trial = Trial()

    def kept(self, longer: bool = False) -> list[int]:
        """Which blocks a shallow module has: the first, enough for a piece to repeat in, a longer one more, and the last."""
        least = 3 if self.period == 1 else 2 * self.period + 2
        number = least + (self.count - least) % self.period + longer * self.trial.turns * self.period
        return [*range(number - 1), self.count - 1]

    def copies(self) -> int:
        """How often the piece is put in to make all blocks of those that are kept."""
        return (self.count - len(self.kept())) // self.period

    def children(self, longer: bool) -> list[int]:
        """Of the module at `path`, those of a shallow module."""
        end = self.before + self.count
        return [*range(self.before), *(self.before + one for one in self.kept(longer)), *range(end, end + self.after)]


def lists(module: nn.Module, trial: Trial, path: str = "") -> Iterator[Repeat]:
    """The outermost lists of blocks that look alike, by what they are and the shapes of what they hold."""
    least = 2 if trial.always else LEAST_BLOCKS
    for name, child in module.named_children():
        place = f"{path}.{name}" if path else name
        blocks = list(child._modules.values()) if isinstance(child, (nn.ModuleList, nn.Sequential)) else []
        start, count = _longest(blocks)
        if count >= least and len({id(one) for one in blocks}) == len(blocks):
            turns = trial.turns if count >= 5 else 1  # of four blocks, where it is grown always: all that there are
            yield Repeat(place, count, 1, start, len(blocks) - start - count, replace(trial, turns=turns))
        else:
            yield from lists(child, trial, place)


def _longest(blocks: list[Any]) -> tuple[int, int]:
    """(start, length) of the longest run of blocks that look like the one that lies a few before them."""
    looks = [_looks(one) for one in blocks]
    best = (0, 0)
    for period in range(1, min(MOST_PERIOD, len(looks) // 2) + 1):
        start = 0
        for at in range(period, len(looks) + 1):
            if at == len(looks) or looks[at] != looks[at - period]:
                if at - start > max(best[1], period):
                    best = start, at - start
                start = at - period + 1
    return best


def _looks(block: Any) -> Any:
    held = [*block.named_parameters(), *block.named_buffers()] if block is not None else []
    return type(block), tuple((name, tuple(one.shape), one.dtype) for name, one in held)


def pays(found: list[Repeat]) -> list[Repeat]:
    """Of lists the longest for which fewer blocks are converted than there are. Raises Unlike."""
    for number in range(len(found), 0, -1):
        chosen = sorted(found, key=lambda one: -one.count)[:number]
        few = sum(len(one.kept()) for one in chosen)
        converted = (number + 1) * few + sum(len(one.kept(True)) - len(one.kept()) for one in chosen)
        if converted < sum(one.count for one in chosen):
            return chosen
    raise Unlike("its lists of blocks are so short that converting them all is as fast")


def fits(one: Repeat) -> bool:
    """Whether there are as many blocks as the longer conversion has."""
    return len(one.kept(True)) <= one.count


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
def shortened(module: nn.Module, chosen: list[Repeat], longer: Repeat | None) -> Iterator[None]:
    """While this is open, lists hold few blocks, numbered anew; one of them more. Blocks that keep their own number as
    `layer_idx` know the new one, and a module with states or ports for each of them has those of these."""
    with left_alone(module):
        undo = []
        try:
            for one in chosen:
                blocks = module.get_submodule(one.path)
                undo.append((blocks, blocks._modules))
                held, kept = list(blocks._modules.values()), one.children(one is longer)
                blocks._modules = {str(new): held[old] for new, old in enumerate(kept)}
                for new, old in enumerate(kept):
                    _number(held[old], old, new)
                if isinstance(module, _cache.PerLayer):
                    module.keep_layers(len(kept))
            yield
        finally:
            for blocks, all_of_them in undo:
                blocks._modules = all_of_them


def _number(block: Any, old: int, new: int) -> None:
    for inner in block.modules():
        if vars(inner).get("layer_idx") == old:
            inner.layer_idx = new


@contextmanager
def left_alone(module: nn.Module) -> Iterator[None]:
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


def in_whole(name: str, chosen: list[Repeat], longer: Repeat | None) -> str:
    """What a tensor of a module with few blocks (of one list more) is called in the whole one."""
    for one in chosen:
        if name.startswith(f"{one.path}."):
            number, _, rest = name.removeprefix(f"{one.path}.").partition(".")
            return f"{one.path}.{one.children(one is longer)[int(number)]}.{rest}"
    return name


def block_of(name: str, chosen: list[Repeat]) -> tuple[Repeat, int]:
    """Return the list that a tensor of the whole module lies in, and its block's number among those that are alike."""
    one = next(one for one in chosen if name.startswith(f"{one.path}."))
    return one, int(name.removeprefix(f"{one.path}.").partition(".")[0]) - one.before


def in_block(name: str, one: Repeat, number: int) -> str:
    """Return what a block's tensor is called in the block of that number."""
    rest = name.removeprefix(f"{one.path}.").partition(".")[2]
    return f"{one.path}.{one.before + number}.{rest}"
