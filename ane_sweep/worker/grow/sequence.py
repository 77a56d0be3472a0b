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


_NO_PIECE = "no piece of it repeats from block to block"
_MOST_TRIES = 100_000  # of places and items that are looked at: a second or two, where what takes long finds nothing
_MOST_PIECES = 4  # of a program: the weights that stay as they came lie before all that is done with them


def template(name: str) -> str:
    return _NUMBER.sub("#", name)


def numbers(name: str) -> list[int]:
    return [int(found) for found in _NUMBER.findall(name)]


def filled(name: str, values: list[int]) -> str:
    """`name` with these numbers in place of its own."""
    left = iter(values)
    return _NUMBER.sub(lambda _: str(next(left)), name)


def _kind(item: Item) -> tuple[object, ...]:
    return item.token, tuple(template(name) for name in item.names)


@dataclass(frozen=True)
class Split:
    """Where a sequence repeats: `length` items end before `start`, and between them and the rest go copies."""

    start: int
    length: int


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


@dataclass(frozen=True)
class Growth:
    """How a sequence goes on along one list of blocks: where copies are put in, and a rule for each of its items."""

    splits: tuple[Split, ...]
    rules: list[Rule]


def growth(few: Sequence[Item], more: Sequence[Item], copies: int) -> Growth:
    """By which `few` becomes `more` with `copies` copies of each piece, of as few pieces as will do. Raises Unlike."""
    left, odd = divmod(len(more) - len(few), copies)
    if odd or left < 0:
        raise Unlike("with more blocks it does not grow by equal pieces")
    search = _Search(few, more, copies)
    for pieces in range(1, _MOST_PIECES + 1) if left else (0,):
        try:
            splits, found = search.rest(0, 0, pieces)
            return Growth(tuple(splits), found)
        except Unlike:
            pass
    raise search.uneven or Unlike(_NO_PIECE)


class _Search:
    """Pieces from the front on. `shift`: by how much what follows lies further back in the longer sequence."""

    def __init__(self, few: Sequence[Item], more: Sequence[Item], copies: int):
        known: dict[object, int] = {}
        self.short, self.long = ([known.setdefault(_kind(one), len(known)) for one in items] for items in (few, more))
        self.few, self.more, self.copies = few, more, copies
        self.uneven: Unlike | None = None
        self.tried: set[tuple[int, int, int]] = set()
        self.tries = 0

    def rest(self, at: int, shift: int, pieces: int) -> tuple[list[Split], list[Rule]]:
        """The splits from item `at` on, so many, and the rules of all items from there on. Raises Unlike."""
        if (at, shift, pieces) in self.tried:
            raise Unlike(_NO_PIECE)
        self.tried.add((at, shift, pieces))
        short, long = self.short, self.long
        differ = (i for i in range(at, len(short)) if i + shift >= len(long) or short[i] != long[i + shift])
        same = next(differ, len(short))
        left = (len(long) - len(short) - shift) // self.copies
        if not pieces and same == len(short) and not left:
            return [], self._rules(at, len(short), 0, shift)
        for start in range(same, at, -1) if pieces else ():  # the latest: what lies after is of the last block
            for length in range(1, min(left, start - at) + 1) if pieces > 1 else (left,):
                self.tries += 1
                if length > start - at or self.tries > _MOST_TRIES or not self._repeats(start + shift, length):
                    continue
                try:
                    rules = self._rules(at, start, length, shift)
                    splits, others = self.rest(start, shift + self.copies * length, pieces - 1)
                    return [Split(start, length), *splits], rules + others
                except Unlike:
                    pass
        raise Unlike(_NO_PIECE)

    def _repeats(self, start: int, length: int) -> bool:
        """Whether the longer sequence has copies there of what lies before."""
        end = start + self.copies * length
        return (
            self.long[start - length] == self.long[start]
            and self.long[start - length : end - length] == self.long[start:end]
        )

    def _rules(self, first: int, start: int, length: int, shift: int) -> list[Rule]:
        """Of the items up to `start`, the last `length` of which are the piece. Raises Unlike."""
        found = []
        self.tries += start - first
        for index in range(first, start):
            copies = self.copies if index >= start - length else 0
            others = [self.more[index + shift + copy * length] for copy in range(copies + 1)]
            item = self.few[index]
            try:
                found.append(Rule(_names(item, others, self.copies), _reads(item, others, self.copies)))
            except Unlike as error:
                self.uneven = self.uneven or error
                raise
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
    if left or by_count < 0 or any(b - a != by_copy for a, b in zip((first, *rest), rest)):
        raise Unlike(f"the numbers of {what} do not go on evenly")
    return Line(few, by_copy, by_count)


@dataclass(frozen=True, slots=True)
class Placed:
    """An item of the grown sequence: which of the short one it is a copy of, and what it has become."""

    index: int
    copy: int
    names: tuple[str, ...]
    reads: tuple[tuple[int, int, int], ...]


def grown(few: Sequence[Item], growths: Sequence[Growth], counts: Sequence[int]) -> Iterator[Placed]:
    """The sequence with counts[i] more copies along growths[i]. Raises Unlike where two of them overlap."""
    order = sorted((split.start, split.length, which) for which, one in enumerate(growths) for split in one.splits)
    at = 0
    for start, length, which in order:
        if start - length < at:
            raise Unlike("the pieces of its lists of blocks lie within each other")
        for index in range(at, start):
            yield _placed(few, index, growths, counts, None, 0)
        for copy in range(1, counts[which] + 1):
            for index in range(start - length, start):
                yield _placed(few, index, growths, counts, which, copy)
        at = start
    for index in range(at, len(few)):
        yield _placed(few, index, growths, counts, None, 0)


def _placed(few, index: int, growths, counts, which: int | None, copy: int) -> Placed:
    item = few[index]
    each = [growth.rules[index] for growth in growths]

    def value(lines: Sequence[Line]) -> int:
        made = lines[0].value + sum(line.by_count * count for line, count in zip(lines, counts))
        made += lines[which].by_copy * copy if which is not None else 0
        if made < 0:
            raise Unlike(f"the numbers of {item.names[0] if item.names else 'an output'} fall under zero")
        return made

    names = tuple(
        filled(name, [value(lines) for lines in zip(*(rule.names[i] for rule in each))])
        for i, name in enumerate(item.names)
    )
    reads = tuple(
        (sequence, value([rule.reads[i] for rule in each]), output)
        for i, (sequence, _, output) in enumerate(item.reads)
    )
    return Placed(index, copy, names, reads)
