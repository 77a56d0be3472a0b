"""Lists of a module's blocks, and the module with fewer of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from torch import Tensor, nn

from ane_sweep.worker.grow.sequence import Unlike
from ane_sweep.worker.models import _cache

LEAST_BLOCKS = 6  # a shorter list is not worth the trouble
MOST_PERIOD = 4


@dataclass(frozen=True)
class GrowthTrial:
    """The settings of an attempt to grow: `turns` is the number of pieces that the longer conversion adds, two, to compare them."""

    turns: int = 2
    always: bool = False  # True: also if it saves no time


@dataclass(frozen=True)
class Repeat:
    """A run of equal blocks, or of blocks that repeat with `period`, among the children of the module at `path`.

    count  children in the run; `before` and `after` count the other children of that module
    """

    path: str
    count: int
    period: int = 1
    before: int = 0
    after: int = 0
    trial: GrowthTrial = GrowthTrial()

    def select_blocks(self, longer: bool = False) -> list[int]:
        """Return the numbers of the blocks that a shortened module keeps.

        These are the first block, enough inner blocks for a piece to repeat, `trial.turns` more pieces if `longer`, and the last.
        """
        least = 3 if self.period == 1 else 2 * self.period + 2
        number = least + (self.count - least) % self.period + longer * self.trial.turns * self.period
        return [*range(number - 1), self.count - 1]

    def count_copies(self) -> int:
        """Return the number of copies of the piece that extend the kept blocks to all blocks."""
        return (self.count - len(self.select_blocks())) // self.period

    def select_children(self, longer: bool) -> list[int]:
        """Return the numbers of the children that the module at `path` keeps when shortened."""
        end = self.before + self.count
        return [
            *range(self.before),
            *(self.before + one for one in self.select_blocks(longer)),
            *range(end, end + self.after),
        ]


def name_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the module's parameters and buffers by name, shared ones under each of their names."""
    return dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])


def find_lists(module: nn.Module, trial: GrowthTrial, path: str = "") -> Iterator[Repeat]:
    """Yield the outermost lists of similar blocks: the same class, and tensors of the same names and shapes."""
    for name, child in module.named_children():
        place = f"{path}.{name}" if path else name
        blocks: list[nn.Module | None] = (
            list(child._modules.values()) if isinstance(child, (nn.ModuleList, nn.Sequential)) else []
        )
        start, count = _find_longest_run(blocks)
        if count >= (2 if trial.always else LEAST_BLOCKS) and len({id(one) for one in blocks}) == len(blocks):
            turns = trial.turns if count >= 5 else 1  # of four blocks, where it is grown always: all that there are
            yield Repeat(place, count, 1, start, len(blocks) - start - count, replace(trial, turns=turns))
        else:
            yield from find_lists(child, trial, place)


def _find_longest_run(blocks: list[nn.Module | None]) -> tuple[int, int]:
    """Return (start, length) of the longest run in which each block is similar to the block a fixed distance before it."""
    looks = [_describe_block(one) for one in blocks]
    best = (0, 0)
    for period in range(1, min(MOST_PERIOD, len(looks) // 2) + 1):
        start = 0
        for at in range(period, len(looks) + 1):
            if at == len(looks) or looks[at] != looks[at - period]:
                if at - start > max(best[1], period):
                    best = start, at - start
                start = at - period + 1
    return best


def _describe_block(block: nn.Module | None) -> object:
    held = [*block.named_parameters(), *block.named_buffers()] if block is not None else []
    return type(block), tuple((name, tuple(one.shape), one.dtype) for name, one in held)


def select_worthwhile(found: list[Repeat]) -> list[Repeat]:
    """Return the longest lists that save conversions of blocks. Raises Unlike if none saves any."""
    for number in range(len(found), 0, -1):
        chosen = sorted(found, key=lambda one: -one.count)[:number]
        few = sum(len(one.select_blocks()) for one in chosen)
        converted = (number + 1) * few + sum(len(one.select_blocks(True)) - len(one.select_blocks()) for one in chosen)
        if converted < sum(one.count for one in chosen):
            return chosen
    raise Unlike("its lists of blocks are so short that converting them all is as fast")


def has_enough_blocks(one: Repeat) -> bool:
    """Return True if the list has enough blocks for the longer conversion."""
    return len(one.select_blocks(True)) <= one.count


@contextmanager
def swap_tensors(module: nn.Module, make: Callable[[str, Tensor], Tensor]) -> Iterator[None]:
    """Replace each parameter and buffer by make(name, tensor) inside this context; shared tensors stay shared."""
    undo: list[tuple[dict[str, Tensor | None], str, Tensor]] = []
    known: dict[int, Tensor] = {}
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
def shorten_lists(module: nn.Module, chosen: list[Repeat], longer: Repeat | None) -> Iterator[None]:
    """Keep few blocks in each list, and more in the list `longer`, inside this context.

    The blocks are renumbered, also in their `layer_idx`; a module with states or ports per block keeps only those of
    the kept blocks.
    """
    with restore_attributes(module):
        undo = []
        try:
            for one in chosen:
                blocks = module.get_submodule(one.path)
                undo.append((blocks, blocks._modules))
                held, kept = list(blocks._modules.values()), one.select_children(one is longer)
                blocks._modules = {str(new): held[old] for new, old in enumerate(kept)}
                for new, (old, block) in enumerate(zip(kept, blocks._modules.values())):
                    for inner in block.modules() if block is not None else ():
                        if vars(inner).get("layer_idx") == old:
                            setattr(inner, "layer_idx", new)  # noqa: B010 (a plain assignment is for tensors and modules)
                if isinstance(module, _cache.CachedFunction):
                    module.keep_layers(len(kept))
            yield
        finally:
            for blocks, all_of_them in undo:
                blocks._modules = all_of_them


@contextmanager
def restore_attributes(module: nn.Module) -> Iterator[None]:
    """Undo changes of the modules' attributes, such as a cached mask, when this context ends."""
    before = [(one, vars(one).copy()) for one in module.modules()]
    held = [value for _, attributes in before for value in attributes.values() if type(value) in (dict, list)]
    contents = [value.copy() for value in held]
    try:
        yield
    finally:
        for one, attributes in before:
            vars(one).clear()
            vars(one).update(attributes)
        for value, content in zip(held, contents):
            value.clear()
            value.update(content) if isinstance(value, dict) else value.extend(content)


def name_in_whole(name: str, chosen: list[Repeat], longer: Repeat | None) -> str:
    """Return the name in the whole module of a tensor in a shortened module (with more blocks in the list `longer`)."""
    for one in chosen:
        if name.startswith(f"{one.path}."):
            number, _, rest = name.removeprefix(f"{one.path}.").partition(".")
            return f"{one.path}.{one.select_children(one is longer)[int(number)]}.{rest}"
    return name


def find_block(name: str, chosen: list[Repeat]) -> tuple[Repeat, int]:
    """Return the list that contains a tensor of the whole module, and the number of its block among the similar ones."""
    one = next(one for one in chosen if name.startswith(f"{one.path}."))
    return one, int(name.removeprefix(f"{one.path}.").partition(".")[0]) - one.before


def name_in_block(name: str, one: Repeat, number: int) -> str:
    """Return the name of the corresponding tensor in block `number`."""
    return f"{one.path}.{one.before + number}.{name.removeprefix(f'{one.path}.').partition('.')[2]}"
