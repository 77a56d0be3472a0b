"""Build the ops that resize and crop images: a grid of points along each dimension, and the neighbours of each point."""

from collections.abc import Callable, Sequence

import torch

from ane_sweep.reference.site import Site, Step, align, op, widen

# Points of `wanted` samples over an interval of `length` pixels, pixel 0 at 0.0 (documentation of resize_bilinear).
Grid = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


def _corners(i: torch.Tensor, length: torch.Tensor, wanted: int) -> torch.Tensor:
    return i * (length - 1) / max(1, wanted - 1)


def _corners_or_centre(i: torch.Tensor, length: torch.Tensor, wanted: int) -> torch.Tensor:
    return (length - 1) / 2 + 0 * i if wanted == 1 else _corners(i, length, wanted)


def _offset(i: torch.Tensor, length: torch.Tensor, wanted: int) -> torch.Tensor:
    inner = length - 1
    delta = torch.where(inner.abs() < 1, torch.sign(inner) + (inner == 0), inner) / wanted
    return (i + 0.5) * delta


GRIDS: dict[str, Grid] = {
    "STRICT_ALIGN_CORNERS": _corners,
    "ALIGN_CORNERS": _corners_or_centre,
    "DEFAULT": lambda i, length, wanted: i * length / wanted,
    "OFFSET_CORNERS": _offset,
    "UNALIGN_CORNERS": lambda i, length, wanted: (i + 0.5) * length / wanted - 0.5,
}


def grid_points(mode: str, length: int, wanted: int) -> torch.Tensor:
    """Return the fp64 points of a whole dimension, kept inside it."""
    i = torch.arange(wanted, dtype=torch.float64)
    return GRIDS[mode](i, torch.tensor(float(length), dtype=torch.float64), wanted).clamp(0, length - 1)


def interpolate_linear(x: torch.Tensor, axis: int, at: torch.Tensor) -> torch.Tensor:
    """Return x at points along a dimension, between the two neighbours; x fp32 or wider."""
    low = at.floor().long()
    high = (low + 1).clamp(max=x.shape[axis] - 1)
    share = (at - low).to(x.dtype).reshape([-1 if dim == axis % x.ndim else 1 for dim in range(x.ndim)])
    below, above = x.index_select(axis, low), x.index_select(axis, high)
    return torch.where(share == 0, below, below * (1 - share) + above * share)


def take_nearest(x: torch.Tensor, axis: int, at: torch.Tensor) -> torch.Tensor:
    return x.index_select(axis, at.long().clamp(0, x.shape[axis] - 1))


def _linear_step(site: Site, mode: str, sizes: Callable[[torch.Tensor], Sequence[int]]) -> Step:
    dtype = site.dtype

    def run(x: torch.Tensor) -> torch.Tensor:
        wide = widen(x) if x.dtype.is_floating_point else x.double()
        targets = sizes(x)
        for axis, wanted in enumerate(targets, x.ndim - len(targets)):
            if wanted != x.shape[axis] or mode == "OFFSET_CORNERS":
                wide = interpolate_linear(wide, axis, grid_points(mode, x.shape[axis], wanted))
        return align(wide.to(dtype))

    return Step(run, [site.name("x")])


