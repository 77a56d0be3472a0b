"""Build the ops that move values without computing: shape, order, joins, fills, random numbers.

Random numbers are not bit-exact and cannot be: Core ML's generator is not specified, not even with a seed. The
distribution is right. With a seed of 0 or more every run of this runtime gives the same numbers (torch's generator on
the CPU, seeded again at each run of the op); without a seed every run differs.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ane_sweep.reference.limits import check_shape
from ane_sweep.reference.site import OPS, Builder, Site, Step, align, kernel, op, widen


@kernel("reshape")
def reshape(x: Tensor, *, shape: list[int]) -> Tensor:
    """Reshape x to `shape`, in which 0 and -1 are special.

    0 takes the size of x's dimension at the same place counted from the last (1 beyond the first); -1 the rest. Before
    iOS17 a 0 needs equal ranks, so the direction of counting does not matter.
    """
    sizes = list(shape)
    for place, size in enumerate(sizes):
        if size == 0 and x.numel():
            back = len(sizes) - place
            sizes[place] = x.shape[-back] if back <= x.ndim else 1
    return x.reshape(sizes)


@kernel("expand_dims")
def expand_dims(x: Tensor, *, axes: list[int]) -> Tensor:
    rank = x.ndim + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


@kernel("squeeze")
def squeeze(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    """Drop dimensions of size 1; others stay, as in torch."""
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


@kernel("flatten2d")
def flatten2d(x: Tensor, *, axis: int = 1) -> Tensor:
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@op("reshape_like")
def reshape_like(site: Site) -> Step:
    """Return the step that reshapes x to a shape composed of parts of other tensors' shapes."""
    spans = list(zip(site.listed("begins"), site.listed("ends"), site.listed("end_masks")))

    def run(x: Tensor, *others: Tensor) -> Tensor:
        shape: list[int] = []
        for other, (begin, end, to_the_end) in zip(others, spans):
            shape += other.shape[begin:] if to_the_end else other.shape[begin:end]
        return x.reshape(shape)

    return Step(run, [site.name("x"), *site.names("ref_tensors")])


def _prefer_known_shape(builder: Builder) -> Builder:
    """Return a builder of an op that keeps the order of values: if the declared shape is known, it is enough."""

    def build(site: Site) -> Step:
        shape = site.known_shape
        return builder(site) if shape is None else Step(lambda x: x.view(shape), [site.name("x")])

    return build


for _name in ("reshape", "reshape_like", "expand_dims", "squeeze", "flatten2d"):
    OPS[_name] = _prefer_known_shape(OPS[_name])


@kernel("transpose")
def transpose(x: Tensor, *, perm: list[int]) -> Tensor:
    return align(x.permute(perm))


@kernel("concat")
def concat(*values: Tensor, axis: int, interleave: bool = False) -> Tensor:
    """Concatenate tensors; `interleave` takes slices of the inputs in turn; scalars become a vector."""
    if interleave:
        place = axis % values[0].ndim
        return align(torch.stack(values, place + 1).flatten(place, place + 1))
    return torch.cat([value.reshape(1) if value.ndim == 0 else value for value in values], axis)


@kernel("stack")
def stack(*values: Tensor, axis: int) -> Tensor:
    return torch.stack(values, axis)


