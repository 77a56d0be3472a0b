"""Build the ops that resize and crop images: grid points along each dimension, and the neighbours of each point."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ane_sweep.reference.shapes import along
from ane_sweep.reference.site import Site, Step, align, op, widen

# Points of `wanted` samples over an interval of `length` pixels, pixel 0 at 0.0 (documentation of resize_bilinear).
Grid = Callable[[Tensor, Tensor, int], Tensor]


def _corners(i: Tensor, length: Tensor, wanted: int) -> Tensor:
    return i * (length - 1) / max(1, wanted - 1)


def _offset(i: Tensor, length: Tensor, wanted: int) -> Tensor:
    inner = length - 1
    delta = torch.where(inner.abs() < 1, torch.sign(inner) + (inner == 0), inner) / wanted
    return (i + 0.5) * delta


GRIDS: dict[str, Grid] = {
    "STRICT_ALIGN_CORNERS": _corners,
    "ALIGN_CORNERS": lambda i, length, wanted: (length - 1) / 2 + 0 * i if wanted == 1 else _corners(i, length, wanted),
    "DEFAULT": lambda i, length, wanted: i * length / wanted,
    "OFFSET_CORNERS": _offset,
    "UNALIGN_CORNERS": lambda i, length, wanted: (i + 0.5) * length / wanted - 0.5,
}


def grid_points(mode: str, length: int, wanted: int) -> Tensor:
    """Return the fp64 grid points of a whole dimension, clipped to it."""
    i = torch.arange(wanted, dtype=torch.float64)
    return GRIDS[mode](i, torch.tensor(float(length), dtype=torch.float64), wanted).clamp(0, length - 1)


def interpolate_linear(x: Tensor, axis: int, at: Tensor) -> Tensor:
    """Return x interpolated at points along a dimension, between the two neighbours; x is fp32 or wider."""
    low = at.floor().long()
    high = (low + 1).clamp(max=x.shape[axis] - 1)
    share = along((at - low).to(x.dtype), axis, x.ndim)
    below, above = x.index_select(axis, low), x.index_select(axis, high)
    return torch.where(share == 0, below, below * (1 - share) + above * share)


Sizes = Callable[[Tensor], Sequence[int]]  # of the last dimensions, after resizing


def _nearest_step(site: Site, sizes: Sizes, points: Callable[[int, int], Tensor]) -> Step:
    """Return the step that takes one pixel for each grid point; `points` computes a dimension's points from its length and new size."""

    def run(x: Tensor) -> Tensor:
        targets = sizes(x)
        for axis, wanted in enumerate(targets, x.ndim - len(targets)):
            x = x.index_select(axis, points(x.shape[axis], wanted).long().clamp(0, x.shape[axis] - 1))
        return align(x)

    return Step(run, [site.name("x")])


def _linear_step(site: Site, mode: str, sizes: Sizes) -> Step:
    dtype = site.dtype

    def run(x: Tensor) -> Tensor:
        wide = widen(x) if x.dtype.is_floating_point else x.double()
        targets = sizes(x)
        for axis, wanted in enumerate(targets, x.ndim - len(targets)):
            if wanted != x.shape[axis] or mode == "OFFSET_CORNERS":
                wide = interpolate_linear(wide, axis, grid_points(mode, x.shape[axis], wanted))
        return align(wide.to(dtype))

    return Step(run, [site.name("x")])


def _read_scales(site: Site) -> Sizes:
    """Return a function of x that gives the sizes of the last two dimensions.

    These are the declared sizes if known, else x's sizes times the scales, rounded down.
    """
    scales = site.static("scale_factor_height", 1), site.static("scale_factor_width", 1)
    shape = site.known_shape
    if shape is not None:
        return lambda x: list(shape[-2:])
    return lambda x: [int(torch.tensor(size * scale).floor()) for size, scale in zip(x.shape[-2:], scales)]


@op("upsample_bilinear")
def upsample_bilinear(site: Site) -> Step:
    corners = site.static("align_corners", True)
    half = site.static("half_pixel_centers", not corners)
    mode = "STRICT_ALIGN_CORNERS" if corners else "UNALIGN_CORNERS" if half else "DEFAULT"
    return _linear_step(site, mode, _read_scales(site))


@op("resize_bilinear")
def resize_bilinear(site: Site) -> Step:
    return _linear_step(site, _read_mode(site), _read_targets(site, 1))


def _read_targets(site: Site, *default: int) -> Sizes:
    sizes = [site.static("target_size_height", *default), site.static("target_size_width", *default)]
    return lambda x: sizes


def _read_mode(site: Site) -> str:
    mode: str = site.static("sampling_mode", "DEFAULT")
    if mode not in GRIDS:
        raise site.unsupported(f"with sampling_mode {mode}")
    return mode


