"""Ops that move values without computing: shape, order, slices, joins, fills."""

from typing import Any

import torch
import torch.nn.functional as F

from ane_sweep.runtimes._reference.site import Site, Step, aligned, op


@op("reshape", "reshape_like", "expand_dims", "squeeze", "flatten2d")
def reshape(site: Site) -> Step:
    """All of these keep the values' order, so the declared shape says it all."""
    shape = site.shape
    return Step(lambda x: x.view(shape), [site.name("x")])


@op("transpose")
def transpose(site: Site) -> Step:
    perm = site.static("perm")
    return Step(lambda x: aligned(x.permute(perm)), [site.name("x")])


@op("concat")
def concat(site: Site) -> Step:
    """`interleave` takes slices of the inputs in turn."""
    axis = site.static("axis")
    if not site.static("interleave", False):
        return Step(lambda *values: torch.cat(values, axis), site.names("values"))

    def run(*values: torch.Tensor) -> torch.Tensor:
        place = axis % values[0].ndim
        return aligned(torch.stack(values, place + 1).flatten(place, place + 1))

    return Step(run, site.names("values"))


@op("stack")
def stack(site: Site) -> Step:
    axis = site.static("axis")
    return Step(lambda *values: torch.stack(values, axis), site.names("values"))


@op("split")
def split(site: Site) -> Step:
    axis = site.static("axis")
    sizes = [kind.shape[axis] for kind in site.outputs if kind is not None]
    if None in sizes or len(sizes) != len(site.outputs):
        raise site.unsupported("with parts whose sizes are only known while the program runs")

    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(aligned(part) for part in x.split(sizes, axis))

    return Step(run, [site.name("x")])


@op("slice_by_index")
def slice_by_index(site: Site) -> Step:
    """x[begin:end:stride] by dimension; masks mean "as far as it goes", or one element and its dimension dropped."""
    begin, end = site.static("begin"), site.static("end")
    rank = len(begin)
    nowhere = [False] * rank
    stride = site.static("stride", [1] * rank)
    begin_mask, end_mask = site.static("begin_mask", nowhere), site.static("end_mask", nowhere)
    squeeze = site.static("squeeze_mask", nowhere)
    index: list[Any] = []
    flips = []
    for axis in range(rank):
        start = None if begin_mask[axis] else begin[axis]
        stop = None if end_mask[axis] else end[axis]
        if squeeze[axis]:
            index.append(begin[axis])
        elif stride[axis] > 0:
            index.append(slice(start, stop, stride[axis]))
        else:
            index.append((start, stop, stride[axis]))
            flips.append(axis)

    def run(x: torch.Tensor) -> torch.Tensor:
        chosen = list(index)
        for axis in flips:  # torch has no negative steps: take the same places, front to back, and turn them round
            places = range(x.shape[axis])[slice(*index[axis])]
            chosen[axis] = torch.tensor(list(places), dtype=torch.int64)
        for axis in flips:
            x = x.index_select(axis, chosen[axis])
            chosen[axis] = slice(None)
        return aligned(x[tuple(chosen)])

    return Step(run, [site.name("x")])


@op("slice_by_size")
def slice_by_size(site: Site) -> Step:
    """`size` elements from `begin` on; -1 means all that follow."""
    sizes = site.static("size")
    if site.is_static("begin"):
        begin = site.static("begin")
        index = tuple(slice(b, None if s == -1 else b + s) for b, s in zip(begin, sizes))
        return Step(lambda x: aligned(x[index]), [site.name("x")])

    def run(x: torch.Tensor, begin: torch.Tensor) -> torch.Tensor:
        starts = begin.tolist()
        return aligned(x[tuple(slice(b, None if s == -1 else b + s) for b, s in zip(starts, sizes))])

    return Step(run, [site.name("x"), site.name("begin")])