@op("split")
def split(site: Site) -> Step:
    axis, count = site.static("axis"), len(site.outputs)
    sizes = site.static("split_sizes", None)

    def run(x: Tensor) -> Tensor | tuple[Tensor, ...]:
        parts = torch.split(x, sizes or x.shape[axis] // count, axis)
        return align(parts[0]) if count == 1 else tuple(align(part) for part in parts)

    return Step(run, [site.name("x")])


@kernel("tile")
def tile(x: Tensor, *, reps: list[int], where: str) -> Tensor:
    check_shape([size * times for size, times in zip(x.shape, reps)], x.dtype, where)
    return align(x.repeat(reps))


@kernel("reverse")
def reverse(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    return x.flip(list(range(x.ndim)) if axes is None else axes)


@op("pad")
def pad(site: Site) -> Step:
    """Return the step of padding: `pad` has the sizes before and after each of the last dimensions, in order."""
    sides, mode = site.static("pad"), site.static("mode", "constant")
    if min(sides, default=0) < 0:
        raise site.unsupported(f"with negative padding {sides}")
    if mode not in ("constant", "reflect", "replicate"):
        raise site.unsupported(f"with mode {mode}")
    pairs = [sides[index : index + 2] for index in range(0, len(sides), 2)]
    order, where = [side for pair in reversed(pairs) for side in pair], f"{site.where}: {site.op}"
    value = site.static("constant_val", 0.0) if mode == "constant" else 0.0

    def run(x: Tensor) -> Tensor:
        kept = x.ndim - len(pairs)
        padded = [size + sum(pair) for size, pair in zip(x.shape[kept:], pairs)]
        check_shape([*x.shape[:kept], *padded], x.dtype, where)
        if mode == "constant":
            return F.pad(x, order, value=value)
        for offset, (before, after) in enumerate(pairs, kept):
            x = x.index_select(offset, _mirrored_places(x.shape[offset], before, after, mode))
        return x

    return Step(run, [site.name("x")])


def _mirrored_places(length: int, before: int, after: int, mode: str) -> Tensor:
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


@kernel("fill_like")
def fill_like(ref_tensor: Tensor, *, value: float = 0.0, dtype: torch.dtype) -> Tensor:
    return torch.full(ref_tensor.shape, value, dtype=dtype)


@kernel("shape")
def shape(x: Tensor, *, dtype: torch.dtype) -> Tensor:
    return torch.tensor(x.shape, dtype=dtype)


@op("range_1d")
def range_1d(site: Site) -> Step:
    start, end, step = site.static("start"), site.static("end"), site.static("step")
    dtype = site.dtype
    check_shape([int(abs((end - start) / step)) if step else 0], torch.int64, f"{site.where}: {site.op}")
    return Step(lambda: torch.arange(start, end, step).to(dtype), [])


def along(values: Tensor, axis: int, rank: int) -> Tensor:
    """Return a vector in a shape of `rank` that broadcasts along one dimension."""
    return values.reshape([-1 if dim == axis % rank else 1 for dim in range(rank)])


@kernel("one_hot")
def one_hot(
    indices: Tensor, *, one_hot_vector_size: int, axis: int = -1, on_value: float = 1, off_value: float = 0,
    dtype: torch.dtype, where: str,
) -> Tensor:  # fmt: skip
    """Add a dimension at `axis` with on_value at the index and off_value elsewhere."""
    check_shape([*indices.shape, one_hot_vector_size], dtype, where)
    rank = indices.ndim + 1
    hit = indices.unsqueeze(axis % rank) == along(torch.arange(one_hot_vector_size), axis, rank)
    return align(torch.where(hit, torch.tensor(on_value, dtype=dtype), torch.tensor(off_value, dtype=dtype)))


@kernel("band_part")
def band_part(x: Tensor, *, lower: int = -1, upper: int = -1) -> Tensor:
    """Keep a band around the diagonal of the last two dimensions; -1 keeps all on that side."""
    distance = torch.arange(x.shape[-1])[None, :] - torch.arange(x.shape[-2])[:, None]
    keep = torch.ones_like(distance, dtype=torch.bool) if lower < 0 else distance >= -lower
    keep = keep if upper < 0 else keep & (distance <= upper)
    return align(torch.where(keep, x, torch.zeros((), dtype=x.dtype)))


@kernel("non_zero")
def non_zero(x: Tensor, *, dtype: torch.dtype) -> Tensor:
    return align(x.nonzero().to(dtype))


@kernel("reverse_sequence")
def reverse_sequence(x: Tensor, lengths: Tensor, *, seq_axis: int = 0, batch_axis: int = 0) -> Tensor:
    """Reverse, for each index along `batch_axis`, the first lengths[index] elements along `seq_axis`."""
    places = along(torch.arange(x.shape[seq_axis]), seq_axis, x.ndim)
    ends = along(lengths.long().view(x.shape[batch_axis]), batch_axis, x.ndim)
    order = torch.where(places < ends, ends - 1 - places, places)
    return align(x.gather(seq_axis, order.expand(x.shape)))


@kernel("crop")
def crop(x: Tensor, *, crop_height: list[int], crop_width: list[int]) -> Tensor:
    """Cut rows and columns off the top, bottom, left and right of the last two dimensions."""
    (top, bottom), (left, right) = crop_height, crop_width
    return align(x[..., top : x.shape[-2] - bottom, left : x.shape[-1] - right])


def _generator(seed: int) -> torch.Generator | None:
    return torch.Generator().manual_seed(seed) if seed >= 0 else None


@kernel("random_uniform", "random_normal", "random_bernoulli", is_pure=False)
def random_fill(
    *, kind: str, shape: list[int], dtype: torch.dtype, seed: int = -1, low: float = 0.0, high: float = 1.0,
    mean: float = 0.0, stddev: float = 1.0, prob: float = 0.5,
) -> Tensor:  # fmt: skip
    if kind == "random_normal":
        drawn: Tensor = torch.randn(shape, generator=_generator(seed), device="cpu") * stddev + mean
    else:
        drawn = torch.rand(shape, generator=_generator(seed), device="cpu")
        drawn = drawn < prob if kind == "random_bernoulli" else drawn * (high - low) + low
    return drawn.to(torch.get_default_device(), dtype)


@kernel("random_categorical", is_pure=False)
def random_categorical(x: Tensor, *, mode: str = "logits", size: int = 1, dtype: torch.dtype, seed: int = -1) -> Tensor:
    """Draw `size` samples, with replacement, from the distribution along the last dimension."""
    chances = widen(x).float().softmax(-1) if mode == "logits" else widen(x).float()
    rows = chances.reshape(-1, x.shape[-1])
    drawn = torch.multinomial(rows.cpu(), size, replacement=True, generator=_generator(seed))
    return drawn.reshape([*x.shape[:-1], size]).to(x.device, dtype)
