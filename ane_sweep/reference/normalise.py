"""Build reductions, norms and softmax: sums over dimensions, always in fp32."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ane_sweep.reference.site import Site, Step, compute_wide, kernel, op, widen


def _prod(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


_REDUCTIONS: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "reduce_l1_norm": lambda x, axes, keep: x.abs().sum(axes, keep),
    "reduce_l2_norm": lambda x, axes, keep: x.square().sum(axes, keep).sqrt(),
    "reduce_log_sum": lambda x, axes, keep: x.sum(axes, keep).log(),
    "reduce_log_sum_exp": lambda x, axes, keep: torch.logsumexp(x, axes, keep),
    "reduce_max": lambda x, axes, keep: x.amax(axes, keep),
    "reduce_mean": lambda x, axes, keep: (x if x.dtype.is_floating_point else x.double()).mean(axes, keep),
    "reduce_min": lambda x, axes, keep: x.amin(axes, keep),
    "reduce_prod": _prod,
    "reduce_sum": lambda x, axes, keep: x.sum(axes, keep),
    "reduce_sum_square": lambda x, axes, keep: x.square().sum(axes, keep),
}


@op(*_REDUCTIONS)
def reduce(site: Site) -> Step:
    """Return the step of a reduction over `axes`, or over all dimensions without them."""
    function, axes, keep = _REDUCTIONS[site.op.type], site.static("axes", None), site.static("keep_dims", False)

    def run(x: Tensor) -> Tensor:
        return function(x, list(range(x.ndim)) if axes is None else axes, keep)

    exact = site.op.type in ("reduce_max", "reduce_min")
    return Step(run if exact else compute_wide(run, site.dtype), [site.name("x")])


@kernel("reduce_argmax", "reduce_argmin")
def arg_reduce(x: Tensor, *, kind: str, axis: int = -1, keep_dims: bool = False, dtype: torch.dtype) -> Tensor:
    """Return the index of the largest or smallest value, and the first index if several are equal, as numpy does."""
    return (torch.argmax if kind == "reduce_argmax" else torch.argmin)(x, axis, keep_dims).to(dtype)


@kernel("cumsum", wide=True)
def cumsum(x: Tensor, *, axis: int = 0, reverse: bool = False, exclusive: bool = False) -> Tensor:
    x = x.flip(axis) if reverse else x
    total = x.cumsum(axis)
    if exclusive:
        total = torch.cat([torch.zeros_like(x.narrow(axis, 0, 1)), total.narrow(axis, 0, x.shape[axis] - 1)], axis)
    return total.flip(axis) if reverse else total


@kernel("softmax")
def softmax(x: Tensor, *, axis: int = -1, dtype: torch.dtype) -> Tensor:
    if axis in (-1, x.ndim - 1):  # torch's fp16 kernel for the last dimension computes in fp32
        return x.softmax(-1)
    return widen(x).softmax(axis).to(dtype)


@kernel("layer_norm")
def layer_norm(
    x: Tensor, *, gamma: Tensor | None, beta: Tensor | None, epsilon: float = 1e-5, axes: list[int] | None = None,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """Normalise over `axes`; gamma and beta have the shape of these."""
    axes = sorted(axis % x.ndim for axis in (range(x.ndim) if axes is None else axes))
    is_last = axes == list(range(x.ndim - len(axes), x.ndim))
    if is_last and all(other is None or other.dtype == x.dtype for other in (gamma, beta)):
        return F.layer_norm(x, x.shape[x.ndim - len(axes) :], gamma, beta, epsilon)
    x = _normalise(widen(x), axes, epsilon)
    return _scale(x, _reshape_along(gamma, axes, x.ndim), _reshape_along(beta, axes, x.ndim)).to(dtype)


def _reshape_along(values: Tensor | None, axes: list[int], rank: int) -> Tensor | None:
    """Reshape values so that they broadcast along `axes`, whose shape they have."""
    if values is None:
        return None
    sizes = iter(values.shape)
    return widen(values).reshape([next(sizes) if axis in axes else 1 for axis in range(rank)])


def _normalise(x: Tensor, axes: list[int], epsilon: float) -> Tensor:
    centred = x - x.mean(axes, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(axes, keepdim=True) + epsilon)


def _scale(y: Tensor, gamma: Tensor | None, beta: Tensor | None) -> Tensor:
    y = y if gamma is None else y * gamma
    return y if beta is None else y + beta


@kernel("batch_norm", "instance_norm", wide=True)
def channel_norm(
    x: Tensor, *, kind: str, mean: Tensor | None, variance: Tensor | None, gamma: Tensor | None, beta: Tensor | None,
    epsilon: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise along dimension 1: batch_norm with given mean and variance, instance_norm with those of each instance."""
    middle, spread, factor, offset = (_reshape_along(one, [1], x.ndim) for one in (mean, variance, gamma, beta))
    if kind == "instance_norm":
        return _scale(_normalise(x, list(range(2, x.ndim)), epsilon), factor, offset)
    assert middle is not None and spread is not None  # batch_norm has both
    return _scale((x - middle) * torch.rsqrt(spread + epsilon), factor, offset)


@kernel("l2_norm", wide=True)
def l2_norm(x: Tensor, *, epsilon: float = 1e-6) -> Tensor:
    """Compute x / sqrt(sum of squares over the last three dimensions + epsilon)."""
    return x * torch.rsqrt(x.square().sum([-3, -2, -1], keepdim=True) + epsilon)


@kernel("local_response_norm", wide=True)
def local_response_norm(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Normalise over neighbouring channels; computed explicitly, as torch refuses ranks that MIL allows. An even window
    leans to the left.

    Channels are the third axis from the end: coremltools' own test has (C, H, W) as well as (N, C, H, W).
    """
    squares = x.square().movedim(-3, -1)
    padded = F.pad(squares, ((size - 1) // 2 + (size - 1) % 2, (size - 1) // 2))
    sums = padded.unfold(-1, size, 1).sum(-1).movedim(-1, -3)
    scale: Tensor = (k + alpha * sums / size).pow(-beta)
    return x * scale