def _read_scales(site: Site) -> Callable[[torch.Tensor], list[int]]:
    """Return a function of x that gives the sizes of the last two dimensions.

    They are as declared if that is known, else the sizes times the scales, rounded down.
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
    sizes = [site.static("target_size_height", 1), site.static("target_size_width", 1)]
    return _linear_step(site, _read_mode(site), lambda x: sizes)


def _read_mode(site: Site) -> str:
    mode: str = site.static("sampling_mode", "DEFAULT")
    if mode not in GRIDS:
        raise site.unsupported(f"with sampling_mode {mode}")
    return mode


@op("upsample_nearest_neighbor", "resize_nearest_neighbor")
def resize_nearest(site: Site) -> Step:
    """Take the pixel that a point falls into (rounded down); the scale is that of the sizes, not the declared one."""
    if site.op.type == "upsample_nearest_neighbor":
        sizes = _read_scales(site)
    else:
        fixed = [site.static("target_size_height"), site.static("target_size_width")]
        sizes = lambda x: fixed  # noqa: E731

    def run(x: torch.Tensor) -> torch.Tensor:
        for axis, wanted in enumerate(sizes(x), x.ndim - 2):
            at = torch.arange(wanted) * x.shape[axis] // wanted
            x = take_nearest(x, axis, at)
        return align(x)

    return Step(run, [site.name("x")])


@op("resize")
def resize(site: Site) -> Step:
    """Resize (iOS17): the last `resized_dims` sizes are those of `shape`, in which 0 keeps x's own.

    NEAREST_NEIGHBOR rounds the grid's points to the nearest pixel (coremltools' tests), unlike the older ops.
    """
    mode, kind, count = _read_mode(site), site.static("interpolation_mode", "LINEAR"), site.static("resized_dims")
    wanted = site.static("shape")[-count:] if count else []

    def sizes(x: torch.Tensor) -> list[int]:
        return [size or own for size, own in zip(wanted, x.shape[x.ndim - count :])]

    if kind == "LINEAR":
        return _linear_step(site, mode, sizes)

    def run(x: torch.Tensor) -> torch.Tensor:
        for axis, size in enumerate(sizes(x), x.ndim - count):
            x = take_nearest(x, axis, (grid_points(mode, x.shape[axis], size) + 0.5).floor())
        return align(x)

    return Step(run, [site.name("x")])


@op("crop_resize")
def crop_resize(site: Site) -> Step:
    """Resize boxes of images.

    Up to iOS16: roi (N, 1, 4 or 5, 1, 1), a fifth value in front being the image; with four, every box of every image -> (N, B,
    C, h, w). Since iOS17: boxes (N, 4), box_indices (N) -> (N, C, h, w).
    """
    size = site.static("target_height", 1), site.static("target_width", 1)
    order, mode = site.static("box_coordinate_mode", "CORNERS_HEIGHT_FIRST"), _read_mode(site)
    normalised, scale = site.static("normalized_coordinates", False), site.static("spatial_scale", 1.0)
    fill, dtype, is_roi = float(site.static("pad_value", 0.0)), site.dtype, site.has("roi")

    def run(x: torch.Tensor, boxes: torch.Tensor, images: torch.Tensor | None = None) -> torch.Tensor:
        rows = boxes.reshape(boxes.shape[0], -1).double()
        has_index = rows.shape[1] == 5
        chosen = rows[:, 0].long() if has_index else torch.arange(len(rows)) if images is None else images.long()
        corners = _to_corners(rows[:, -4:], order)
        if normalised:
            corners = corners * torch.tensor([x.shape[2] - 1, x.shape[3] - 1] * 2, dtype=torch.float64)
        corners = corners * scale
        if mode == "UNALIGN_CORNERS":
            corners = torch.where(_is_inverted(corners), _whole_image(x), corners)
        crops = []
        for row, box in enumerate(corners):
            source = x if is_roi and not has_index else x[int(chosen[row])][None]
            crops.append(_crop(widen(source), box, size, mode, fill))
        result = torch.stack(crops)
        return align((result if is_roi else result[:, 0]).to(dtype))

    names = [site.name("roi" if is_roi else "boxes")]
    names += [site.name("box_indices")] if site.has("box_indices") else []
    return Step(run, [site.name("x"), *names])


def _is_inverted(corners: torch.Tensor) -> torch.Tensor:
    return ((corners[:, 2] < corners[:, 0]) & (corners[:, 3] < corners[:, 1]))[:, None]


def _whole_image(x: torch.Tensor) -> torch.Tensor:
    """Return the box for one whose ends are exchanged under UNALIGN_CORNERS: coremltools' tests show this one case."""
    return torch.tensor([[0, 0, x.shape[2] - 1, x.shape[3] - 1]], dtype=torch.float64)


def _to_corners(rows: torch.Tensor, order: str) -> torch.Tensor:
    """Return (N, 4) boxes as top, left, bottom, right."""
    if order.endswith("WIDTH_FIRST"):
        rows = rows[:, [1, 0, 3, 2]]
    if order.startswith("CENTER"):
        rows = torch.cat([rows[:, :2] - rows[:, 2:] / 2, rows[:, :2] + rows[:, 2:] / 2], 1)
    return rows


def _crop(x: torch.Tensor, box: torch.Tensor, size: tuple[int, int], mode: str, fill: float) -> torch.Tensor:
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
