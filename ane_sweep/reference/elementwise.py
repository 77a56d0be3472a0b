"""Build the ops that work element by element, from a table of small functions.

Semantics: coremltools 9.0, converters/mil/mil/ops/defs (docstrings), checked against numpy in the tests.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ane_sweep.reference.site import OPS, Builder, Site, Step, align, compute_wide, kernel, op, widen


def _softplus(x: Tensor) -> Tensor:
    """Return log(1 + exp(x)); torch's own switches to the identity above a threshold."""
    return torch.clamp(x, min=0) + torch.log1p(torch.exp(-x.abs()))


# fp16 kernels of torch compute these in fp32 inside and round once (tested bit by bit in tests/runtimes)
_UNARY: dict[str, Callable[..., Tensor]] = {
    "abs": torch.abs,
    "ceil": torch.ceil,
    "floor": torch.floor,
    "identity": lambda x: x,
    "logical_not": torch.logical_not,
    "relu": torch.relu,
    "relu6": F.relu6,
    "round": torch.round,  # halves to even, as numpy
    "sign": lambda x: torch.where(x.isnan(), x, torch.sign(x)),  # torch's says 0 for NaN
    "sqrt": torch.sqrt,
    "square": torch.square,
    "tanh": torch.tanh,
}
_UNARY_WIDE: dict[str, Callable[..., Tensor]] = {
    "acos": torch.acos,
    "asin": torch.asin,
    "atan": torch.atan,
    "atanh": torch.atanh,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "erf": torch.erf,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "softplus": _softplus,
    "softsign": F.softsign,
    "tan": torch.tan,
}
_BINARY: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "equal": torch.eq,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "less": torch.lt,
    "less_equal": torch.le,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "mul": torch.mul,
    "not_equal": torch.ne,
    "sub": torch.sub,
}
_BINARY_WIDE: dict[str, Callable[..., Tensor]] = {
    "floor_div": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "mod": torch.remainder,  # the sign of the divisor, as numpy
    "pow": torch.pow,
    "real_div": torch.div,  # integers: true quotient, fraction cut off by the declared type
}
# The parametric ones: parameter names with their defaults (None: required), and f(x, *parameters) in fp32.
_PARAMETRIC: dict[str, tuple[dict[str, float | None], Callable[..., Tensor]]] = {
    "clamped_relu": ({"alpha": None, "beta": None}, lambda x, a, b: torch.where(x >= 0, x, a * x).clamp(max=b)),
    "clip": ({"alpha": -math.inf, "beta": math.inf}, lambda x, a, b: x.clamp(a, b)),
    "elu": ({"alpha": 1.0}, lambda x, a: torch.where(x > 0, x, a * torch.expm1(x))),
    "inverse": ({"epsilon": 1e-4}, lambda x, e: 1 / (x + e)),
    "leaky_relu": ({"alpha": 0.01}, lambda x, a: torch.where(x >= 0, x, a * x)),
    "linear_activation": ({"alpha": None, "beta": 0.0}, lambda x, a, b: a * x + b),
    "log": ({"epsilon": 1e-45}, lambda x, e: torch.log(x + e)),
    "rsqrt": ({"epsilon": 1e-12}, lambda x, e: torch.rsqrt(x + e)),
    "scaled_tanh": ({"alpha": 1.0, "beta": 1.0}, lambda x, a, b: a * torch.tanh(b * x)),
    "sigmoid_hard": ({"alpha": 0.2, "beta": 0.5}, lambda x, a, b: (a * x + b).clamp(0, 1)),
    "threshold": ({"alpha": None}, lambda x, a: x.clamp(min=a)),
    "thresholded_relu": ({"alpha": 1.0}, lambda x, a: torch.where(x >= a, x, torch.zeros_like(x))),
}


_SLICE = 1 << 15  # elements a thread; torch gives a thread no fewer
# single operations that are rounded correctly: each element has the same bits wherever it lies in memory
_ANY_LAYOUT = {"abs", "add", "clip", "leaky_relu", "maximum", "minimum", "mul", "relu", "relu6", "sub", "threshold"}


