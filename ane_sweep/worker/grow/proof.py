"""The proof that a conversion of a few blocks determines every block: weights decide constants through recipes, and nothing else.

The longer of two short conversions is made with other numbers in every tensor that differs between blocks. A constant that
depends on such a tensor without a recipe then differs from the shorter conversion's. A number that coremltools read during
the conversion, or wrote into the program itself, may have decided a comparison that other numbers do not change: it is
computed again for each block and must be equal.
"""

import re
import zlib
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from ane_sweep.worker.grow import recipes, repeats
from ane_sweep.worker.grow.recipes import Origin
from ane_sweep.worker.grow.repeats import Repeat
from ane_sweep.worker.grow.sequence import Unlike
from ane_sweep.worker.models import _lazy


class Differing:
    """The tensors whose numbers differ between inner blocks at the same place in the period, and changed numbers for each."""

    def __init__(self, module: nn.Module, lists: list[Repeat]):
        self.lists = lists
        self.held = repeats.name_tensors(module)
        _refuse_one_name(self.held)
        self.names = {name for alike in self._alike() if not self._are_equal(alike) for name in alike}

    def _alike(self) -> Iterator[list[str]]:
        """Yield, for each tensor of a block, its names in all inner blocks at the same place in the period."""
        for one in self.lists:
            for number in range(1, 1 + one.period):
                start = f"{one.path}.{one.before + number}."
                for name in [name for name in self.held if name.startswith(start)]:
                    yield [repeats.name_in_block(name, one, at) for at in range(number, one.count - 1, one.period)]

    def _are_equal(self, names: list[str]) -> bool:
        if missing := [name for name in names if name not in self.held]:
            raise Unlike(f"it has no {missing[0]}")
        if not self.held[names[0]].is_floating_point():
            return True  # whole numbers are compared where the module is run
        first: Tensor = _lazy.materialise(self.held[names[0]])  # signs are compared, too, as 0 and -0 are equal
        others = (_lazy.materialise(self.held[name]) for name in names if self.held[name] is not self.held[names[0]])
        return all(torch.equal(other, first) and torch.equal(other.signbit(), first.signbit()) for other in others)

    def read_real(self, name: str) -> np.ndarray:
        """Return the numbers of a tensor of the whole module."""
        numbers: np.ndarray = _lazy.materialise(self.held[name]).detach().numpy()
        return numbers

    def read_changed(self, name: str) -> np.ndarray:
        """Return changed numbers for a tensor that differs (always the same ones), and the real numbers of any other tensor."""
        return self.change(name, self.held[name]).detach().numpy()

    def change(self, name: str, tensor: Tensor) -> Tensor:
        """Return the tensor with each number scaled and moved away from zero at random; signs stay, as variances must be positive."""
        value: Tensor = _lazy.materialise(tensor)
        if name not in self.names:
            return value
        drawn = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        scale, shift = (torch.rand(value.shape, generator=drawn) / 2 + 0.25 for _ in range(2))
        changed = (value.detach().abs() * scale + shift) * torch.where(value < 0, -1.0, 1.0)
        if value.is_contiguous():
            return changed.to(value.dtype).contiguous()
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(changed)


def _refuse_one_name(names: Iterable[str]) -> None:
    """Raise Unlike if two tensors get the same name in a program: coremltools would rename one of them."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(re.sub("[^a-zA-Z0-9_]", "_", name), name)) != name:
            raise Unlike(f"{other} and {name} have one name in a program")


def check_apart(observed: list[Origin], differing: Differing, longer: Repeat) -> None:
    """Raise Unlike if a value that was read during the longer conversion depends on two inner blocks at once.

    Such a value was seen only for the converted blocks; other pairs of blocks could give another value.
    """
    for recipe in observed:
        names = {
            repeats.name_in_whole(name, differing.lists, longer) for name in recipes.list_leaves(recipe)
        } & differing.names
        if len({repeats.find_block(name, differing.lists) for name in names}) > 1:
            raise Unlike(f"a number depends on two blocks ({', '.join(sorted(names)[:2])})")


def check_observed(observed: list[Origin], differing: Differing) -> None:
    """Raise Unlike if a value that was read while few blocks were converted differs in another block."""
    seen = set()
    for recipe in observed:
        names = [repeats.name_in_whole(name, differing.lists, None) for name in recipes.list_leaves(recipe)]
        key = (recipes.shape_of(recipe), *names)
        if differing.names.isdisjoint(names) or key in seen:
            continue
        seen.add(key)
        wanted = np.asarray(recipes.replay(recipe, differing.read_real, names))
        for others in _in_other_blocks(names, differing):
            found = np.asarray(recipes.replay(recipe, differing.read_real, others))
            if (found.dtype, found.shape, found.tobytes()) != (wanted.dtype, wanted.shape, wanted.tobytes()):
                moved = next(other for name, other in zip(names, others) if name != other)
                raise Unlike(f"a number that depends on {moved} is not what it is in other blocks")


def _in_other_blocks(names: list[str], differing: Differing) -> Iterator[list[str]]:
    """Yield the names shifted by one period, two periods and so on, up to the last inner block."""
    moving = [name for name in names if name in differing.names]
    found = [repeats.find_block(name, differing.lists) for name in moving]
    one = found[0][0]
    if any(other is not one for other, _ in found):
        raise Unlike(f"a number depends on blocks of two lists ({moving[0]})")
    most = one.count - 2 - max(number for _, number in found)
    for shift in range(one.period, most + 1, one.period):
        moved = {name: repeats.name_in_block(name, one, number + shift) for name, (_, number) in zip(moving, found)}
        yield [moved.get(name, name) for name in names]
