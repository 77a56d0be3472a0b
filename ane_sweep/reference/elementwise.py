"""Build the ops that work element by element, from a table of small functions.

Semantics: coremltools 9.0, converters/mil/mil/ops/defs (docstrings), checked against numpy in the tests.
"""

import math
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F

from ane_sweep.reference.site import Site, Step, align, compute_wide, op, widen

# fp16 kernels of torch compute these in fp32 inside and round once (tested bit by bit in tests/runtimes)
_NATIVE: dict[str, Callable[..., torch.Tensor]] = {
    "abs": torch.abs,
    "ceil": torch.ceil,
    "floor": torch.floor,
    "identity": lambda x: x,
    "relu": torch.relu,
    "relu6": F.relu6,
    "round": torch.round,  # halves to even, as numpy
    "sign": lambda x: torch.where(x.isnan(), x, torch.sign(x)),  # torch's says 0 for NaN
    "sqrt": torch.sqrt,
    "square": torch.square,
    "tanh": torch.tanh,
}
_WIDE: dict[str, Callable[..., torch.Tensor]] = {
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
    "softplus": lambda x: _softplus(x),  # torch's own switches to the identity above a threshold
    "softsign": F.softsign,
    "tan": torch.tan,
}


def _softplus(x: torch.Tensor) -> torch.Tensor:
    return torch.clamp(x, min=0) + torch.log1p(torch.exp(-x.abs()))


@op(*_NATIVE)
def native(site: Site) -> Step:
    return Step(_NATIVE[site.op.type], [site.name("x")])


@op(*_WIDE)
def in_fp32(site: Site) -> Step:
    return Step(compute_wide(_WIDE[site.op.type], site.dtype), [site.name("x")])


@op("logical_not")
def logical_not(site: Site) -> Step:
    return Step(torch.logical_not, [site.name("x")])


@op("cast")
def cast(site: Site) -> Step:
    """Cast: floats become integers by cutting off the fraction; any number but 0 becomes True.

    uint16 is held in a wider type and does not wrap: coremltools casts indices to it that may be negative, and its
    tests expect them back unchanged.
    """
    dtype = site.torch_dtype(site.static("dtype"))
    return Step(lambda x: x.to(dtype), [site.name("x")])


# The parametric ones: parameter names with their defaults, and f(x, *parameters) in fp32.
_PARAMETRIC: dict[str, tuple[dict[str, float | None], Callable[..., torch.Tensor]]] = {
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


@op(*_PARAMETRIC)
def parametric(site: Site) -> Step:
    parameters, function = _PARAMETRIC[site.op.type]
    values = [
        site.static(name) if default is None else site.static(name, default) for name, default in parameters.items()
    ]
    return Step(compute_wide(lambda x: function(x, *values), site.dtype), [site.name("x")])


def exact_gelu(x: torch.Tensor) -> torch.Tensor:
    """Return x / 2 * erfc(-x / sqrt 2), computed one precision up.

    torch's fp16 kernel is up to 2 ulp off, and 1 + erf loses most of the result below -3.
    """
    high = x.double() if x.dtype == torch.float32 else x.float()
    return high * 0.5 * torch.erfc(high * -math.sqrt(0.5))


@cache
def _gelu_of_every_half(device: torch.device) -> torch.Tensor:
    """Return exact_gelu of each fp16 number, in the order of their bits: a lookup takes a sixth of the time."""
    bits = torch.arange(1 << 16, dtype=torch.int32, device=device).to(torch.int16)
    return exact_gelu(bits.view(torch.float16)).half()


def _gelu(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return gelu by lookup, or computed if x is not contiguous fp16.

    A lookup would change the memory layout of x, which costs a convolution after it more.
    """
    if x.dtype != torch.float16 or dtype != torch.float16 or not x.is_contiguous():
        return exact_gelu(x).to(dtype)
    return _gelu_of_every_half(x.device).take(x.view(torch.int16).long().bitwise_and_(0xFFFF))


@op("gelu")
def gelu(site: Site) -> Step:
    mode = site.static("mode", "EXACT")
    if mode == "EXACT":
        return Step(lambda x: _gelu(x, site.dtype), [site.name("x")])
    if mode == "TANH_APPROXIMATION":
        return Step(lambda x: F.gelu(x, approximate="tanh"), [site.name("x")])
    return Step(compute_wide(lambda x: x * torch.sigmoid(1.702 * x), site.dtype), [site.name("x")])


@op("prelu", "softplus_parametric")
def per_channel(site: Site) -> Step:
    """Build the ops with one parameter for each channel (dimension 1)."""

    def channel(parameter: str, rank: int) -> torch.Tensor:
        return widen(values[parameter]).reshape(-1, *[1] * (rank - 2))

    values = {name: site.known_tensor(name) for name in ("alpha", "beta") if site.has(name)}
    if site.op.type == "prelu":
        function = lambda x: torch.where(x >= 0, x, channel("alpha", x.ndim) * x)  # noqa: E731
    else:
        function = lambda x: channel("alpha", x.ndim) * _softplus(channel("beta", x.ndim) * x)  # noqa: E731
    return Step(compute_wide(function, site.dtype), [site.name("x")])


# One rounding each: torch's fp16 kernels compute these in fp32.
_BINARY: dict[str, Callable[..., torch.Tensor]] = {
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


@op(*_BINARY)
def binary(site: Site) -> Step:
    return Step(_BINARY[site.op.type], [site.name("x"), site.name("y")])


def _floor_div(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.div(x, y, rounding_mode="floor")


_BINARY_WIDE: dict[str, Callable[..., torch.Tensor]] = {
    "floor_div": _floor_div,
    "mod": torch.remainder,  # the sign of the divisor, as numpy
    "pow": torch.pow,
    "real_div": torch.div,  # integers: true quotient, fraction cut off by the declared type
}


@op(*_BINARY_WIDE)
def binary_in_fp32(site: Site) -> Step:
    return Step(compute_wide(_BINARY_WIDE[site.op.type], site.dtype), [site.name("x"), site.name("y")])


@op("select")
def select(site: Site) -> Step:
    return Step(lambda cond, a, b: align(torch.where(cond, a, b)), [site.name(name) for name in ("cond", "a", "b")])
