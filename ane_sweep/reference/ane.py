"""Model the known arithmetic of the Neural Engine as effects on top of fp16, each with its source and confidence.

It is a model, not a measurement: a run under it is recorded as such, with the effects by name (mil/effects.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from ane_sweep.mil.effects import LIMIT
from ane_sweep.reference import fixed_point
from ane_sweep.reference.linear import attend, crop_transposed, pad_spatial, read_window, resolve_padding
from ane_sweep.reference.site import Site, Step, align, widen

_LARGEST_LOG = math.log(torch.finfo(torch.float16).max)


def apply_effects(site: Site, step: Step, effects: tuple[str, ...]) -> Step:
    """Return the step of an op under these effects."""
    kind = site.op.type
    if kind in _PRODUCTS and _is_half(site) and {"accumulator", "products", "operands", "half_away"} & set(effects):
        step = _PRODUCTS[kind](site, step, effects)
    elif kind == "softplus" and "softplus_cliff" in effects:
        step = _change_result(step, lambda y, x: torch.where(torch.exp(widen(x)) >= LIMIT, torch.zeros_like(y), y))
    elif kind == "reduce_log_sum_exp" and "logsumexp_cliff" in effects and _is_half(site):
        step = _change_result(step, lambda y, *_: torch.where(widen(y) > _LARGEST_LOG, torch.zeros_like(y), y))
    elif kind in ("reduce_sum", "reduce_mean") and "narrow_sums" in effects and _is_half(site):
        step = _sum_narrowly(site, step)
    elif kind in TABLES and _is_half(site):
        step = _activation(site, step, effects)
    if _is_half(site) and {"positive_zero", "flush"} & set(effects):
        step = _change_result(step, lambda y, *_: _clean(y, effects))
    return step


def _is_half(site: Site) -> bool:
    return bool(site.outputs) and site.outputs[0] is not None and site.outputs[0].dtype == "fp16"


def _change_result(step: Step, change: Callable[..., Tensor]) -> Step:
    """Return the step with its (first) result changed by `change(result, *arguments)`."""

    def run(*values: object) -> object:
        made = step.run(*values)
        if isinstance(made, tuple):
            return (change(made[0], *values), *made[1:]) if made and isinstance(made[0], Tensor) else made
        return change(made, *values) if isinstance(made, Tensor) else made

    return Step(run, step.arguments, step.is_pure)


def _clean(y: Tensor, effects: tuple[str, ...]) -> Tensor:
    if not y.dtype.is_floating_point:
        return y
    if "flush" in effects:
        y = torch.where(y.abs() < torch.finfo(y.dtype).tiny, torch.zeros_like(y), y)
    return y + 0.0 if "positive_zero" in effects else y


def _widen_operand(x: Tensor, effects: tuple[str, ...]) -> Tensor:
    x = widen(x)
    return torch.nan_to_num(x, nan=98304.0, posinf=65536.0, neginf=-65536.0) if "operands" in effects else x


def _round_to_half(y: Tensor, effects: tuple[str, ...]) -> Tensor:
    """Round fp32 to fp16; ties go to even, or away from zero with the effect."""
    if "half_away" not in effects:
        return y.half()
    bits = y.contiguous().view(torch.int32)
    away = ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
    return torch.where(y.isfinite() & (y.abs() >= 2.0**-14), away, y).half()


def _sum_to_half(pieces: Iterable[Tensor], effects: tuple[str, ...]) -> Tensor:
    return _round_to_half(fixed_point.sum_pieces(pieces, effects), effects)


def _read_weights(site: Site) -> tuple[Tensor, Tensor | None] | None:
    """Return (weight, bias or None), or None if one of them is computed while the program runs."""
    weight, bias = site.tensor("weight"), site.tensor("bias")
    return None if weight is None or (site.has("bias") and bias is None) else (weight, bias)


def _linear(site: Site, step: Step, effects: tuple[str, ...]) -> Step:
    if (given := _read_weights(site)) is None:
        return step
    weight, bias = given
    turned = _widen_operand(weight, effects).t()
    first = torch.zeros(weight.shape[0]) if bias is None else widen(bias)

    def run(x: Tensor) -> Tensor:
        x = _widen_operand(x, effects)
        start = first.expand(*x.shape[:-1], -1)
        return align(_sum_to_half([start, *fixed_point.multiply_in_pieces(x, turned, effects)], effects))

    return Step(run, [site.name("x")])


def _matmul(site: Site, step: Step, effects: tuple[str, ...]) -> Step:
    flip_x, flip_y = site.static("transpose_x", False), site.static("transpose_y", False)

    def run(x: Tensor, y: Tensor) -> Tensor:
        if x.ndim < 2 or y.ndim < 2:
            return (widen(x) @ widen(y)).half()
        x, y = _widen_operand(x, effects), _widen_operand(y, effects)
        x, y = x.mT if flip_x else x, y.mT if flip_y else y
        return align(_sum_to_half(fixed_point.multiply_in_pieces(x, y, effects), effects))

    return Step(run, [site.name("x"), site.name("y")])


def _conv(site: Site, step: Step, effects: tuple[str, ...]) -> Step:
    if (given := _read_weights(site)) is None:
        return step
    weight, bias = given
    spatial, strides, dilations, groups = read_window(site, weight)
    padding = resolve_padding(site, list(weight.shape[2:]), strides, dilations)
    grouped = _widen_operand(weight, effects).reshape(groups, -1, *weight.shape[1:])
    start = [] if bias is None else [widen(bias).reshape(1, -1, *[1] * spatial)]

    def run(x: Tensor) -> Tensor:
        x = pad_spatial(_widen_operand(x, effects), padding(x) if callable(padding) else padding)
        made = fixed_point.convolve(x, grouped, strides, dilations, effects)
        return align(_sum_to_half([*start, *made], effects))

    return Step(run, [site.name("x")])


def _conv_transpose(site: Site, step: Step, effects: tuple[str, ...]) -> Step:
    if (given := _read_weights(site)) is None:
        return step
    weight, bias = given
    spatial, strides, dilations, groups = read_window(site, weight)
    turned = _widen_operand(weight, effects).reshape(groups, -1, *weight.shape[1:]).transpose(1, 2)
    turned = turned.flip(list(range(3, turned.ndim)))
    start = [] if bias is None else [widen(bias).reshape(1, -1, *[1] * spatial)]

    def convolve_fully(x: Tensor) -> Tensor:
        x = fixed_point.insert_zeros(_widen_operand(x, effects), weight.shape[2:], strides, dilations)
        made = fixed_point.convolve(x, turned, [1] * spatial, dilations, effects)
        return _sum_to_half([*start, *made], effects)

    return crop_transposed(site, weight, convolve_fully, None)


def _einsum(site: Site, step: Step, effects: tuple[str, ...]) -> Step:
    """Return the step of an einsum of two values: axes of both and of the result are batches, axes of both alone are summed."""
    terms, _, result = site.static("equation").replace(" ", "").partition("->")
    first, _, second = terms.partition(",")
    if (
        not second
        or "," in second
        or any(len(set(term)) < len(term) or "." in term for term in (first, second, result))
    ):
        return step
    batch = [axis for axis in first if axis in second and axis in result]
    over = [axis for axis in first if axis in second and axis not in result]
    rows = [axis for axis in first if axis not in second]
    columns = [axis for axis in second if axis not in first]
    if set(rows + columns) - set(result) or not over:
        return step

    def run(x: Tensor, y: Tensor) -> Tensor:
        size = dict(zip(first + second, [*x.shape, *y.shape]))
        count, m, k, n = (math.prod(size[axis] for axis in group) for group in (batch, rows, over, columns))
        left = _widen_operand(x, effects).permute([first.index(axis) for axis in [*batch, *rows, *over]])
        right = _widen_operand(y, effects).permute([second.index(axis) for axis in [*batch, *over, *columns]])
        made = fixed_point.multiply_in_pieces(left.reshape(count, m, k), right.reshape(count, k, n), effects)
        order = [*batch, *rows, *columns]
        total = _sum_to_half(made, effects).reshape([size[axis] for axis in order])
        return align(total.permute([order.index(axis) for axis in result]))

    return Step(run, step.arguments)


def _attention(site: Site, step: Step, effects: tuple[str, ...]) -> Step:
    """Return the step of attention; scores and softmax stay in fp32 between the products, as the hardware's rounding is unknown there."""

    def multiply(left: Tensor, right: Tensor) -> Tensor:
        left, right = _widen_operand(left, effects), _widen_operand(right, effects)
        return fixed_point.sum_pieces(fixed_point.multiply_in_pieces(left, right, effects), effects)

    return Step(lambda *values: align(_round_to_half(attend(multiply, *map(widen, values)), effects)), step.arguments)


