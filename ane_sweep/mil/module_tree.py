"""Arrange the ops of a program as the tree of their modules, and choose the branches worth a line.

Siblings by number that are alike (the blocks of a transformer) make one branch, `layer.0-11`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
Rate = Callable[[Sequence[T]], float]


@dataclass
class Branch(Generic[T]):
    """A module: its items and those of the modules inside, in program order. `alike`: how many modules it stands for."""

    path: str
    items: list[T] = field(default_factory=list)
    children: list[Branch[T]] = field(default_factory=list)
    alike: int = 1

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


def build(items: Iterable[tuple[str, T]]) -> Branch[T]:
    """Return the tree of (module path, item); its root is the model, whose path is empty."""
    root: Branch[T] = Branch("")
    known = {"": root}
    for path, item in items:
        root.items.append(item)
        parts = path.split(".") if path else []
        above = root
        for end in range(1, len(parts) + 1):
            here = ".".join(parts[:end])
            if here not in known:
                known[here] = Branch(here)
                above.children.append(known[here])
            above = known[here]
            above.items.append(item)
    return root


def join_alike(branch: Branch[T], describe: Callable[[Sequence[T]], Hashable]) -> Branch[T]:
    """Return the tree with neighbours by number joined, if `describe` says the same of them and of all modules inside."""
    groups: list[list[Branch[T]]] = []
    for child in branch.children:
        alike = groups and child.name.isdigit() and _sign(child, describe) == _sign(groups[-1][-1], describe)
        groups[-1].append(child) if alike else groups.append([child])
    joined = [group[0] if len(group) == 1 else _join(group, branch.path) for group in groups]
    return Branch(branch.path, branch.items, [join_alike(child, describe) for child in joined], branch.alike)


def _sign(branch: Branch[T], describe: Callable[[Sequence[T]], Hashable]) -> Hashable:
    return describe(branch.items), tuple((child.name, _sign(child, describe)) for child in branch.children)


def _join(group: Sequence[Branch[T]], above: str) -> Branch[T]:
    """Return one branch for several of the same form."""
    first, last = group[0].name.partition("-")[0], group[-1].name
    name = group[0].name if all(one.name == group[0].name for one in group) else f"{first}-{last}"
    path = f"{above}.{name}" if above else name
    children = [_join(inner, path) for inner in zip(*(one.children for one in group))]
    return Branch(path, [item for one in group for item in one.items], children, len(group))


def choose_branches(root: Branch[T], rate: Rate[T], most: int) -> list[tuple[int, Branch[T]]]:
    """Return at most `most` (depth, branch) in program order: the branch that `rate` puts highest is opened next.

    A branch whose one child holds the same items is left out for its child.
    """
    shown: list[tuple[int, Branch[T]]] = [(0, root)]
    closed = [root]
    while closed:
        branch = max(closed, key=lambda one: rate(one.items))
        closed = [one for one in closed if one is not branch]
        inner = [_skip(child) for child in branch.children]
        if not inner or len(shown) + len(inner) > most + 1:
            continue
        at = next(place for place, (_, one) in enumerate(shown) if one is branch)
        depth = shown[at][0] + 1
        shown[at + 1 : at + 1] = [(depth, child) for child in inner]
        closed += inner
    return [(depth - 1, branch) for depth, branch in shown[1:]]


def _skip(branch: Branch[T]) -> Branch[T]:
    while len(branch.children) == 1 and len(branch.children[0].items) == len(branch.items):
        branch = branch.children[0]
    return branch
