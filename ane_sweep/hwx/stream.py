"""Decode a program's tasks: headers, and the registers that each of them writes.

    H13     tasks are a linked list: the container gives the length of the first, each task the length and place of the next
    later   tasks stand one after the other, 16-byte aligned, each with its own length; empty frames lie between them

A header is followed by one more word if its last word ends in two ones. After it come writes: on H13 `count - 1` in
bits 26 to 31 and a byte address; later a word address in bits 0 to 14, and either `count - 1` in bits 15 to 20, with the
number of a base address in bits 21 to 28 (bit 29 marks it), or, if bit 31 is set, a mask of the registers after the first.
A register that is not written is not zero: it is absent.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ane_sweep.errors import PackageError
from ane_sweep.hwx.facts import Generation

MAX_TASKS = 1 << 16  # of one program; 10,240 were seen
_FRAME = 4  # words


@dataclass
class TaskStream:
    """One task as stored in the file. `bars`: address -> number of the base address that loading adds to it."""

    offset: int
    words: int
    header: tuple[int, ...]
    extended: int | None
    registers: dict[int, int] = field(default_factory=dict)
    bars: dict[int, int] = field(default_factory=dict)


def read(text: memoryview, generation: Generation, first_words: int | None, count: int | None) -> list[TaskStream]:
    """Decode the tasks of a text section. Raises PackageError if the section does not fit its generation."""
    words = memoryview(bytes(text[: len(text) // 4 * 4])).cast("I")
    spans = _walk_linked(words, first_words, count) if generation.linked else _walk_aligned(words)
    found: list[TaskStream] = []
    for offset, size in spans:
        if len(found) == MAX_TASKS:
            raise PackageError(f"the program has more than {MAX_TASKS} tasks")
        found.append(_read_task(words[offset : offset + size], 4 * offset, generation))
    return found


def _walk_linked(words: memoryview, size: int | None, count: int | None) -> Iterator[tuple[int, int]]:
    """Yield (offset, size) in words. Without a count the list ends at a pointer of 0."""
    at, seen = 0, set[int]()
    if size is None:
        raise PackageError("the program does not say how long its first task is")
    while count is None or len(seen) < count:
        if at in seen:
            raise PackageError(f"the list of tasks comes back to byte {4 * at}")
        if size < 10 or at + size > len(words):
            raise PackageError(f"task {len(seen)}: {4 * size} bytes at byte {4 * at} of {4 * len(words)}")
        seen.add(at)
        yield at, size
        pointer, size = words[at + 7], (words[at + 1] >> 16 & 0x1FF) + 1
        if not pointer:
            return
        if pointer % 4:
            raise PackageError(f"task {len(seen)} would begin at byte {pointer}, between two words")
        at = pointer // 4


def _walk_aligned(words: memoryview) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(words):
        size = words[at] >> 16 & 0x7FF
        if at + size > len(words):
            raise PackageError(f"a task of {4 * size} bytes at byte {4 * at} of {4 * len(words)}")
        if size:
            yield at, size
        at += max(_FRAME, -(-size // _FRAME) * _FRAME)


def _read_task(words: memoryview, offset: int, generation: Generation) -> TaskStream:
    header = tuple(words[: generation.header_words])
    if len(header) < generation.header_words:
        raise PackageError(f"the task at byte {offset} is shorter than a header")
    at = generation.header_words
    extended = words[at] if header[-1] & 3 == 3 and at < len(words) else None
    made = TaskStream(offset, len(words), header, extended)
    at += extended is not None
    while at < len(words):
        at = _apply_write(words, at, made, generation.linked)
    return made


def _apply_write(words: memoryview, at: int, made: TaskStream, is_h13: bool) -> int:
    """Apply one write of registers and return the place of the next one."""
    head = words[at]
    addresses, bar = _decode_h13(head) if is_h13 else _decode_later(head)
    if at + 1 + len(addresses) > len(words):
        raise PackageError(
            f"the task at byte {made.offset} writes {len(addresses)} registers from {addresses[0]:#x}, and ends before"
        )
    for address, word in zip(addresses, words[at + 1 : at + 1 + len(addresses)]):
        if address % 4:
            raise PackageError(f"the task at byte {made.offset} writes to {address:#x}, between two registers")
        made.registers[address] = word
        if bar is not None:
            made.bars[address] = bar
    return at + 1 + len(addresses)


def _decode_h13(head: int) -> tuple[list[int], None]:
    """Return (the addresses of a write, None): on H13 a write names no base address."""
    base, count = head & 0x3FFFFFF, (head >> 26) + 1
    return [base + 4 * number for number in range(count)], None


def _decode_later(head: int) -> tuple[list[int], int | None]:
    base = 4 * (head & 0x7FFF)
    if head >> 31:
        mask = head >> 15 & 0xFFFF
        return [base, *(base + 4 * (bit + 1) for bit in range(16) if mask >> bit & 1)], None
    count = (head >> 15 & 0x3F) + 1
    return [base + 4 * number for number in range(count)], head >> 21 & 0xFF if head >> 29 & 1 else None
