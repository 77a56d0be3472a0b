"""Descriptions of ops for the rules and the estimator: type, inputs, outputs, and constants.

The same description comes from a program (`programs.py`) and from the calibration cases (`cases.py`), so the cases score
the same code that judges programs.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "fp16": 2, "bf16": 2, "int32": 4, "uint32": 4,
    "fp32": 4, "int64": 8, "uint64": 8, "fp64": 8,
}  # fmt: skip


class Tensor:
    """A value: element type by MIL's name, shape (None for sizes unknown before run time), and a flag for constants.

    `is_default`: the shape is the default one, and the program takes others too. `value` is the content of a small
    constant (number, text or tuple), None for run-time values and for weights, which are never read. `stored_bytes` is
    the size of a constant in the weight file if that is less than its shape gives, and `packing` its compression: the
    constexpr op, and for blockwise scales their element type and block length.
    """

    __slots__ = ("_decode", "_value", "const", "dtype", "elements", "is_default", "packing", "shape", "stored_bytes")

    def __init__(
        self,
        dtype: str,
        shape: tuple[int | None, ...],
        *,
        const: bool = False,
        value: object = None,
        decode: Callable[[], object] | None = None,
        stored_bytes: int | None = None,
        packing: str | None = None,
        is_default: bool = False,
    ):
        self.dtype = dtype
        self.shape = shape
        self.const = const
        self.elements = math.prod(length or 1 for length in shape)
        self.stored_bytes = stored_bytes
        self.packing = packing
        self.is_default = is_default
        self._value = value
        self._decode = decode

    @property
    def value(self) -> Any:
        if self._decode is not None:
            self._value, self._decode = self._decode(), None
        return self._value

    @property
    def bytes(self) -> int:
        return self.elements * BYTES.get(self.dtype, 1)

    @property
    def is_static(self) -> bool:
        return None not in self.shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        sizes = ",".join("?" if length is None else str(length) for length in self.shape)
        return f"{'const ' if self.const else ''}{self.dtype}[{sizes}]"


@dataclass(slots=True, eq=False, repr=False)
class Site:
    """One op of a program: `inputs` by parameter name (lists, for ops that take several), `outputs` in order.

    module: path of the torch module that the op comes from ("encoder.layer.3.attention"), as far as it is known.
    """

    type: str
    inputs: dict[str, list[Tensor]]
    outputs: list[Tensor]
    _: KW_ONLY
    name: str = ""
    function: str = "main"
    nested: bool = False
    module: str = ""

    def tensor(self, parameter: str) -> Tensor | None:
        found = self.inputs.get(parameter)
        return found[0] if found else None

    def value(self, parameter: str, default: object = None) -> Any:
        """Return the value of a constant parameter, or `default` if it is absent or cannot be read."""
        tensor = self.tensor(parameter)
        if tensor is None or not tensor.const or tensor.value is None:
            return default
        return tensor.value

    @property
    def data(self) -> list[Tensor]:
        """Return every input tensor that is not constant."""
        return [tensor for tensors in self.inputs.values() for tensor in tensors if not tensor.const]

    @property
    def constants(self) -> list[Tensor]:
        return [tensor for tensors in self.inputs.values() for tensor in tensors if tensor.const]

    def __repr__(self) -> str:
        reads = ", ".join(f"{name}={tensors}" for name, tensors in self.inputs.items())
        return f"{self.type}({reads}) -> {self.outputs}"
