"""The extrapolation of a longer sequence from two shorter ones: where pieces repeat, and how numbers in names continue.

Two conversions of the same model with `few` and `more` blocks differ by copies of a piece, and numbers in generated
names (`op_128`, `h_3_ln_1_weight`) are affine in the copy's index and in the count of copies. For other sequences,
Unlike is raised and names the first difference.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

_NUMBER = re.compile(r"(?<![0-9])(?:0|[1-9][0-9]*)(?![0-9])")


class Unlike(Exception):
    """Raised if a program cannot be grown; the message is a reason that completes a sentence."""


@dataclass(frozen=True, slots=True)
class Item:
    """One op, port or call of a sequence.

    token  identifies its kind and contents, without names
    names  its own name, and the names of its outputs and weights
    reads  the sources of its inputs, each as (sequence, index, output)
    """

    token: object
    names: tuple[str, ...]
    reads: tuple[tuple[int, int, int], ...] = ()


_NO_PIECE = "no piece of it repeats from block to block"
_MOST_TRIES = 100_000  # places and items compared, a second or two: longer searches have found nothing
_MOST_PIECES = 4  # of a program: weights that no pass folded lie in pieces of their own before the ops


def _kind(item: Item) -> tuple[object, ...]:
    return item.token, tuple(_NUMBER.sub("#", name) for name in item.names)


@dataclass(frozen=True)
class Split:
    """A place where a sequence repeats: copies of the `length` items before `start` are inserted at `start`."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Line:
    """A number in a name of the short sequence, with its increase per copy before this item, and per copy in total."""

    value: int
    by_copy: int
    by_count: int


@dataclass(frozen=True, slots=True)
class Rule:
    """The lines that give an item's numbers in names, and its reads, in the grown sequence."""

    names: tuple[tuple[Line, ...], ...]
    reads: tuple[Line, ...]


@dataclass(frozen=True)
class Growth:
    """The growth of a sequence along one list of blocks: the splits that insert copies, and a rule for each item."""

    splits: tuple[Split, ...]
    rules: list[Rule]


def find_growth(few: Sequence[Item], more: Sequence[Item], copies: int) -> Growth:
    """Return the growth by which `few` becomes `more` with `copies` copies of each piece, in the fewest pieces. Raises Unlike."""
    left, odd = divmod(len(more) - len(few), copies)
    if odd or left < 0:
        raise Unlike("with more blocks it does not grow by equal pieces")
    search = _Search(few, more, copies)
    for pieces in range(1, _MOST_PIECES + 1) if left else (0,):
        with suppress(Unlike):
            splits, found = search.rest(0, 0, pieces)
            return Growth(tuple(splits), found)
    raise search.uneven or Unlike(_NO_PIECE)


class _Search:
    """A search for pieces from front to back. `shift`: index of the next item in the longer sequence minus its index in the short one."""

    def __init__(self, few: Sequence[Item], more: Sequence[Item], copies: int):
        known: dict[object, int] = {}
        self.short, self.long = ([known.setdefault(_kind(one), len(known)) for one in items] for items in (few, more))
        self.few, self.more, self.copies = few, more, copies
        self.uneven: Unlike | None = None
        self.tried: set[tuple[int, int, int]] = set()
        self.tries = 0

    def rest(self, at: int, shift: int, pieces: int) -> tuple[list[Split], list[Rule]]:
        """Return `pieces` splits from item `at` on, and the rules of all further items. Raises Unlike."""
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
                with suppress(Unlike):
                    rules = self._rules(at, start, length, shift)
                    splits, others = self.rest(start, shift + self.copies * length, pieces - 1)
                    return [Split(start, length), *splits], rules + others
        raise Unlike(_NO_PIECE)

    def _repeats(self, start: int, length: int) -> bool:
        """Return True if the longer sequence continues at `start` with copies of the `length` items before it."""
        end = start + self.copies * length
        return (
            self.long[start - length] == self.long[start]
            and self.long[start - length : end - length] == self.long[start:end]
        )

    def _rules(self, first: int, start: int, length: int, shift: int) -> list[Rule]:
        """Return the rules of the items before `start`, the last `length` of which are the piece. Raises Unlike."""
        found = []
        self.tries += start - first
        for index in range(first, start):
            copies = self.copies if index >= start - length else 0
            others = [self.more[index + shift + copy * length] for copy in range(copies + 1)]
            try:
                found.append(_fit_rule(self.few[index], others, self.copies))
            except Unlike as error:
                self.uneven = self.uneven or error
                raise
        return found


