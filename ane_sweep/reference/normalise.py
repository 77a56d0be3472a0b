"""Build reductions, norms and softmax: sums over dimensions, always in fp32."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from ane_sweep.reference.site import Site, Step, compute_wide, op, widen

Reduction = Callable[[torch.Tensor, list[int], bool], torch.Tensor]


def _prod(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


_REDUCTIONS: dict[str, Reduction] = {
    "reduce_l1_norm": lambda x, axes, keep: x.abs().sum(axes, keep),
    "reduce_l2_norm": lambda x, axes, keep: x.square().sum(axes, keep).sqrt(),
    "reduce_log_sum": lambda x, axes, keep: x.sum(axes, keep).log(),
    "reduce_log_sum_exp": lambda x, axes, keep: torch.logsumexp(x, axes, keep),
    "reduce_max": lambda x, axes, keep: x.amax(axes, keep),
    "reduce_mean": lambda x, axes, keep: x.mean(axes, keep),
    "reduce_min": lambda x, axes, keep: x.amin(axes, keep),
    "reduce_prod": _prod,
    "reduce_sum": lambda x, axes, keep: x.sum(axes, keep),
    "reduce_sum_square": lambda x, axes, keep: x.square().sum(axes, keep),
}


@op(*_REDUCTIONS)
def reduce(site: Site) -> Step:
    """Reduce over `axes`; without them, over all dimensions."""
    function, axes = _REDUCTIONS[site.op.type], site.static("axes", None)
    keep = site.static("keep_dims", False)
    exact = site.op.type in ("reduce_max", "reduce_min")

    def run(x: torch.Tensor) -> torch.Tensor:
        chosen = list(range(x.ndim)) if axes is None else axes
        if not x.dtype.is_floating_point and not exact and site.op.type == "reduce_mean":
            x = x.double()
        return function(x, chosen, keep)

    return Step(run if exact else compute_wide(run, site.dtype), [site.name("x")])


@op("reduce_argmax", "reduce_argmin")
def arg_reduce(site: Site) -> Step:
    """Return the place of the first of equal values, as numpy does."""
    function = torch.argmax if site.op.type == "reduce_argmax" else torch.argmin
    axis, keep, dtype = site.static("axis", -1), site.static("keep_dims", False), site.dtype
    return Step(lambda x: function(x, axis, keep).to(dtype), [site.name("x")])


@op("cumsum")
def cumsum(site: Site) -> Step:
    axis, reverse = site.static("axis", 0), site.static("reverse", False)
    exclusive = site.static("exclusive", False)

    def run(x: torch.Tensor) -> torch.Tensor:
        x = x.flip(axis) if reverse else x
        total = x.cumsum(axis)
        if exclusive:
            total = torch.cat([torch.zeros_like(x.narrow(axis, 0, 1)), total.narrow(axis, 0, x.shape[axis] - 1)], axis)
        return total.flip(axis) if reverse else total

    return Step(compute_wide(run, site.dtype), [site.name("x")])


@op("softmax")
def softmax(site: Site) -> Step:
    axis, dtype = site.static("axis", -1), site.dtype

    def run(x: torch.Tensor) -> torch.Tensor:
        if axis in (-1, x.ndim - 1):  # torch's fp16 kernel for the last dimension computes in fp32
            return x.softmax(-1)
        return widen(x).softmax(axis).to(dtype)

    return Step(run, [site.name("x")])


@op("layer_norm")
def layer_norm(site: Site) -> Step:
    """Normalise over `axes`; gamma and beta have the shape of these."""
    gamma, beta, epsilon = site.known_tensor("gamma"), site.known_tensor("beta"), site.static("epsilon", 1e-5)
    chosen, dtype = site.static("axes", None), site.dtype

    def run(x: torch.Tensor) -> torch.Tensor:
        axes = sorted(axis % x.ndim for axis in (range(x.ndim) if chosen is None else chosen))
        if axes == list(range(x.ndim - len(axes), x.ndim)) and _share_type(x, gamma, beta):
            return F.layer_norm(x, x.shape[x.ndim - len(axes) :], gamma, beta, epsilon)
        along = _reshape_along(gamma, axes, x.ndim), _reshape_along(beta, axes, x.ndim)
        return _normalise(widen(x), axes, epsilon, *along).to(dtype)

    return Step(run, [site.name("x")])


def _share_type(x: torch.Tensor, *others: torch.Tensor | None) -> bool:
    return all(other is None or other.dtype == x.dtype for other in others)


def _reshape_along(values: torch.Tensor | None, axes: list[int], rank: int) -> torch.Tensor | None:
    """Reshape values of the shape of `axes` so that they broadcast along these."""
    if values is None:
        return None
    sizes = iter(values.shape)
    return widen(values).reshape([next(sizes) if axis in axes else 1 for axis in range(rank)])


def _normalise(
    x: torch.Tensor, axes: list[int], epsilon: float, gamma: torch.Tensor | None, beta: torch.Tensor | None
) -> torch.Tensor:
    centred = x - x.mean(axes, keepdim=True)
    y = centred * torch.rsqrt(centred.square().mean(axes, keepdim=True) + epsilon)
    y = y if gamma is None else y * gamma
    return y if beta is None else y + beta


@op("batch_norm", "instance_norm")
def channel_norm(site: Site) -> Step:
    """Normalise along dimension 1: batch_norm with given mean and variance, instance_norm with those of each instance."""
    names = ("mean", "variance", "gamma", "beta")
    values = {name: site.known_tensor(name) for name in names}
    epsilon, is_batch, dtype = site.static("epsilon", 1e-5), site.op.type == "batch_norm", site.dtype

    def run(x: torch.Tensor) -> torch.Tensor:
        mean, variance, gamma, beta = (_reshape_along(values[name], [1], x.ndim) for name in names)
        if not is_batch:
            return _normalise(x, list(range(2, x.ndim)), epsilon, gamma, beta)
        assert mean is not None and variance is not None  # batch_norm has both
        y = (x - mean) * torch.rsqrt(variance + epsilon)
        y = y if gamma is None else y * gamma
        return y if beta is None else y + beta

    return Step(compute_wide(run, dtype), [site.name("x")])


@op("l2_norm")
def l2_norm(site: Site) -> Step:
    """Compute x / sqrt(sum of squares over the last three dimensions + epsilon)."""
    epsilon = site.static("epsilon", 1e-6)

    def run(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().sum([-3, -2, -1], keepdim=True) + epsilon)

    return Step(compute_wide(run, site.dtype), [site.name("x")])


@op("local_response_norm")
def local_response_norm(site: Site) -> Step:
    size, alpha = site.static("size"), site.static("alpha", 1e-4)
    beta, k = site.static("beta", 0.75), site.static("k", 1.0)

    def run(x: torch.Tensor) -> torch.Tensor:
        """Compute it explicitly: torch's own forbids ranks that MIL allows. An even window leans to the left.

        Channels are the third axis from the end: coremltools' own test has (C, H, W) as well as (N, C, H, W).
        """
        squares = x.square().movedim(-3, -1)
        padded = F.pad(squares, ((size - 1) // 2 + (size - 1) % 2, (size - 1) // 2))
        sums = padded.unfold(-1, size, 1).sum(-1).movedim(-1, -3)
        scale: torch.Tensor = (k + alpha * sums / size).pow(-beta)
        return x * scale

    return Step(compute_wide(run, site.dtype), [site.name("x")])
