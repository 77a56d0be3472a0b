"""Read the container of a .hwx file: a 64-bit little-endian Mach-O with its own magic.

It has the magic 0xbeefface, and load commands that Apple's loader.h does not know. Every offset and count is checked
against the file's length.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ane_sweep.errors import PackageError
from ane_sweep.mil import untrusted

MAGIC, CPU_TYPE = 0xBEEFFACE, 0x80
MAX_BYTES = 1 << 30  # of one file; the largest that was published has 403 MB of constants
SEGMENT, SYMBOLS, THREAD, IDENT, NAMED_32, NAMED_64 = 0x19, 0x2, 0x4, 0x8, 0x6, 0x40
TENSOR_THREAD = 3  # flavour; any other describes a program


@dataclass(frozen=True)
class FileSection:
    """A section of the file. `data` is empty if the section only reserves memory (inputs, outputs, scratch)."""

    segment: str
    name: str
    address: int
    size: int
    offset: int
    relocations: int
    data: memoryview = field(repr=False, compare=False)


@dataclass(frozen=True)
class Symbol:
    name: str
    address: int
    kind: int


@dataclass(frozen=True)
class Thread:
    """An LC_THREAD: its flavour, and its bytes from the start of the command, from which all published offsets count."""

    flavour: int
    data: bytes


@dataclass
class Container:
    path: Path
    size: int
    subtype: int
    sections: list[FileSection] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    named: dict[str, int] = field(default_factory=dict)  # name of an input or output -> address
    banner: str = ""
    symbols: list[Symbol] = field(default_factory=list)
    unknown: Counter[int] = field(default_factory=Counter)  # load commands that no table names

    def section(self, segment: str, name: str) -> FileSection | None:
        return next((item for item in self.sections if (item.segment, item.name) == (segment, name)), None)


class FileBytes:
    """A file's bytes; reading past their end raises a PackageError that names the part being read."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data = path, data

    def wrong(self, what: str) -> PackageError:
        return PackageError(f"{self.path}: not a readable Neural Engine program: {what}")

    def unpack(self, form: str, offset: int, what: str) -> tuple[int, ...]:
        if offset < 0 or offset + struct.calcsize("<" + form) > len(self.data):
            raise self.wrong(f"{what} at byte {offset} lies outside its {len(self.data)} bytes")
        return struct.unpack_from("<" + form, self.data, offset)

    def slice(self, offset: int, size: int, what: str) -> bytes:
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise self.wrong(f"{what}: {size} bytes at byte {offset} lie outside its {len(self.data)} bytes")
        return self.data[offset : offset + size]


def text_at(data: bytes, offset: int) -> str:
    """Return a string that ends with a zero byte or the data; empty for an offset outside of it."""
    return data[offset : offset + 4096].split(b"\0", 1)[0].decode("utf-8", "replace") if 0 <= offset < len(data) else ""


def read(path: Path) -> Container:
    """Read the container at `path`. Raises PackageError if the file is of another kind, truncated, or has offsets outside itself."""
    source = FileBytes(path, read_content(path, MAX_BYTES))
    magic, cpu, subtype, _, count, size = source.unpack("6I", 0, "the header")
    if magic != MAGIC or cpu != CPU_TYPE:
        raise source.wrong(f"it begins with {magic:#010x} and CPU type {cpu:#x}, not {MAGIC:#010x} and {CPU_TYPE:#x}")
    found = Container(path, len(source.data), subtype)
    for command, data in _iterate_commands(source, count, size):
        if command == SEGMENT:
            found.sections += _read_sections(source, data)
        elif command == THREAD:
            found.threads.append(Thread(data.unpack("I", 8, "a thread's flavour")[0], data.data))
        elif command in (NAMED_32, NAMED_64):
            where, _, address = data.unpack("2II" if command == NAMED_32 else "2IQ", 8, "a named address")
            found.named[text_at(data.data, where)] = address
        elif command == IDENT:
            found.banner = text_at(data.data, 8).strip()
        elif command == SYMBOLS:
            found.symbols += _read_symbols(source, data)
        else:
            found.unknown[command] += 1
    return found


def read_content(path: Path, most: int) -> bytes:
    """Return the content of a file of at most `most` bytes. Raises PackageError if it cannot be read."""
    try:
        return untrusted.read_file(path, most)
    except IsADirectoryError:
        raise PackageError(f"{path}: a folder; name a .hwx file in it") from None
    except ValueError as error:
        raise PackageError(f"{path}: not read: {error}") from None
    except OSError as error:
        raise PackageError(f"{path}: cannot be read: {error.strerror or error}") from None


def _iterate_commands(source: FileBytes, count: int, size: int) -> Iterator[tuple[int, FileBytes]]:
    """Yield the kind and the bytes of each load command."""
    at = 32
    for number in range(count):
        command, length = source.unpack("2I", at, f"load command {number}")
        if length < 8 or at + length > 32 + size:
            raise source.wrong(f"load command {number} of {count} says {length} bytes, all of them have {size}")
        yield command, FileBytes(source.path, source.slice(at, length, f"load command {number}"))
        at += length


def _read_sections(source: FileBytes, command: FileBytes) -> Iterator[FileSection]:
    count, _ = command.unpack("2I", 64, "a segment")
    for number in range(count):
        at = 72 + 80 * number
        address, size, offset, _, _, relocations = command.unpack("2Q4I", at + 32, "a section")
        name, segment = (text_at(command.slice(at + where, 16, "a section"), 0) for where in (0, 16))
        held = source.slice(offset, size, f"section {segment},{name}") if offset else b""
        yield FileSection(segment, name, address, size, offset, relocations, memoryview(held))


def _read_symbols(source: FileBytes, command: FileBytes) -> Iterator[Symbol]:
    table, count, strings, size = command.unpack("4I", 8, "the symbol table")
    names = source.slice(strings, size, "the names of symbols")
    entries = source.slice(table, 16 * count, "the symbol table")
    for name, kind, _, _, address in struct.iter_unpack("<IBBHQ", entries):
        yield Symbol(text_at(names, name), address, kind)