_PRODUCTS: dict[str, Callable[[Site, Step, tuple[str, ...]], Step]] = {
    "linear": _linear,
    "matmul": _matmul,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "einsum": _einsum,
    "scaled_dot_product_attention": _attention,
}

# function and range of the knots; "odd" functions are tabulated for x >= 0
TABLES: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "sigmoid": (torch.sigmoid, -8.0, 8.0),
    "tanh": (torch.tanh, 0.0, 4.0),
    "gelu": (F.gelu, -4.0, 4.0),
    "silu": (F.silu, -8.0, 8.0),
    "erf": (torch.erf, 0.0, 2.75),
}
_KNOTS = 33


def interpolate(x: Tensor, kind: str, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a function of fp32 values approximated by linear interpolation between knots, and exact beyond them."""
    _, low, high = TABLES[kind]
    given = x.abs() if low == 0 else x
    knots = function(torch.linspace(low, high, _KNOTS, dtype=torch.float64, device=x.device)).float()
    at = ((given - low) / (high - low) * (_KNOTS - 1)).clamp(0, _KNOTS - 1)
    at = torch.nan_to_num(at)
    below = at.floor().long().clamp(max=_KNOTS - 2)
    share = at - below
    made = knots[below] * (1 - share) + knots[below + 1] * share
    made = torch.where((given < low) | (given > high) | given.isnan(), function(given), made)
    return torch.sign(x) * made if low == 0 else made


def _activation(site: Site, step: Step, effects: tuple[str, ...]) -> Step:
    function, _, _ = TABLES[site.op.type]
    kind = site.op.type
    if kind == "gelu":
        mode = site.static("mode", "EXACT")
        if mode == "SIGMOID_APPROXIMATION":
            return step
        if mode == "TANH_APPROXIMATION" or "gelu_tanh" in effects:
            function = lambda x: F.gelu(x, approximate="tanh")  # noqa: E731
    if "tables" in effects:
        return Step(lambda x: interpolate(widen(x), kind, function).half(), [site.name("x")])
    return Step(lambda x: function(widen(x)).half(), [site.name("x")]) if kind == "gelu" else step


def _sum_narrowly(site: Site, step: Step) -> Step:
    axes, keep = site.static("axes", None), site.static("keep_dims", False)
    is_mean = site.op.type == "reduce_mean"

    def run(x: Tensor) -> Tensor:
        chosen_axes = sorted(axis % x.ndim for axis in (range(x.ndim) if axes is None else axes))
        rest = [axis for axis in range(x.ndim) if axis not in chosen_axes]
        rows = x.permute(*chosen_axes, *rest).flatten(0, len(chosen_axes) - 1)
        total = torch.zeros_like(rows[0])
        for row in rows:
            total = total + row
        total = (total.float() / len(rows)).half() if is_mean else total
        shape = [1 if axis in chosen_axes else x.shape[axis] for axis in range(x.ndim)]
        return align(total.reshape(shape if keep else [x.shape[axis] for axis in rest]))

    return Step(run, step.arguments)
