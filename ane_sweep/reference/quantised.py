"""Activations between floats and 8-bit integers."""

import torch

from ane_sweep.reference.compressed import affine
from ane_sweep.reference.site import Site, Step, op, widen


@op("quantize")
def quantize(site: Site) -> Step:
    """clip(round(input / scale) + zero_point), halves to even."""
    scale, zero = site.known_tensor("scale"), site.known_tensor("zero_point")
    axis, dtype = site.static("axis", None), site.dtype
    limits = torch.iinfo(dtype)

    def along(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        values = widen(values).float()
        if values.numel() == 1:
            return values.reshape(())
        return values.reshape([-1 if dim == (axis or 0) % x.ndim else 1 for dim in range(x.ndim)])

    def run(x: torch.Tensor) -> torch.Tensor:
        steps = torch.round(widen(x) / along(scale, x))
        if zero is not None:
            steps = steps + along(zero, x)
        return steps.clamp(limits.min, limits.max).to(dtype)

    return Step(run, [site.name("input")])


@op("dequantize")
def dequantize(site: Site) -> Step:
    """scale * (input - zero_point)."""
    scale, zero = site.known_tensor("scale"), site.known_tensor("zero_point")
    axis, dtype = site.static("axis", None), site.dtype
    return Step(lambda x: affine(x, scale, zero, axis).to(dtype), [site.name("input")])
