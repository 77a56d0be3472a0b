"""Build affine and resample: images sampled at given coordinates."""

from collections.abc import Callable

import torch
from torch import Tensor

from ane_sweep.reference.site import align, kernel, widen


def _to_pixels(values: Tensor, length: int, mode: str, corners: bool) -> Tensor:
    """Convert coordinates to pixels; pixel 0 is at 0.0. Without aligned corners, the range ends at the outer edges of the pixels."""
    if mode == "unnormalized":
        return values
    share = (values + 1) / 2 if mode == "normalized_minus_one_to_one" else values
    return share * (length - 1) if corners else share * length - 0.5


def _reflect(at: Tensor, length: int, with_edge: bool) -> Tensor:
    """Reflect coordinates into the image, at the outer pixels' centres or at their outer edges."""
    low, span = (-0.5, float(length)) if with_edge else (0.0, float(length - 1))
    if span == 0:
        return torch.zeros_like(at)
    away = (at - low).remainder(2 * span)
    return (torch.minimum(away, 2 * span - away) + low).clamp(0, length - 1)


_INSIDE: dict[str, Callable[[Tensor, int], Tensor]] = {
    "border": lambda at, length: at.clamp(0, length - 1),
    "reflection": lambda at, length: _reflect(at, length, False),
    "symmetric": lambda at, length: _reflect(at, length, True),
}


def sample_image(x: Tensor, across: Tensor, down: Tensor, kind: str, fill: float) -> Tensor:
    """Return x (B, C, H, W) at pixel coordinates (B, h, w), fp32; pixels outside the image are `fill`."""
    height, width = x.shape[2:]
    rows = torch.arange(x.shape[0])[:, None, None]

    def pixel(column: Tensor, row: Tensor) -> Tensor:
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        found = x[rows, :, row.clamp(0, height - 1).long(), column.clamp(0, width - 1).long()]
        return torch.where(inside[..., None], found, fill).movedim(-1, 1)

    if kind == "nearest":  # halves to even, as torch
        return pixel(across.round(), down.round())
    left, top = across.floor(), down.floor()
    right_share, low_share = ((across - left)[:, None]).to(x.dtype), ((down - top)[:, None]).to(x.dtype)
    upper = pixel(left, top) * (1 - right_share) + pixel(left + 1, top) * right_share
    lower = pixel(left, top + 1) * (1 - right_share) + pixel(left + 1, top + 1) * right_share
    return upper * (1 - low_share) + lower * low_share


@kernel("resample")
def resample(
    x: Tensor, coordinates: Tensor, *, sampling_mode: str, padding_mode: str, coordinates_mode: str,
    align_corners: bool, padding_value: float = 0.0, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """Sample x (B, C, H, W) at coordinates (B, h, w, 2), across first."""
    height, width = x.shape[2:]
    across = _to_pixels(coordinates[..., 0].double(), width, coordinates_mode, align_corners)
    down = _to_pixels(coordinates[..., 1].double(), height, coordinates_mode, align_corners)
    if padding_mode in _INSIDE:
        across, down = _INSIDE[padding_mode](across, width), _INSIDE[padding_mode](down, height)
    return align(sample_image(widen(x), across, down, sampling_mode, float(padding_value)).to(dtype))


@kernel("affine")
def affine(
    x: Tensor, transform_matrix: Tensor, *, output_height: int, output_width: int, sampling_mode: str = "bilinear",
    padding_mode: str = "constant", padding_value: float = 0.0, coordinates_mode: str = "normalized_minus_one_to_one",
    align_corners: bool = True, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """Sample x (B, C, H, W) through transform_matrix (B or 1, 6): the origin of each output pixel, from -1 to 1."""

    def ends(count: int) -> Tensor:
        if align_corners:
            return torch.linspace(-1, 1, count, dtype=torch.float64, device=x.device)
        return (torch.arange(count, dtype=torch.float64) * 2 + 1) / count - 1

    down, across = torch.meshgrid(ends(output_height), ends(output_width), indexing="ij")
    rows = transform_matrix.double().expand(x.shape[0], 6)[:, :, None, None]
    places = [rows[:, 3 * one] * across + rows[:, 3 * one + 1] * down + rows[:, 3 * one + 2] for one in (0, 1)]
    return resample(
        x, torch.stack(places, -1), sampling_mode=sampling_mode.lower(), padding_mode=padding_mode.lower(),
        coordinates_mode=coordinates_mode.lower(), align_corners=align_corners, padding_value=padding_value, dtype=dtype,
    )  # fmt: skip
