"""Read the inputs and outputs of a program from its LC_THREADs of flavour 3: element, shape, strides, bytes.

A row of W is padded to 64 bytes: a tensor of one column of halves takes 32 times its bytes.
"""

import struct
from dataclasses import dataclass
from math import prod

from ane_sweep.errors import PackageError
from ane_sweep.hwx import facts
from ane_sweep.hwx.container import TENSOR_THREAD, Container, text_at

_ROLES = {1: "input", 2: "output"}
_BINDING, _NAME, _SHAPE, _STRIDES, _BYTES, _OTHER_NAME, _END = 0x14, 0x20, 0x28, 0x50, 0x70, 0x7C, 0x80


@dataclass(frozen=True)
class TensorBinding:
    """An input or output: shape N, C, H, W; strides in bytes in the same order."""

    name: str
    role: str
    element: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int | None
    bytes: int
    used_bytes: int

    @property
    def wasted(self) -> float:
        """Return the share of `bytes` that is padding."""
        return 1 - self.used_bytes / self.bytes if self.bytes else 0.0


def read(container: Container) -> list[TensorBinding]:
    """Read the tensors in the file's order. Raises PackageError for a truncated one."""
    return [_read_tensor(thread.data, container) for thread in container.threads if thread.flavour == TENSOR_THREAD]


def _read_tensor(data: bytes, container: Container) -> TensorBinding:
    if len(data) < _END:
        raise PackageError(f"{container.path}: the description of a tensor has {len(data)} bytes of at least {_END}")
    (binding,) = struct.unpack_from("<I", data, _BINDING)
    (where, element) = struct.unpack_from("<2I", data, _NAME)
    shape = struct.unpack_from("<4I", data, _SHAPE)
    strides = struct.unpack_from("<4Q", data, _STRIDES)
    (size,) = struct.unpack_from("<Q", data, _BYTES)
    (other,) = struct.unpack_from("<I", data, _OTHER_NAME)
    name, symbol = text_at(data, where), text_at(data, other)
    named, bits = facts.elements().get(element, (f"element {element}", 0))
    address = container.named.get(symbol, container.named.get(name))
    role = _ROLES.get(binding, f"binding {binding}")
    return TensorBinding(
        name or symbol, role, named, shape, strides, address, size, min(size, -(-prod(shape) * bits // 8))
    )
