"""Build the ops that move values without computing: shape, order, joins, fills."""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from ane_sweep.reference.limits import check_shape
from ane_sweep.reference.site import Site, Step, align, op


@op("reshape", "reshape_like", "expand_dims", "squeeze", "flatten2d")
def reshape(site: Site) -> Step:
    """Reshape: all of these ops keep the values' order, so the declared shape, if it is known, is enough."""
    shape = site.known_shape
    if shape is not None:
        return Step(lambda x: x.view(shape), [site.name("x")])
    if site.op.type == "reshape_like":
        return _reshape_like(site)
    return Step(_RESHAPES[site.op.type](site), [site.name("x")])


def _reshape(site: Site) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that reshapes x to `shape`, in which 0 and -1 have a meaning.

    0 takes the size of x's dimension at the same place counted from the last (1 beyond the first); -1 the rest. Before iOS17 a 0
    needs equal ranks, for which counting from either end is the same.
    """
    wanted = site.static("shape")

    def run(x: torch.Tensor) -> torch.Tensor:
        shape = list(wanted)
        for place, size in enumerate(shape):
            if size == 0 and x.numel():
                back = len(shape) - place
                shape[place] = x.shape[-back] if back <= x.ndim else 1
        return x.reshape(shape)

    return run


def _expand_dims(site: Site) -> Callable[[torch.Tensor], torch.Tensor]:
    axes = site.static("axes")

    def run(x: torch.Tensor) -> torch.Tensor:
        rank = x.ndim + len(axes)
        for axis in sorted(axis % rank for axis in axes):
            x = x.unsqueeze(axis)
        return x

    return run


def _squeeze(site: Site) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that drops dimensions of size 1; others stay, as in torch."""
    axes = site.static("axes", None)
    return lambda x: x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _flatten2d(site: Site) -> Callable[[torch.Tensor], torch.Tensor]:
    axis = site.static("axis", 1)
    return lambda x: x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


_RESHAPES = {"reshape": _reshape, "expand_dims": _expand_dims, "squeeze": _squeeze, "flatten2d": _flatten2d}


