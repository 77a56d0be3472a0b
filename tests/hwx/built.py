"""Compiled programs put together from figures: a container as the byte map of an H17 program has it, around a stream."""

import struct
from pathlib import Path

INPUTS, OUTPUT, TEXT = 0x30000000, 0x3000C000, 0x30010000
_LENGTH = 0x890  # of the program's thread; its words of text and tasks lie where H14 and H17 have them


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def frame(*tasks: bytes) -> bytes:
    """The stream from H14 on: an empty frame, then each task, aligned to 16 bytes."""
    stream = words(1, 0, 0, 0)
    for task in tasks:
        stream += task + bytes(-len(task) % 16)
    return stream


def program(
    path: Path, subtype: int, text: bytes, tasks: int, bars: dict[int, int], names: dict[str, int], constants: int = 64
) -> Path:
    """A file of one program: its text, the address behind each base number, and the names of inputs and outputs."""
    commands = [
        _segment("__TEXT", [("__text", TEXT, len(text), 0x4000), ("__const", TEXT + 0x8000, constants, 0xC000)])
    ]
    commands += [_segment("__FVMLIB", [("__const", address, 0x1000, 0)]) for address in names.values()]
    commands += [_named(name, address) for name, address in names.items()]
    commands += [
        _thread(tasks, len(text) // 4, bars),
        _ident(b"ANEC v1\nzin_ane_compiler v9.509.0\n\t-t h14\n\t--fx=1\n"),
    ]
    held = b"".join(commands)
    header = words(0xBEEFFACE, 0x80, subtype, 2, len(commands), len(held), 0x200000, 0)
    whole = (header + held).ljust(0x4000, b"\0") + text
    path.write_bytes(whole.ljust(0xC000, b"\0") + bytes([7]) * constants)
    return path


def _segment(name: str, sections: list[tuple[str, int, int, int]]) -> bytes:
    held = b"".join(
        section.encode().ljust(16, b"\0")
        + name.encode().ljust(16, b"\0")
        + struct.pack("<2Q8I", address, size, at, 0, 0, 0, 0, 0, 0, 0)
        for section, address, size, at in sections
    )
    head = name.encode().ljust(16, b"\0") + struct.pack("<4Q4I", 0, 0, 0, 0, 0, 0, len(sections), 0)
    return struct.pack("<2I", 0x19, 8 + len(head) + len(held)) + head + held


def _named(name: str, address: int) -> bytes:
    text = name.encode() + b"\0"
    text += bytes(-len(text) % 8)
    return struct.pack("<4IQ", 0x40, 24 + len(text), 24, 0, address) + text


def _thread(tasks: int, text_words: int, bars: dict[int, int]) -> bytes:
    held = bytearray(_LENGTH)
    struct.pack_into("<4I", held, 0, 4, _LENGTH, 4, (_LENGTH - 16) // 4)
    for bar, address in bars.items():
        struct.pack_into("<Q", held, 0x10 + 4 * bar, address)
    struct.pack_into("<I", held, 0x824, text_words)
    struct.pack_into("<I", held, 0x830, tasks)
    return bytes(held)


def _ident(text: bytes) -> bytes:
    text += bytes(8 - len(text) % 8)
    return struct.pack("<2I", 8, 8 + len(text)) + text
