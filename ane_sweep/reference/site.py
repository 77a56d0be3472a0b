"""Define the arguments of an op's builder (Site), its result (Step), and the table of builders (OPS)."""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import torch

from ane_sweep.errors import PackageError, UnsupportedOp
from ane_sweep.mil.element_types import TensorType
from ane_sweep.mil.graph import Op
from ane_sweep.reference.constants import Constant, hold, resolve

TORCH_DTYPES = {
    "bool": torch.bool,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "uint16": torch.int32,  # torch computes little in its own unsigned types: the next wider one holds their values
    "uint32": torch.int64,
    "uint64": torch.int64,
    **dict.fromkeys(("uint1", "uint2", "uint3", "uint4", "uint6"), torch.uint8),
    "int4": torch.int8,
}
_HELD_WIDER = {np.dtype(np.uint16): np.int32, np.dtype(np.uint32): np.int64, np.dtype(np.uint64): np.int64}
ALIGNMENT = 64
_REQUIRED = object()


@dataclass(slots=True)
class Step:
    """One op of a plan: `run(*arguments)` returns its output, or a tuple if the op has several outputs (or none).

    `arguments` are value names, looked up at each run; constants are prepared once, inside `run`. `is_pure` is False if
    two runs with the same arguments differ (random numbers, states). `layout` is the order of values in memory: "plain"
    takes and returns contiguous tensors; "any" takes every order, with the same bits; "channels_last" as well, and returns
    that order (N, H, W, C).
    """

    run: Callable[..., object]
    arguments: list[str]
    is_pure: bool = True
    layout: Literal["plain", "any", "channels_last"] = "plain"


class NestedPlan(Protocol):
    """A compiled nested block: its declared inputs, the outside values that it reads, and its outputs in order."""

    own: list[str]
    free: list[str]
    listed: list[str]

    def run(self, values: dict[str, object]) -> dict[str, object]:
        """Return the outputs by name."""


class NotYet(Exception):
    """Raised when a builder needs a value that only exists at run time: the op is then built at each run."""


Builder = Callable[["Site"], Step]
OPS: dict[str, Builder] = {}


def op(*names: str) -> Callable[[Builder], Builder]:
    """Return a decorator that registers a builder for the named ops."""

    def register(builder: Builder) -> Builder:
        OPS.update(dict.fromkeys(names, builder))
        return builder

    return register


Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def kernel(*names: str, wide: bool = False, is_pure: bool = True) -> Callable[[Kernel], Kernel]:
    """Return a decorator that registers a function of tensors for the named ops, together with the step that calls it.

    The function's parameters have the names of the op's parameters. Positional ones are values of the run: one with a
    default may be absent, `*values` takes several. Keyword-only ones are read once, while the step is built: as a
    tensor if annotated so, else as plain Python; `dtype` is the output's type, `kind` the op's name, `where` its place
    for messages. `wide` computes in fp32, as `compute_wide`.
    """

    def register(function: Kernel) -> Kernel:
        parameters = inspect.signature(function).parameters.values()

        def build(site: Site) -> Step:
            arguments = [name for parameter in parameters for name in _read_arguments(site, parameter)]
            fixed = {one.name: _read_parameter(site, one) for one in parameters if one.kind is one.KEYWORD_ONLY}
            run = partial(function, **fixed) if fixed else function
            return Step(compute_wide(run, site.dtype) if wide else run, arguments, is_pure)

        build.__module__ = function.__module__
        OPS.update(dict.fromkeys(names, build))
        return function

    return register


def _read_arguments(site: "Site", parameter: inspect.Parameter) -> list[str]:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return site.names(parameter.name)
    is_absent = parameter.default is not parameter.empty and not site.has(parameter.name)
    return [] if parameter.kind is parameter.KEYWORD_ONLY or is_absent else [site.name(parameter.name)]


def _read_parameter(site: "Site", parameter: inspect.Parameter) -> object:
    name = parameter.name
    if parameter.annotation is torch.Tensor:
        site.name(name)  # raises if it is missing
    if parameter.annotation in (torch.Tensor, torch.Tensor | None):
        return site.known_tensor(name)
    if name == "dtype":
        return site.dtype
    if name in ("kind", "where"):
        return site.op.type if name == "kind" else f"{site.where}: {site.op}"
    return site.static(name, _REQUIRED if parameter.default is parameter.empty else parameter.default)


