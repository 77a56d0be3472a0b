"""A longer sequence from two shorter ones: what lies before, a piece that repeats, what lies after, and every number in
every name where the next one has it.

Two conversions of the same model with `few` and `more` blocks differ by copies of one piece, and numbers in generated names
(`op_128`, `h_3_ln_1_weight`) are affine in the copy and in how many copies there are. Whatever is not so is no sequence of
this kind, and Unlike says what.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_NUMBER = re.compile(r"(?<![0-9])(?:0|[1-9][0-9]*)(?![0-9])")


class Unlike(Exception):
    """Why a program cannot be grown; a sentence's end."""


@dataclass(frozen=True, slots=True)
class Item:
    """One op or port. `token`: all that says what it is, less its names; `names` of it and of what it makes; `reads`: what
    its inputs are, each as (sequence, index, output)."""

    token: object
    names: tuple[str, ...]
    reads: tuple[tuple[int, int, int], ...] = ()


def template(name: str) -> str:
    return _NUMBER.sub("#", name)


def numbers(name: str) -> list[int]:
    return [int(found) for found in _NUMBER.findall(name)]


def filled(name: str, values: list[int]) -> str:
    """`name` with these numbers in place of its own."""
    left = iter(values)
    return _NUMBER.sub(lambda _: str(next(left)), name)


@dataclass(frozen=True)
class Split:
    """Where a sequence repeats: `length` items end before `start`, and between them and the rest go copies."""

    start: int
    length: int

    def holds(self, index: int) -> bool:
        """Whether an item of the short sequence is of the piece."""
        return self.start - self.length <= index < self.start


def splits(few: Sequence[Item], more: Sequence[Item], copies: int) -> list[Split]:
    """Every place where `more` may be `few` with `copies` copies put in. Raises Unlike."""
    length, left = divmod(len(more) - len(few), copies)
    if left or length < 0:
        raise Unlike("its programs of few blocks do not grow by equal pieces")
    if not length:
        return [Split(0, 0)] if [_kind(one) for one in few] == [_kind(one) for one in more] else _no_piece()
    short, long = [_kind(one) for one in few], [_kind(one) for one in more]
    same = next((i for i, (a, b) in enumerate(zip(short, long)) if a != b), len(short))
    after = next((i for i, (a, b) in enumerate(zip(short[::-1], long[::-1])) if a != b), len(short))
    found = []
    for start in range(
        same, max(len(short) - after, length) - 1, -1
    ):  # the latest: what lies after is of the last block
        piece = long[start - length : start]
        if all(long[start + i * length : start + (i + 1) * length] == piece for i in range(copies)):
            found.append(Split(start, length))
    return found or _no_piece()


def _no_piece() -> list[Split]:
    raise Unlike("no piece of its program repeats from block to block")


def _kind(item: Item) -> tuple[object, ...]:
    return item.token, tuple(template(name) for name in item.names)


@dataclass(frozen=True, slots=True)
class Line:
    """A number: what it is in the short sequence, and what each copy, and each copy that there is, adds to it."""

    value: int
    by_copy: int
    by_count: int


@dataclass(frozen=True, slots=True)
class Rule:
    """How an item's names and reads go on."""

    names: tuple[tuple[Line, ...], ...]
    reads: tuple[Line, ...]


def rules(few: Sequence[Item], more: Sequence[Item], split: Split, copies: int) -> list[Rule]:
    """One for each item of `few`. Raises Unlike where `more` is not what they make of `few`."""
    found = []
    for index, item in enumerate(few):
        if split.holds(index):
            others = [more[index + copy * split.length] for copy in range(copies + 1)]
        else:
            others = [more[index if index < split.start else index + copies * split.length]]
        found.append(Rule(_names(item, others, copies), _reads(item, others, copies)))
    return found


def _names(item: Item, others: list[Item], copies: int) -> tuple[tuple[Line, ...], ...]:
    made = []
    for which, name in enumerate(item.names):
        columns = zip(numbers(name), *(numbers(other.names[which]) for other in others))
        made.append(tuple(_line(*column, copies=copies, what=name) for column in columns))
    return tuple(made)


def _reads(item: Item, others: list[Item], copies: int) -> tuple[Line, ...]:
    made = []
    what = item.names[0] if item.names else "an output"
    for which, (sequence, index, output) in enumerate(item.reads):
        if any(other.reads[which][::2] != (sequence, output) for other in others):
            raise Unlike(f"{what} reads other things in other blocks")
        made.append(_line(index, *(other.reads[which][1] for other in others), copies=copies, what=what))
    return tuple(made)


def _line(few: int, first: int, *rest: int, copies: int, what: str) -> Line:
    """Of `few` in the short sequence, and `first`, `rest` in the copies of the long one."""
    by_count, left = divmod(first - few, copies)
    by_copy = rest[0] - first if rest else 0
    if left or any(b - a != by_copy for a, b in zip((first, *rest), rest)):
        raise Unlike(f"the numbers of {what} do not go on evenly")
    return Line(few, by_copy, by_count)


@dataclass(frozen=True)
class Growth:
    """How a sequence goes on along one list of blocks."""

    split: Split
    rules: list[Rule]


@dataclass(frozen=True, slots=True)
class Placed:
    """An item of the grown sequence: which of the short one it is a copy of, and what it has become."""

    index: int
    copy: int
    names: tuple[str, ...]
    reads: tuple[tuple[int, int, int], ...]


def grown(few: Sequence[Item], growths: Sequence[Growth], counts: Sequence[int]) -> Iterator[Placed]:
    """The sequence with counts[i] more copies along growths[i]. Raises Unlike where two of them overlap."""
    order = sorted((growth.split.start, which) for which, growth in enumerate(growths) if growth.split.length)
    at = 0
    for start, which in order:
        split = growths[which].split
        if start - split.length < at:
            raise Unlike("the pieces of its lists of blocks lie within each other")
        for index in range(at, start):
            yield _placed(few, index, growths, counts, None, 0)
        for copy in range(1, counts[which] + 1):
            for index in range(start - split.length, start):
                yield _placed(few, index, growths, counts, which, copy)
        at = start
    for index in range(at, len(few)):
        yield _placed(few, index, growths, counts, None, 0)


def _placed(few, index: int, growths, counts, which: int | None, copy: int) -> Placed:
    item = few[index]
    each = [growth.rules[index] for growth in growths]

    def value(lines: Sequence[Line]) -> int:
        first = lines[0].value + sum(line.by_count * count for line, count in zip(lines, counts))
        return first + (lines[which].by_copy * copy if which is not None else 0)

    names = tuple(
        filled(name, [value(lines) for lines in zip(*(rule.names[i] for rule in each))])
        for i, name in enumerate(item.names)
    )
    reads = tuple(
        (sequence, value([rule.reads[i] for rule in each]), output)
        for i, (sequence, _, output) in enumerate(item.reads)
    )
    return Placed(index, copy, names, reads)
