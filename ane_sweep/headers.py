"""The header of a safetensors file, read without trusting it: 8 bytes little-endian length, that many bytes of JSON, the
data (huggingface/safetensors, README "Format"). Standard library only.
"""

import math
import re
from pathlib import Path
from typing import Any

from ane_sweep import bridge

MOST_BYTES = 100_000_000  # of a header, as safetensors itself has it


def read(path: Path) -> dict[str, Any]:
    """Tensor name -> {dtype, shape, data_offsets}, all checked against the file's size.

    Raises ValueError, OSError for a file that is truncated, not safetensors, or that claims what it does not hold.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > min(size, MOST_BYTES):
            raise ValueError(f"its header claims {length} bytes")
        header = bridge.parse_json(stream.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    header.pop("__metadata__", None)
    end = 8 + length + max((_end(name[:80], tensor) for name, tensor in header.items()), default=0)
    if end != size:
        raise ValueError(f"{size} bytes where its header needs {end}")
    return header


def _end(name: str, tensor: Any) -> int:
    """Where the data of a tensor ends, counted from where data begins. Raises ValueError for what does not add up."""
    kinds = {"dtype": str, "shape": list, "data_offsets": list}
    if not isinstance(tensor, dict) or any(not isinstance(tensor.get(key), kind) for key, kind in kinds.items()):
        raise ValueError(f"its header says {str(tensor)[:80]} of {name!r}")
    dtype, shape, places = tensor["dtype"], tensor["shape"], tensor["data_offsets"]
    if len(places) != 2 or any(type(number) is not int or number < 0 for number in [*shape, *places]):
        raise ValueError(f"its header gives {name!r} the shape {str(shape)[:80]} at {str(places)[:80]}")
    bits = re.search(r"\d+", dtype)  # F32, BF16, I64, F8_E4M3; BOOL is a byte
    takes = math.prod(shape) * (int(bits[0][:3]) if bits else 8) // 8
    if takes != places[1] - places[0]:
        raise ValueError(
            f"{name!r}, {dtype[:20]} {str(shape)[:80]}, needs {takes} bytes and has {places[1] - places[0]}"
        )
    return places[1]