def _step(site: Site, run: Callable[..., object], names: Sequence[str]) -> Step:
    layout: Literal["plain", "any"] = "any" if site.op.type in _ANY_LAYOUT else "plain"
    return Step(run, [site.name(name) for name in names], layout=layout)


def _builder(function: Callable[..., Tensor], names: tuple[str, ...], wide: bool) -> Builder:
    return lambda site: _step(site, compute_wide(function, site.dtype) if wide else function, names)


for _table, _names, _wide in (
    (_UNARY, ("x",), False), (_UNARY_WIDE, ("x",), True), (_BINARY, ("x", "y"), False), (_BINARY_WIDE, ("x", "y"), True),
):  # fmt: skip
    OPS.update({name: _builder(function, _names, _wide) for name, function in _table.items()})


@op(*_PARAMETRIC)
def parametric(site: Site) -> Step:
    parameters, function = _PARAMETRIC[site.op.type]
    values = [site.static(name, *([] if default is None else [default])) for name, default in parameters.items()]
    return _step(site, compute_wide(lambda x: function(x, *values), site.dtype), ["x"])


@op("cast")
def cast(site: Site) -> Step:
    """Return the step of a cast: floats become integers by cutting off the fraction; any number but 0 becomes True.

    uint16 is stored in a wider type and does not wrap: coremltools casts indices to uint16 that may be negative, and
    its tests expect them back unchanged.
    """
    dtype = site.torch_dtype(site.static("dtype"))
    return Step(lambda x: x.to(dtype), [site.name("x")])


def exact_gelu(x: Tensor) -> Tensor:
    """Return x / 2 * erfc(-x / sqrt 2), computed in the next wider type.

    torch's fp16 kernel is up to 2 ulp off, and 1 + erf loses most of the result below -3.
    """
    high = x.double() if x.dtype == torch.float32 else x.float()
    return torch.erfc(high * -math.sqrt(0.5)).mul_(high.mul_(0.5))


def _gelu_in_slices(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return exact_gelu of a contiguous tensor, a slice at a time: small buffers are used again, large ones cost page faults."""
    flat, size = x.view(-1), _SLICE * torch.get_num_threads()
    result = torch.empty_like(flat, dtype=dtype)
    for start in range(0, flat.numel(), size):
        result[start : start + size] = exact_gelu(flat[start : start + size])
    return result.view(x.shape)


@cache
def _gelu_of_every_half(device: torch.device) -> Tensor:
    """Return exact_gelu of every fp16 number, in the order of their bits: a lookup takes a sixth of the time."""
    bits = torch.arange(1 << 16, dtype=torch.int32, device=device).to(torch.int16)
    return exact_gelu(bits.view(torch.float16)).half()


@kernel("gelu")
def gelu(x: Tensor, *, mode: str = "EXACT", dtype: torch.dtype) -> Tensor:
    """Return gelu. The exact one uses a lookup, unless that would change the layout of x: a convolution after it costs more."""
    if mode == "TANH_APPROXIMATION":
        return F.gelu(x, approximate="tanh")
    if mode != "EXACT":
        x = widen(x)
        return (x * torch.sigmoid(1.702 * x)).to(dtype)
    if x.dtype != torch.float16 or dtype != torch.float16 or not x.is_contiguous():
        return _gelu_in_slices(x, dtype) if x.is_contiguous() else exact_gelu(x).to(dtype)
    return _gelu_of_every_half(x.device).take(x.view(torch.int16).long().bitwise_and_(0xFFFF))


def _per_channel(parameter: Tensor, x: Tensor) -> Tensor:
    """Return one number per channel (dimension 1) in a shape that broadcasts with x."""
    return widen(parameter).reshape(-1, *[1] * (x.ndim - 2))


@kernel("prelu", wide=True)
def prelu(x: Tensor, *, alpha: Tensor) -> Tensor:
    return torch.where(x >= 0, x, _per_channel(alpha, x) * x)


@kernel("softplus_parametric", wide=True)
def softplus_parametric(x: Tensor, *, alpha: Tensor, beta: Tensor) -> Tensor:
    return _per_channel(alpha, x) * _softplus(_per_channel(beta, x) * x)


@kernel("select")
def select(cond: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return align(torch.where(cond, a, b))