@op("slice_update")
def slice_update(site: Site) -> Step:
    begin, end = site.static("begin"), site.static("end")
    rank = len(begin)
    nowhere = [False] * rank
    stride = site.static("stride", [1] * rank)
    begin_mask, end_mask = site.static("begin_mask", nowhere), site.static("end_mask", nowhere)
    squeeze = site.static("squeeze_mask", nowhere)
    if any(step < 0 for step in stride):
        raise site.unsupported("with a negative stride")
    index = tuple(
        begin[axis]
        if squeeze[axis]
        else slice(None if begin_mask[axis] else begin[axis], None if end_mask[axis] else end[axis], stride[axis])
        for axis in range(rank)
    )

    def run(x: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
        result = x.clone()
        result[index] = update
        return result

    return Step(run, [site.name("x"), site.name("update")])


@op("tile")
def tile(site: Site) -> Step:
    reps = site.static("reps")
    return Step(lambda x: aligned(x.repeat(reps)), [site.name("x")])


@op("reverse")
def reverse(site: Site) -> Step:
    axes = site.static("axes", None)
    return Step(lambda x: x.flip(list(range(x.ndim)) if axes is None else axes), [site.name("x")])


@op("pad")
def pad(site: Site) -> Step:
    """`pad`: before and after each of the last dimensions, the first of them first."""
    sides, mode = site.static("pad"), site.static("mode", "constant")
    pairs = [sides[index : index + 2] for index in range(0, len(sides), 2)]
    if mode == "constant":
        value = site.static("constant_val", 0.0)
        order = [side for pair in reversed(pairs) for side in pair]
        return Step(lambda x: F.pad(x, order, value=value), [site.name("x")])
    if mode not in ("reflect", "replicate"):
        raise site.unsupported(f"with mode {mode}")

    def run(x: torch.Tensor) -> torch.Tensor:
        for offset, (before, after) in enumerate(pairs, x.ndim - len(pairs)):
            x = x.index_select(offset, _mirror(x.shape[offset], before, after, mode))
        return x

    return Step(run, [site.name("x")])


def _mirror(length: int, before: int, after: int, mode: str) -> torch.Tensor:
    places = torch.arange(-before, length + after)
    if mode == "replicate" or length == 1:
        return places.clamp(0, length - 1)
    period = 2 * (length - 1)
    places = places.remainder(period)
    return torch.minimum(places, period - places)


@op("fill")
def fill(site: Site) -> Step:
    shape, value, dtype = site.shape, site.static("value", 0.0), site.dtype
    return Step(lambda: torch.full(shape, value, dtype=dtype), [])


@op("fill_like")
def fill_like(site: Site) -> Step:
    value, dtype = site.static("value", 0.0), site.dtype
    return Step(lambda x: torch.full(x.shape, value, dtype=dtype), [site.name("ref_tensor")])


@op("shape")
def shape(site: Site) -> Step:
    dtype = site.dtype
    return Step(lambda x: torch.tensor(x.shape, dtype=dtype), [site.name("x")])


@op("range_1d")
def range_1d(site: Site) -> Step:
    start, end, step = site.static("start"), site.static("end"), site.static("step")
    dtype = site.dtype
    return Step(lambda: torch.arange(start, end, step).to(dtype), [])


@op("one_hot")
def one_hot(site: Site) -> Step:
    """A new dimension at `axis`: on_value where its place equals the index, off_value elsewhere."""
    size, axis = site.static("one_hot_vector_size"), site.static("axis", -1)
    on, off = site.static("on_value", 1), site.static("off_value", 0)
    dtype = site.dtype

    def run(indices: torch.Tensor) -> torch.Tensor:
        place = axis % (indices.ndim + 1)
        places = torch.arange(size).reshape([size if d == place else 1 for d in range(indices.ndim + 1)])
        hit = indices.unsqueeze(place) == places
        return aligned(torch.where(hit, torch.tensor(on, dtype=dtype), torch.tensor(off, dtype=dtype)))

    return Step(run, [site.name("indices")])


@op("band_part")
def band_part(site: Site) -> Step:
    """Keeps a band around the diagonal of the last two dimensions; -1 keeps all on that side."""
    lower, upper = site.static("lower", -1), site.static("upper", -1)

    def run(x: torch.Tensor) -> torch.Tensor:
        distance = torch.arange(x.shape[-1])[None, :] - torch.arange(x.shape[-2])[:, None]
        keep = (distance >= -lower if lower >= 0 else torch.ones_like(distance, dtype=torch.bool)) & (
            distance <= upper if upper >= 0 else torch.ones_like(distance, dtype=torch.bool)
        )
        return aligned(torch.where(keep, x, torch.zeros((), dtype=x.dtype)))

    return Step(run, [site.name("x")])


@op("non_zero")
def non_zero(site: Site) -> Step:
    dtype = site.dtype
    return Step(lambda x: aligned(x.nonzero().to(dtype)), [site.name("x")])


@op("depth_to_space", "pixel_shuffle")
def depth_to_space(site: Site) -> Step:
    """Both (N, C r r, H, W) -> (N, C, H r, W r); depth_to_space has the channel last within C r r, pixel_shuffle
    first.
    """
    is_shuffle = site.op.type == "pixel_shuffle"
    r = site.static("upscale_factor" if is_shuffle else "block_size")

    def run(x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        if is_shuffle:
            parts = x.view(n, c // (r * r), r, r, h, w).permute(0, 1, 4, 2, 5, 3)
        else:
            parts = x.view(n, r, r, c // (r * r), h, w).permute(0, 3, 4, 1, 5, 2)
        return aligned(parts.reshape(n, c // (r * r), h * r, w * r))

    return Step(run, [site.name("x")])


@op("space_to_depth", "pixel_unshuffle")
def space_to_depth(site: Site) -> Step:
    is_shuffle = site.op.type == "pixel_unshuffle"
    r = site.static("downscale_factor" if is_shuffle else "block_size")

    def run(x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        parts = x.view(n, c, h // r, r, w // r, r)
        order = (0, 1, 3, 5, 2, 4) if is_shuffle else (0, 3, 5, 1, 2, 4)
        return aligned(parts.permute(order).reshape(n, c * r * r, h // r, w // r))

    return Step(run, [site.name("x")])


@op("upsample_nearest_neighbor")
def upsample_nearest(site: Site) -> Step:
    factors = site.static("scale_factor_height", 1), site.static("scale_factor_width", 1)
    if any(factor != int(factor) for factor in factors):
        raise site.unsupported("with a scale that is not a whole number")
    high, broad = (int(factor) for factor in factors)
    return Step(lambda x: aligned(x.repeat_interleave(high, -2).repeat_interleave(broad, -1)), [site.name("x")])


@op("sliding_windows")
def sliding_windows(site: Site) -> Step:
    """(.., L, ..) -> (.., windows, size, ..) along `axis`."""
    axis, size, stride = site.static("axis"), site.static("size"), site.static("stride", 1)

    def run(x: torch.Tensor) -> torch.Tensor:
        place = axis % x.ndim
        return aligned(x.unfold(place, size, stride).movedim(-1, place + 1))

    return Step(run, [site.name("x")])
