"""Read files that come from outside (checkpoints, packages) without trusting their claims about themselves.

These are JSON, names of other files, and the header of a safetensors file. Only the standard library is imported.
"""

import errno
import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

DEEPEST = 64  # levels of JSON: config.json, headers and manifests have fewer than ten
MOST_JSON_BYTES = 64 << 20
MOST_AXES = 64  # of a tensor: the product of a million of them alone would take hours
MOST_HEADER_BYTES = 100_000_000  # as safetensors itself has it


def open_file(path: Path, most: int) -> BinaryIO:
    """Open a regular file of at most `most` bytes for reading. Raises OSError; ValueError for a device, a pipe or a larger file.

    Opening never waits for the other end of a pipe.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_size <= most:
        return open(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is no regular file")
    raise ValueError(f"it has {found.st_size:,} bytes, more than {most:,}")


def read_file(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes; raises what `open_file` raises."""
    with open_file(path, most) as stream:
        content = stream.read(most + 1)
    if len(content) > most:  # it grew meanwhile, or it is one of /proc, whose files have no size
        raise ValueError(f"it has more than {most:,} bytes")
    return content


def read_json(path: Path) -> Any:
    """Parse a JSON file from outside (of a checkpoint or a package). Raises OSError, ValueError."""
    return parse_json(read_file(path, MOST_JSON_BYTES))


def parse_json(text: str | bytes) -> Any:
    """Parse JSON text from outside.

    Raises ValueError, also for more than DEEPEST levels and for numbers that are not finite: later steps can handle
    neither.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels") from None
    level = [value]
    for _ in range(DEEPEST):
        if any(isinstance(part, float) and not math.isfinite(part) for part in level):
            raise ValueError("it holds a number that is not finite")
        nested = (part.values() if isinstance(part, dict) else part for part in level if isinstance(part, (dict, list)))
        level = [item for part in nested for item in part]
        if not level:
            return value
    raise ValueError(f"it is nested deeper than {DEEPEST} levels")


def is_file_name(name: object) -> bool:
    """Return True if a name from outside is a plain file name, so that it cannot lead to another folder."""
    return isinstance(name, str) and name.isprintable() and len(name.encode()) < 256 and Path(name).name == name


def read_safetensors_header(path: Path) -> dict[str, Any]:
    """Return tensor name -> {dtype, shape, data_offsets}, all checked against the file's size.

    Raises ValueError or OSError for a file that is truncated, not safetensors, or inconsistent.
    Format: 8 bytes little-endian length, that many bytes of JSON, the data (huggingface/safetensors, README "Format").
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > min(size, MOST_HEADER_BYTES):
            raise ValueError(f"its header claims {length} bytes")
        header = parse_json(stream.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    header.pop("__metadata__", None)
    end = 8 + length + max((_find_data_end(name[:80], tensor) for name, tensor in header.items()), default=0)
    if end != size:
        raise ValueError(f"{size} bytes where its header needs {end}")
    return header


def _find_data_end(name: str, tensor: object) -> int:
    """Return the end of a tensor's data, counted from the start of all data. Raises ValueError for contradictions."""
    kinds = {"dtype": str, "shape": list, "data_offsets": list}
    if not isinstance(tensor, dict) or any(not isinstance(tensor.get(key), kind) for key, kind in kinds.items()):
        raise ValueError(f"its header says {str(tensor)[:80]} of {name!r}")
    dtype, shape, places = tensor["dtype"], tensor["shape"], tensor["data_offsets"]
    if len(shape) > MOST_AXES:
        raise ValueError(f"its header gives {name!r} {len(shape)} axes")
    if len(places) != 2 or any(type(number) is not int or number < 0 for number in [*shape, *places]):
        raise ValueError(f"its header gives {name!r} the shape {str(shape)[:80]} at {str(places)[:80]}")
    bits = re.search(r"\d+", dtype)  # F32, BF16, I64, F8_E4M3; BOOL is a byte
    takes = math.prod(shape) * (int(bits[0][:3]) if bits else 8) // 8
    if takes != places[1] - places[0]:
        raise ValueError(
            f"{name!r}, {dtype[:20]} {str(shape)[:80]}, needs {takes} bytes and has {places[1] - places[0]}"
        )
    return int(places[1])
