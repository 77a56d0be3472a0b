"""Build the ops that rearrange blocks (between depth, batch and space), take windows, or pool over them."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from ane_sweep.reference.linear import pad_spatial, resolve_padding
from ane_sweep.reference.site import Site, Step, align, op, widen


@op("depth_to_space", "pixel_shuffle")
def depth_to_space(site: Site) -> Step:
    """Build (N, C r r, H, W) -> (N, C, H r, W r).

    depth_to_space has the channel last within C r r, pixel_shuffle first.
    """
    is_shuffle = site.op.type == "pixel_shuffle"
    r = site.static("upscale_factor" if is_shuffle else "block_size")

    def run(x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        if is_shuffle:
            parts = x.view(n, c // (r * r), r, r, h, w).permute(0, 1, 4, 2, 5, 3)
        else:
            parts = x.view(n, r, r, c // (r * r), h, w).permute(0, 3, 4, 1, 5, 2)
        return align(parts.reshape(n, c // (r * r), h * r, w * r))

    return Step(run, [site.name("x")])


@op("space_to_depth", "pixel_unshuffle")
def space_to_depth(site: Site) -> Step:
    is_shuffle = site.op.type == "pixel_unshuffle"
    r = site.static("downscale_factor" if is_shuffle else "block_size")

    def run(x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        parts = x.view(n, c, h // r, r, w // r, r)
        order = (0, 1, 3, 5, 2, 4) if is_shuffle else (0, 3, 5, 1, 2, 4)
        return align(parts.permute(order).reshape(n, c * r * r, h // r, w // r))

    return Step(run, [site.name("x")])


@op("sliding_windows")
def sliding_windows(site: Site) -> Step:
    """(.., L, ..) -> (.., windows, size, ..) along `axis`."""
    axis, size, stride = site.static("axis"), site.static("size"), site.static("stride", 1)

    def run(x: torch.Tensor) -> torch.Tensor:
        place = axis % x.ndim
        return align(x.unfold(place, size, stride).movedim(-1, place + 1))

    return Step(run, [site.name("x")])


@op("space_to_batch")
def space_to_batch(site: Site) -> Step:
    """(N, C, H, W), padded, -> (N b0 b1, C, H / b0, W / b1); the place within a block varies slowest."""
    (high, broad), (rows, columns) = site.static("block_shape"), site.static("paddings")

    def run(x: torch.Tensor) -> torch.Tensor:
        x = F.pad(x, [*columns, *rows])
        n, c, h, w = x.shape
        parts = x.view(n, c, h // high, high, w // broad, broad).permute(3, 5, 0, 1, 2, 4)
        return align(parts.reshape(n * high * broad, c, h // high, w // broad))

    return Step(run, [site.name("x")])


@op("batch_to_space")
def batch_to_space(site: Site) -> Step:
    """Build the inverse of space_to_batch; `crops` cuts from the top, bottom, left and right afterwards."""
    (high, broad), ((top, bottom), (left, right)) = site.static("block_shape"), site.static("crops")

    def run(x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        parts = x.view(high, broad, n // (high * broad), c, h, w).permute(2, 3, 4, 0, 5, 1)
        whole = parts.reshape(n // (high * broad), c, h * high, w * broad)
        return align(whole[:, :, top : h * high - bottom, left : w * broad - right])

    return Step(run, [site.name("x")])


Function = Callable[..., torch.Tensor]
_LARGEST: tuple[Function, ...] = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
_MEAN: tuple[Function, ...] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)


@op("avg_pool", "max_pool", "l2_pool")
def pool(site: Site) -> Step:
    """Pool over windows of x (N, C, *D) with one to three D."""
    kernel = site.static("kernel_sizes")
    strides = site.static("strides", [1] * len(kernel))
    padding = resolve_padding(site, kernel, strides, [1] * len(kernel))
    up, kind, dtype = site.static("ceil_mode", False), site.op.type, site.dtype
    excluded = site.static("exclude_padding_from_average", False)
    largest, mean = _LARGEST[len(kernel) - 1], _MEAN[len(kernel) - 1]

    def run(x: torch.Tensor) -> torch.Tensor:
        sides = padding(x) if callable(padding) else list(padding)
        over = _find_overhang(x, kernel, strides, sides) if up else [0] * len(kernel)
        whole = [side + (over[index // 2] if index % 2 else 0) for index, side in enumerate(sides)]
        x = widen(x)
        if kind == "max_pool":
            return largest(pad_spatial(x, whole, -math.inf), kernel, strides).to(dtype)
        if kind == "l2_pool":
            power: torch.Tensor = mean(pad_spatial(x.square(), whole), kernel, strides) * math.prod(kernel)
            return power.sqrt().to(dtype)
        result = mean(pad_spatial(x, whole), kernel, strides)
        if (excluded and any(whole)) or any(over):
            # what lies beyond the declared padding is never counted; the padding itself is, unless excluded
            ones = torch.ones_like(x) if excluded else pad_spatial(torch.ones_like(x), sides, 1.0)
            ones = pad_spatial(ones, whole if excluded else _pad_behind(over))
            result = result / mean(ones, kernel, strides)
        return result.to(dtype)

    return Step(run, [site.name("x")])


def _pad_behind(over: list[int]) -> list[int]:
    return [side for extra in over for side in (0, extra)]


def _find_overhang(x: torch.Tensor, kernel: list[int], strides: list[int], sides: list[int]) -> list[int]:
    """Return the sizes that `ceil_mode` adds behind each dimension.

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