def _reshape_like(site: Site) -> Step:
    """Reshape x to a shape that is put together from spans of other tensors' shapes."""
    spans = list(zip(site.listed("begins"), site.listed("ends"), site.listed("end_masks")))

    def run(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        shape: list[int] = []
        for other, (begin, end, to_the_end) in zip(others, spans):
            shape += other.shape[begin:] if to_the_end else other.shape[begin:end]
        return x.reshape(shape)

    return Step(run, [site.name("x"), *site.names("ref_tensors")])


@op("transpose")
def transpose(site: Site) -> Step:
    perm = site.static("perm")
    return Step(lambda x: align(x.permute(perm)), [site.name("x")])


@op("concat")
def concat(site: Site) -> Step:
    """Concatenate; `interleave` takes slices of the inputs in turn."""
    axis = site.static("axis")
    if site.known_shape is not None and len(site.known_shape) > 1 and not site.static("interleave", False):
        return Step(lambda *values: torch.cat(values, axis), site.names("values"))
    if not site.static("interleave", False):  # scalars are joined to a vector
        return Step(
            lambda *values: torch.cat([value.reshape(1) if value.ndim == 0 else value for value in values], axis),
            site.names("values"),
        )

    def run(*values: torch.Tensor) -> torch.Tensor:
        place = axis % values[0].ndim
        return align(torch.stack(values, place + 1).flatten(place, place + 1))

    return Step(run, site.names("values"))


@op("stack")
def stack(site: Site) -> Step:
    axis = site.static("axis")
    return Step(lambda *values: torch.stack(values, axis), site.names("values"))


@op("split")
def split(site: Site) -> Step:
    axis, count = site.static("axis"), len(site.outputs)
    sizes = site.static("split_sizes", None)

    def run(x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        parts = torch.split(x, sizes or x.shape[axis] // count, axis)
        return align(parts[0]) if count == 1 else tuple(align(part) for part in parts)

    return Step(run, [site.name("x")])


@op("tile")
def tile(site: Site) -> Step:
    reps, where = site.static("reps"), f"{site.where}: {site.op}"

    def run(x: torch.Tensor) -> torch.Tensor:
        check_shape([size * times for size, times in zip(x.shape, reps)], x.dtype, where)
        return align(x.repeat(reps))

    return Step(run, [site.name("x")])


@op("reverse")
def reverse(site: Site) -> Step:
    axes = site.static("axes", None)
    return Step(lambda x: x.flip(list(range(x.ndim)) if axes is None else axes), [site.name("x")])


@op("pad")
def pad(site: Site) -> Step:
    """Pad: `pad` has before and after of each of the last dimensions, the first of them first."""
    sides, mode = site.static("pad"), site.static("mode", "constant")
    if min(sides, default=0) < 0:
        raise site.unsupported(f"with negative padding {sides}")
    pairs = [sides[index : index + 2] for index in range(0, len(sides), 2)]
    where = f"{site.where}: {site.op}"
    if mode == "constant":
        value = site.static("constant_val", 0.0)
        order = [side for pair in reversed(pairs) for side in pair]

        def constant(x: torch.Tensor) -> torch.Tensor:
            check_shape(_padded_shape(x.shape, pairs), x.dtype, where)
            return F.pad(x, order, value=value)

        return Step(constant, [site.name("x")])
    if mode not in ("reflect", "replicate"):
        raise site.unsupported(f"with mode {mode}")

    def run(x: torch.Tensor) -> torch.Tensor:
        check_shape(_padded_shape(x.shape, pairs), x.dtype, where)
        for offset, (before, after) in enumerate(pairs, x.ndim - len(pairs)):
            x = x.index_select(offset, _mirrored_places(x.shape[offset], before, after, mode))
        return x

    return Step(run, [site.name("x")])


def _padded_shape(shape: Sequence[int], pairs: list[list[int]]) -> list[int]:
    kept = len(shape) - len(pairs)
    return [*shape[:kept], *(size + sum(pair) for size, pair in zip(shape[kept:], pairs))]


def _mirrored_places(length: int, before: int, after: int, mode: str) -> torch.Tensor:
    places = torch.arange(-before, length + after)
    if mode == "replicate" or length == 1:
        return places.clamp(0, length - 1)
    period = 2 * (length - 1)
    places = places.remainder(period)
    return torch.minimum(places, period - places)


@op("fill")
def fill(site: Site) -> Step:
    shape, value, dtype = site.static("shape"), site.static("value", 0.0), site.dtype
    check_shape(shape, dtype, f"{site.where}: {site.op}")
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
    check_shape([int(abs((end - start) / step)) if step else 0], torch.int64, f"{site.where}: {site.op}")
    return Step(lambda: torch.arange(start, end, step).to(dtype), [])


@op("one_hot")
def one_hot(site: Site) -> Step:
    """Add a dimension at `axis`: on_value at the place that equals the index, off_value elsewhere."""
    size, axis = site.static("one_hot_vector_size"), site.static("axis", -1)
    on, off = site.static("on_value", 1), site.static("off_value", 0)
    dtype, where = site.dtype, f"{site.where}: {site.op}"

    def run(indices: torch.Tensor) -> torch.Tensor:
        check_shape([*indices.shape, size], dtype, where)
        place = axis % (indices.ndim + 1)
        places = torch.arange(size).reshape([size if d == place else 1 for d in range(indices.ndim + 1)])
        hit = indices.unsqueeze(place) == places
        return align(torch.where(hit, torch.tensor(on, dtype=dtype), torch.tensor(off, dtype=dtype)))

    return Step(run, [site.name("indices")])


@op("band_part")
def band_part(site: Site) -> Step:
    """Keep a band around the diagonal of the last two dimensions; -1 keeps all on that side."""
    lower, upper = site.static("lower", -1), site.static("upper", -1)

    def run(x: torch.Tensor) -> torch.Tensor:
        distance = torch.arange(x.shape[-1])[None, :] - torch.arange(x.shape[-2])[:, None]
        keep = (distance >= -lower if lower >= 0 else torch.ones_like(distance, dtype=torch.bool)) & (
            distance <= upper if upper >= 0 else torch.ones_like(distance, dtype=torch.bool)
        )
        return align(torch.where(keep, x, torch.zeros((), dtype=x.dtype)))

    return Step(run, [site.name("x")])


@op("non_zero")
def non_zero(site: Site) -> Step:
    dtype = site.dtype
    return Step(lambda x: align(x.nonzero().to(dtype)), [site.name("x")])


@op("reverse_sequence")
def reverse_sequence(site: Site) -> Step:
    """Turn round, for each place along `batch_axis`, the first lengths[place] elements along `seq_axis`."""
    along, batch = site.static("seq_axis", 0), site.static("batch_axis", 0)

    def run(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        size, rank = x.shape[along], x.ndim
        places = torch.arange(size).reshape([size if axis == along % rank else 1 for axis in range(rank)])
        ends = lengths.long().reshape([x.shape[batch] if axis == batch % rank else 1 for axis in range(rank)])
        order = torch.where(places < ends, ends - 1 - places, places)
        return align(x.gather(along, order.expand(x.shape)))

    return Step(run, [site.name("x"), site.name("lengths")])


@op("crop")
def crop(site: Site) -> Step:
    """Cut from the top, bottom, left and right of the last two dimensions."""
    (top, bottom), (left, right) = site.static("crop_height"), site.static("crop_width")
    return Step(lambda x: align(x[..., top : x.shape[-2] - bottom, left : x.shape[-1] - right]), [site.name("x")])
