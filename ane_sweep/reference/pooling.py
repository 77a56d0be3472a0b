"""Pooling over windows; x (N, C, *D) with one to three D."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from ane_sweep.reference.linear import padded, paddings
from ane_sweep.reference.site import Site, Step, op, widen

Function = Callable[..., torch.Tensor]
_LARGEST: tuple[Function, ...] = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
_MEAN: tuple[Function, ...] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)


@op("avg_pool", "max_pool", "l2_pool")
def pool(site: Site) -> Step:
    kernel = site.static("kernel_sizes")
    strides = site.static("strides", [1] * len(kernel))
    padding = paddings(site, kernel, strides, [1] * len(kernel))
    up, kind, dtype = site.static("ceil_mode", False), site.op.type, site.dtype
    excluded = site.static("exclude_padding_from_average", False)
    largest, mean = _LARGEST[len(kernel) - 1], _MEAN[len(kernel) - 1]

    def run(x: torch.Tensor) -> torch.Tensor:
        sides = padding(x) if callable(padding) else list(padding)
        over = _overhang(x, kernel, strides, sides) if up else [0] * len(kernel)
        whole = [side + (over[index // 2] if index % 2 else 0) for index, side in enumerate(sides)]
        x = widen(x)
        if kind == "max_pool":
            return largest(padded(x, whole, -math.inf), kernel, strides).to(dtype)
        if kind == "l2_pool":
            return (mean(padded(x.square(), whole), kernel, strides) * math.prod(kernel)).sqrt().to(dtype)
        result = mean(padded(x, whole), kernel, strides)
        if (excluded and any(whole)) or any(over):
            # what lies beyond the declared padding is never counted; the padding itself is, unless excluded
            ones = torch.ones_like(x) if excluded else padded(torch.ones_like(x), sides, 1.0)
            ones = padded(ones, whole if excluded else _only(over))
            result = result / mean(ones, kernel, strides)
        return result.to(dtype)

    return Step(run, [site.name("x")])


def _only(over: list[int]) -> list[int]:
    return [side for extra in over for side in (0, extra)]


def _overhang(x: torch.Tensor, kernel: list[int], strides: list[int], sides: list[int]) -> list[int]:
    """What `ceil_mode` adds behind each dimension; the last window must start inside the input or the left padding."""
    result = []
    for axis, (size, stride) in enumerate(zip(kernel, strides)):
        length, before, after = x.shape[2 + axis], sides[2 * axis], sides[2 * axis + 1]
        windows = math.ceil((length + before + after - size) / stride) + 1
        if (windows - 1) * stride >= length + before:
            windows -= 1
        result.append(max(0, (windows - 1) * stride + size - (length + before + after)))
    return result