def _fit_rule(item: Item, others: list[Item], copies: int) -> Rule:
    """Return the rule by which an item of the short sequence becomes the given items of the longer one. Raises Unlike."""
    every = (item, *others)
    names = []
    for which, name in enumerate(item.names):
        columns = zip(*(map(int, _NUMBER.findall(one.names[which])) for one in every))
        names.append(tuple(_fit_line(*column, copies=copies, what=name) for column in columns))
    reads, what = [], item.names[0] if item.names else "an output"
    for which, (sequence, _, output) in enumerate(item.reads):
        if any(other.reads[which][::2] != (sequence, output) for other in others):
            raise Unlike(f"{what} reads other things in other blocks")
        reads.append(_fit_line(*(one.reads[which][1] for one in every), copies=copies, what=what))
    return Rule(tuple(names), tuple(reads))


def _fit_line(few: int, first: int, *rest: int, copies: int, what: str) -> Line:
    """Return the line through a number of the short sequence and its values in the longer one. Raises Unlike."""
    by_count, left = divmod(first - few, copies)
    by_copy = rest[0] - first if rest else 0
    if left or by_count < 0 or any(b - a != by_copy for a, b in zip((first, *rest), rest)):
        raise Unlike(f"the numbers of {what} do not go on evenly")
    return Line(few, by_copy, by_count)


@dataclass(frozen=True, slots=True)
class Placed:
    """An item of the grown sequence: the index of its source in the short sequence, with its new names and reads."""

    index: int
    names: tuple[str, ...]
    reads: tuple[tuple[int, int, int], ...]


def grow_sequence(few: Sequence[Item], growths: Sequence[Growth], counts: Sequence[int]) -> Iterator[Placed]:
    """Yield the sequence grown by counts[i] more copies along growths[i]. Raises Unlike if two growths overlap."""
    order = sorted((split.start, split.length, which) for which, one in enumerate(growths) for split in one.splits)
    at = 0
    for start, length, which in [*order, (len(few), 0, 0)]:
        if start - length < at:
            raise Unlike("the pieces of its lists of blocks lie within each other")
        for index in range(at, start):
            yield _place_item(few[index], index, growths, counts)
        for copy in range(1, counts[which] + 1 if length else 1):
            for index in range(start - length, start):
                yield _place_item(few[index], index, growths, counts, which, copy)
        at = start


def _place_item(
    item: Item, index: int, growths: Sequence[Growth], counts: Sequence[int], which: int = 0, copy: int = 0
) -> Placed:
    rules = [growth.rules[index] for growth in growths]

    def value(lines: Sequence[Line]) -> str:
        made = lines[0].value + lines[which].by_copy * copy
        made += sum(line.by_count * count for line, count in zip(lines, counts))
        if made < 0:
            raise Unlike(f"the numbers of {item.names[0] if item.names else 'an output'} fall under zero")
        return str(made)

    def rename(which: int, name: str) -> str:
        numbers = map(value, zip(*(rule.names[which] for rule in rules)))
        return _NUMBER.sub(lambda _: next(numbers), name)

    reads = tuple(
        (sequence, int(value([rule.reads[i] for rule in rules])), output)
        for i, (sequence, _, output) in enumerate(item.reads)
    )
    return Placed(index, tuple(rename(i, name) for i, name in enumerate(item.names)), reads)