@op("upsample_nearest_neighbor", "resize_nearest_neighbor")
def resize_nearest(site: Site) -> Step:
    """Return the step that takes the pixel at each grid point rounded down; the scale is the ratio of sizes, not the declared one."""
    sizes = _read_scales(site) if site.op.type == "upsample_nearest_neighbor" else _read_targets(site)
    return _nearest_step(site, sizes, lambda length, wanted: torch.arange(wanted) * length // wanted)


@op("resize")
def resize(site: Site) -> Step:
    """Return the step of iOS17's resize: `shape` gives the last `resized_dims` sizes; 0 keeps x's size.

    NEAREST_NEIGHBOR rounds the grid's points to the nearest pixel (coremltools' tests), unlike the older ops.
    """
    mode, kind, count = _read_mode(site), site.static("interpolation_mode", "LINEAR"), site.static("resized_dims")
    wanted = site.static("shape")[-count:] if count else []

    def sizes(x: Tensor) -> list[int]:
        return [size or own for size, own in zip(wanted, x.shape[x.ndim - count :])]

    if kind == "LINEAR":
        return _linear_step(site, mode, sizes)
    return _nearest_step(site, sizes, lambda length, size: (grid_points(mode, length, size) + 0.5).floor())


@op("crop_resize")
def crop_resize(site: Site) -> Step:
    """Return the step that crops boxes from images and resizes them.

    Up to iOS16: roi (N, 1, 4 or 5, 1, 1), a fifth value, in front, is the image's index; with four values every box is
    cut from every image -> (N, B, C, h, w). Since iOS17: boxes (N, 4), box_indices (N) -> (N, C, h, w).
    """
    size = site.static("target_height", 1), site.static("target_width", 1)
    order, mode = site.static("box_coordinate_mode", "CORNERS_HEIGHT_FIRST"), _read_mode(site)
    normalised, scale = site.static("normalized_coordinates", False), site.static("spatial_scale", 1.0)
    fill, dtype, is_roi = float(site.static("pad_value", 0.0)), site.dtype, site.has("roi")

    def run(x: Tensor, boxes: Tensor, images: Tensor | None = None) -> Tensor:
        rows = boxes.reshape(boxes.shape[0], -1).double()
        has_index = rows.shape[1] == 5
        chosen = rows[:, 0].long() if has_index else torch.arange(len(rows)) if images is None else images.long()
        corners = _to_corners(rows[:, -4:], order)
        if normalised:
            corners = corners * torch.tensor([x.shape[2] - 1, x.shape[3] - 1] * 2, dtype=torch.float64)
        corners = corners * scale
        if mode == "UNALIGN_CORNERS":
            # a box whose ends are exchanged is the whole image: coremltools' tests show this one case
            inverted = (corners[:, 2:] < corners[:, :2]).all(1, keepdim=True)
            image = torch.tensor([[0, 0, x.shape[2] - 1, x.shape[3] - 1]], dtype=torch.float64)
            corners = torch.where(inverted, image, corners)
        crops = []
        for row, box in enumerate(corners):
            source = x if is_roi and not has_index else x[int(chosen[row])][None]
            crops.append(_crop(widen(source), box, size, mode, fill))
        result = torch.stack(crops)
        return align((result if is_roi else result[:, 0]).to(dtype))

    names = [site.name("roi" if is_roi else "boxes")]
    names += [site.name("box_indices")] if site.has("box_indices") else []
    return Step(run, [site.name("x"), *names])


def _to_corners(rows: Tensor, order: str) -> Tensor:
    """Convert (N, 4) boxes to top, left, bottom, right."""
    if order.endswith("WIDTH_FIRST"):
        rows = rows[:, [1, 0, 3, 2]]
    if order.startswith("CENTER"):
        rows = torch.cat([rows[:, :2] - rows[:, 2:] / 2, rows[:, :2] + rows[:, 2:] / 2], 1)
    return rows


def _crop(x: Tensor, box: Tensor, size: tuple[int, int], mode: str, fill: float) -> Tensor:
    """Return one box of (B, C, H, W) images; pixels outside the images are `fill`."""
    outside = []
    for axis, wanted in enumerate(size):
        first, last = box[axis], box[axis + 2]
        i = torch.arange(wanted, dtype=torch.float64)
        span = last - first
        reach = span + torch.where(span < 0, -1.0, 1.0)  # pixels that the box covers, both ends included
        steps = GRIDS[mode](i, reach, wanted) if span >= 0 else -GRIDS[mode](i, -reach, wanted)
        at = first + torch.minimum(torch.maximum(steps, torch.clamp(span, max=0)), torch.clamp(span, min=0))
        edge = x.shape[2 + axis] - 1
        outside.append((at < -1e-9) | (at > edge + 1e-6))
        x = interpolate_linear(x, 2 + axis, at.clamp(0, edge))
    hidden = outside[0][:, None] | outside[1][None, :]
    return x.masked_fill(hidden, fill)
