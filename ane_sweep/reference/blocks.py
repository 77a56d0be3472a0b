"""Build the ops that rearrange blocks (between depth, batch and space), take windows, or pool over them."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ane_sweep.reference.linear import pad_spatial, resolve_padding
from ane_sweep.reference.site import Site, Step, align, kernel, op, widen


def _to_space(x: Tensor, r: int, split: tuple[int, ...], order: tuple[int, ...]) -> Tensor:
    n, c, h, w = x.shape
    return align(x.view(n, *split, h, w).permute(order).reshape(n, c // (r * r), h * r, w * r))


@kernel("depth_to_space")
def depth_to_space(x: Tensor, *, block_size: int) -> Tensor:
    """Rearrange (N, r r C, H, W) to (N, C, H r, W r)."""
    r = block_size
    return _to_space(x, r, (r, r, x.shape[1] // (r * r)), (0, 3, 4, 1, 5, 2))


@kernel("pixel_shuffle")
def pixel_shuffle(x: Tensor, *, upscale_factor: int) -> Tensor:
    """Rearrange (N, C r r, H, W) to (N, C, H r, W r)."""
    r = upscale_factor
    return _to_space(x, r, (x.shape[1] // (r * r), r, r), (0, 1, 4, 2, 5, 3))


def _to_depth(x: Tensor, r: int, order: tuple[int, ...]) -> Tensor:
    n, c, h, w = x.shape
    parts = x.view(n, c, h // r, r, w // r, r)
    return align(parts.permute(order).reshape(n, c * r * r, h // r, w // r))


@kernel("space_to_depth")
def space_to_depth(x: Tensor, *, block_size: int) -> Tensor:
    return _to_depth(x, block_size, (0, 3, 5, 1, 2, 4))


@kernel("pixel_unshuffle")
def pixel_unshuffle(x: Tensor, *, downscale_factor: int) -> Tensor:
    return _to_depth(x, downscale_factor, (0, 1, 3, 5, 2, 4))


@kernel("sliding_windows")
def sliding_windows(x: Tensor, *, axis: int, size: int, stride: int = 1) -> Tensor:
    """Return windows (.., windows, size, ..) of a tensor (.., L, ..) along `axis`."""
    return align(x.unfold(axis % x.ndim, size, stride).movedim(-1, axis % x.ndim + 1))


@kernel("space_to_batch")
def space_to_batch(x: Tensor, *, block_shape: list[int], paddings: list[list[int]]) -> Tensor:
    """Rearrange (N, C, H, W), after padding, to (N b0 b1, C, H / b0, W / b1); the position within a block varies slowest."""
    (high, broad), (rows, columns) = block_shape, paddings
    x = F.pad(x, [*columns, *rows])
    n, c, h, w = x.shape
    parts = x.view(n, c, h // high, high, w // broad, broad).permute(3, 5, 0, 1, 2, 4)
    return align(parts.reshape(n * high * broad, c, h // high, w // broad))


@kernel("batch_to_space")
def batch_to_space(x: Tensor, *, block_shape: list[int], crops: list[list[int]]) -> Tensor:
    """Undo space_to_batch; `crops` then cuts from the top, bottom, left and right."""
    (high, broad), ((top, bottom), (left, right)) = block_shape, crops
    n, c, h, w = x.shape
    parts = x.view(high, broad, n // (high * broad), c, h, w).permute(2, 3, 4, 0, 5, 1)
    full = parts.reshape(n // (high * broad), c, h * high, w * broad)
    return align(full[:, :, top : h * high - bottom, left : w * broad - right])


Function = Callable[..., Tensor]
_LARGEST: tuple[Function, ...] = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
_MEAN: tuple[Function, ...] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)


@op("avg_pool", "max_pool", "l2_pool")
def pool(site: Site) -> Step:
    """Return the step of pooling over windows of x (N, C, *D) with one to three dimensions D."""
    kernel = site.static("kernel_sizes")
    strides = site.static("strides", [1] * len(kernel))
    padding = resolve_padding(site, kernel, strides, [1] * len(kernel))
    up, kind, dtype = site.static("ceil_mode", False), site.op.type, site.dtype
    excluded = site.static("exclude_padding_from_average", False)
    largest, mean = _LARGEST[len(kernel) - 1], _MEAN[len(kernel) - 1]

    def run(x: Tensor) -> Tensor:
        sides = padding(x) if callable(padding) else list(padding)
        over = _find_overhang(x, kernel, strides, sides) if up else [0] * len(kernel)
        behind = [side for extra in over for side in (0, extra)]
        full = [side + extra for side, extra in zip(sides, behind)]
        x = widen(x)
        if kind == "max_pool":
            return largest(pad_spatial(x, full, -math.inf), kernel, strides).to(dtype)
        if kind == "l2_pool":
            power: Tensor = mean(pad_spatial(x.square(), full), kernel, strides) * math.prod(kernel)
            return power.sqrt().to(dtype)
        result = mean(pad_spatial(x, full), kernel, strides)
        if (excluded and any(full)) or any(over):
            # what lies beyond the declared padding is never counted; the padding itself is, unless excluded
            ones = torch.ones_like(x) if excluded else pad_spatial(torch.ones_like(x), sides, 1.0)
            result = result / mean(pad_spatial(ones, full if excluded else behind), kernel, strides)
        return result.to(dtype)

    return Step(run, [site.name("x")], layout="any" if kind == "max_pool" else "plain")


def _find_overhang(x: Tensor, kernel: list[int], strides: list[int], sides: list[int]) -> list[int]:
    """Return the sizes that `ceil_mode` adds at the end of each dimension.

    The last window must start inside the input or the left padding.
    """
    result = []
    for axis, (size, stride) in enumerate(zip(kernel, strides)):
        length, before, after = x.shape[2 + axis], sides[2 * axis], sides[2 * axis + 1]
        windows = math.ceil((length + before + after - size) / stride) + 1
        if (windows - 1) * stride >= length + before:
            windows -= 1
        result.append(max(0, (windows - 1) * stride + size - (length + before + after)))
    return result