class Site:
    """One op while its step is built: its parameters, constants and declared output type.

    `known` maps names of values that do not depend on the inputs to their tensors, large ones to a Constant (or to strings
    and lists). `opset` is
    the number in the program's opset (5 = iOS15, 6 = iOS16, 7 = iOS17, 8 = iOS18 ...), `dtypes` the torch type of each
    MIL type under the mode of numerics, `blocks` the op's nested blocks, compiled. For an op that needs values of the
    run, a second site is made at run time, with everything known.
    """

    def __init__(
        self,
        op: Op,
        outputs: list[TensorType | None],
        known: Mapping[str, object],
        where: str,
        opset: int = 8,
        dtypes: dict[str, torch.dtype] = TORCH_DTYPES,
        blocks: Sequence[NestedPlan] = (),
    ):
        self.op, self.outputs, self.known, self.where, self.opset = op, outputs, known, where, opset
        self.dtypes, self.blocks = dtypes, blocks

    def has(self, parameter: str) -> bool:
        return bool(self.op.inputs.get(parameter))

    def name(self, parameter: str) -> str:
        """Return the name of the value given for a parameter."""
        (name,) = self.names(parameter)
        return name

    def names(self, parameter: str) -> list[str]:
        if not self.has(parameter):
            raise PackageError(f"{self.where}: {self.op} lacks its input `{parameter}`; the program is damaged")
        return self.op.names(parameter)

    def is_static(self, parameter: str) -> bool:
        return self.has(parameter) and all(name in self.known for name in self.op.names(parameter))

    def static(self, parameter: str, default: Any = _REQUIRED) -> Any:
        """Return a parameter as plain Python: number, bool, str or list.

        Raises NotYet if the value is only known at run time, PackageError if it is missing and has no default.
        """
        if default is not _REQUIRED and not self.has(parameter):
            return default
        values = self.listed(parameter)
        return values[0] if len(values) == 1 else values

    def listed(self, parameter: str) -> list[Any]:
        """Return a parameter that takes several arguments as a list of plain Python values."""
        names = self.names(parameter)
        if not self.is_static(parameter):
            raise NotYet
        values = [resolve(self.known[name]) for name in names]
        return [value.tolist() if isinstance(value, torch.Tensor) else value for value in values]

    def tensor(self, parameter: str) -> torch.Tensor | None:
        """Return the constant given for a parameter, or None if it is absent or computed."""
        if not self.is_static(parameter):
            return None
        value = self.known[self.name(parameter)]
        value = value.read() if isinstance(value, Constant) else value
        if not isinstance(value, torch.Tensor):
            raise self.unsupported(f"with a `{parameter}` that is no tensor")
        return value

    def constant(self, parameter: str) -> Constant | None:
        """Return the constant given for a parameter without reading it, or None if it is absent or computed."""
        value = self.known[self.name(parameter)] if self.is_static(parameter) else None
        if isinstance(value, Constant):
            return value
        tensor = self.tensor(parameter)
        return None if tensor is None else hold(tensor)

    def known_constant(self, parameter: str) -> Constant | None:
        """Return the constant given for a parameter, or None if it is absent. Raises NotYet if it is computed."""
        if self.has(parameter) and not self.is_static(parameter):
            raise NotYet
        return self.constant(parameter)

    def known_tensor(self, parameter: str) -> Any:
        """Return the tensor given for a parameter, or None if it is absent. Raises NotYet if it is computed."""
        if self.has(parameter) and not self.is_static(parameter):
            raise NotYet
        return self.tensor(parameter)

    @property
    def dtype(self) -> torch.dtype:
        """Return the declared element type of the (first) output."""
        return self.dtype_of(0)

    def dtype_of(self, index: int) -> torch.dtype:
        kind = self.outputs[index] if index < len(self.outputs) else None
        if kind is None:
            raise self.unsupported("with an output that is no tensor")
        return self.torch_dtype(kind.dtype)

    def torch_dtype(self, name: str) -> torch.dtype:
        """Return torch's type for a MIL element type, under the mode of numerics; types of less than a byte take a whole byte."""
        if name not in self.dtypes:
            raise self.unsupported(f"with values of type {name}")
        return self.dtypes[name]

    @property
    def known_shape(self) -> tuple[int, ...] | None:
        """Return the declared shape of the (first) output, or None if it is only known at run time."""
        kind = self.outputs[0] if self.outputs else None
        if kind is None:
            return None
        sizes = [size for size in kind.shape if size is not None]
        return tuple(sizes) if len(sizes) == len(kind.shape) else None

    def unsupported(self, how: str) -> UnsupportedOp:
        return UnsupportedOp(
            f"{self.where}: the reference runtime does not execute {self.op} {how}; "
            "run this cell with runtime=torch_eager, or runtime=coreml on a Mac"
        )


def align(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same values, contiguous and 64-byte aligned (the second law of the package); copies only if it must."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def from_numpy(array: np.ndarray) -> torch.Tensor:
    """Return a read-only tensor over a constant's own memory if that is aligned (mapped weights are), else a copy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that mapped weights are read-only
        array = np.asarray(array)
        if array.dtype in _HELD_WIDER:
            array = array.astype(_HELD_WIDER[array.dtype])
        return align(torch.from_numpy(array))


def compute_wide(function: Callable[..., torch.Tensor], dtype: torch.dtype) -> Callable[..., torch.Tensor]:
    """Return `function` wrapped to compute in fp32 on fp16 arguments, with its result rounded to `dtype`."""

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        return function(*[widen(tensor) for tensor in tensors]).to(dtype)

    return run


def widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype == torch.float16 else tensor


@cache
def half_accumulates_wide(device: str = "cpu") -> bool:
    """Return True if this CPU (or GPU) multiplies fp16 matrices fast and sums in fp32.

    The hardware's description is read, then tested: 2048 + 1 is 2048 in fp16, so a sum of 2048 and 4095 ones tells the
    two kinds of accumulation apart (6144 after one rounding of 6143; 2048 or little more otherwise).
    """
    if device == "cpu" and not torch.ops.mkldnn._is_mkldnn_fp16_supported():
        return False
    row = torch.ones(1, 40, 4096, dtype=torch.float16, device=device)
    row[..., 0] = 2048
    ones = torch.ones(40, 4096, dtype=torch.float16, device=device)
    bias = torch.zeros(40, dtype=torch.float16, device=device)
    results = [
        torch.nn.functional.linear(row, ones, bias),
        torch.bmm(row, ones.t()[None].contiguous()),
        torch.addmm(bias[:, None], ones, row[0].t().contiguous()),
    ]
    return all(bool((result == 6144).all()) for result in results)
