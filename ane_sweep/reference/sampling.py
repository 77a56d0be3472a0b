"""Build affine and resample: images sampled at given coordinates."""

from collections.abc import Callable

import torch

from ane_sweep.reference.site import Site, Step, align, op, widen


def _to_pixels(values: torch.Tensor, length: int, mode: str, corners: bool) -> torch.Tensor:
    """Return coordinates as pixels, pixel 0 at 0.0. Without aligned corners the ends of the range are the pixels' edges."""
    if mode == "unnormalized":
        return values
    share = (values + 1) / 2 if mode == "normalized_minus_one_to_one" else values
    return share * (length - 1) if corners else share * length - 0.5


def _reflect(at: torch.Tensor, length: int, with_edge: bool) -> torch.Tensor:
    """Return coordinates reflected into the image: at the outer pixels' centres, or at their outer edges."""
    low, span = (-0.5, float(length)) if with_edge else (0.0, float(length - 1))
    if span == 0:
        return torch.zeros_like(at)
    away = (at - low).remainder(2 * span)
    return (torch.minimum(away, 2 * span - away) + low).clamp(0, length - 1)


_INSIDE: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "border": lambda at, length: at.clamp(0, length - 1),
    "reflection": lambda at, length: _reflect(at, length, False),
    "symmetric": lambda at, length: _reflect(at, length, True),
}


def sample_image(x: torch.Tensor, across: torch.Tensor, down: torch.Tensor, kind: str, fill: float) -> torch.Tensor:
    """Return x (B, C, H, W) at pixel coordinates (B, h, w), fp32; pixels outside the image are `fill`."""
    height, width = x.shape[2:]
    rows = torch.arange(x.shape[0])[:, None, None]

    def pixel(column: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
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


@op("resample")
def resample(site: Site) -> Step:
    """Sample x (B, C, H, W) at coordinates (B, h, w, 2), across first."""
    kind, padding = site.static("sampling_mode"), site.static("padding_mode")
    mode, corners = site.static("coordinates_mode"), site.static("align_corners")
    fill, dtype = float(site.static("padding_value", 0.0)), site.dtype

    def run(x: torch.Tensor, coordinates: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[2:]
        across = _to_pixels(coordinates[..., 0].double(), width, mode, corners)
        down = _to_pixels(coordinates[..., 1].double(), height, mode, corners)
        if padding in _INSIDE:
            across, down = _INSIDE[padding](across, width), _INSIDE[padding](down, height)
        return align(sample_image(widen(x), across, down, kind, fill).to(dtype))

    return Step(run, [site.name("x"), site.name("coordinates")])


@op("affine")
def affine(site: Site) -> Step:
    """Sample x (B, C, H, W) through transform_matrix (B or 1, 6): the origin of each output pixel, from -1 to 1."""
    size, dtype = (site.static("output_height"), site.static("output_width")), site.dtype
    mode, corners = site.static("coordinates_mode", "normalized_minus_one_to_one"), site.static("align_corners", True)
    kind, fill = site.static("sampling_mode", "bilinear").lower(), float(site.static("padding_value", 0.0))
    padding = site.static("padding_mode", "constant").lower()

    def ends(count: int) -> torch.Tensor:
        if corners:
            return torch.linspace(-1, 1, count, dtype=torch.float64) if count > 1 else torch.full((1,), -1.0).double()
        return (torch.arange(count, dtype=torch.float64) * 2 + 1) / count - 1

    def run(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[2:]
        down, across = torch.meshgrid(ends(size[0]), ends(size[1]), indexing="ij")
        rows = matrix.double().expand(x.shape[0], 6)[:, :, None, None]
        from_across = _to_pixels(rows[:, 0] * across + rows[:, 1] * down + rows[:, 2], width, mode.lower(), corners)
        from_down = _to_pixels(rows[:, 3] * across + rows[:, 4] * down + rows[:, 5], height, mode.lower(), corners)
        if padding in _INSIDE:
            from_across, from_down = _INSIDE[padding](from_across, width), _INSIDE[padding](from_down, height)
        return align(sample_image(widen(x), from_across, from_down, kind, fill).to(dtype))

    return Step(run, [site.name("x"), site.name("transform_matrix")])
