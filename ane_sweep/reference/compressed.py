"""Build the constexpr ops (compressed weights, made dense once at load), and quantize and dequantize of activations.

iOS16 forms pack bits into bytes and name the shape; iOS18 forms have unpacked indices and can be chained. Everything is
computed as coremltools' own `decompress` does: in the type of the scale or the table.
"""

import math
from typing import Any

import torch

from ane_sweep.reference.site import Site, Step, align, op, widen

MOST_ELEMENTS = 1 << 36


def _unpack_bits(packed: torch.Tensor, width: int, count: int) -> torch.Tensor:
    """Return `count` numbers of `width` bits, packed lowest bits first across bytes."""
    if packed.numel() * 8 < count * width:
        raise ValueError(f"{packed.numel()} bytes for {count} numbers of {width} bits")
    raw = packed.to(torch.uint8)
    if 8 % width == 0:
        shifts = torch.arange(0, 8, width, dtype=torch.uint8)
        return ((raw[:, None] >> shifts) & ((1 << width) - 1)).reshape(-1)[:count]
    single = ((raw[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1).reshape(-1)[: count * width]
    return (single.reshape(count, width) << torch.arange(width, dtype=torch.uint8)).sum(1, dtype=torch.uint8)


def _read_constants(site: Site, *names: str) -> list[Any]:
    return [site.known_tensor(name) for name in names]


def _count(shape: list[int]) -> int:
    count = math.prod(shape)
    if count > MOST_ELEMENTS or min(shape, default=1) < 0:
        raise ValueError(f"weights of shape {shape}")
    return count


@op("constexpr_affine_dequantize")
def affine_dequantize(site: Site) -> Step:
    """Compute scale * (quantized_data - zero_point), both along `axis` if they are vectors."""
    data, zero, scale = _read_constants(site, "quantized_data", "zero_point", "scale")
    axis, dtype = site.static("axis"), site.dtype
    return Step(lambda: dequantize_affine(data, scale, zero, axis).to(dtype), [])


def dequantize_affine(
    data: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None, axis: int | None
) -> torch.Tensor:
    """Return fp32 values of affinely quantized data; scale and zero point are scalars, or vectors along `axis`."""

    def along(values: torch.Tensor) -> torch.Tensor:
        if values.ndim == 0 or values.numel() == 1:
            return values.float().reshape(())
        place = (axis or 0) % data.ndim
        return values.float().reshape([-1 if dim == place else 1 for dim in range(data.ndim)])

    moved = data.float() if zero is None else data.float() - along(zero)
    return moved * along(scale)


@op("constexpr_cast")
def constexpr_cast(site: Site) -> Step:
    (value,), dtype = _read_constants(site, "source_val"), site.dtype
    return Step(lambda: align(value.to(dtype)), [])


@op("constexpr_lut_to_dense")
def lut_to_dense(site: Site) -> Step:
    indices, lut = _read_constants(site, "indices", "lut")
    if site.has("shape"):
        shape = site.static("shape")
        width = int(math.log2(lut.numel()))
        return Step(lambda: align(lut[_unpack_bits(indices, width, _count(shape)).long()].reshape(shape)), [])
    axis = site.static("vector_axis", None)
    return Step(lambda: align(look_up(indices, lut, axis)), [])


def look_up(indices: torch.Tensor, lut: torch.Tensor, axis: int | None) -> torch.Tensor:
    """Return the values for indices of rank K from a table of rank K + 2: (groups by dimension..., entries, vector size).

    Each dimension of `indices` is a multiple of that of the groups. Vectors are laid along `axis`.
    """
    rank = indices.ndim
    if lut.ndim != rank + 2:
        raise ValueError(f"a table of rank {lut.ndim} for indices of rank {rank}")
    groups, (entries, vector) = lut.shape[:rank], lut.shape[rank:]
    number = torch.zeros([1] * rank, dtype=torch.int64)  # which table each place uses
    for dim, (size, count) in enumerate(zip(indices.shape, groups)):
        place = torch.arange(size) // (size // count)
        number = number * count + place.reshape([-1 if d == dim else 1 for d in range(rank)])
    flat = lut.reshape(-1, vector)
    rows = number.expand(indices.shape) * entries + indices.long()
    if vector == 1:
        return flat.reshape(-1)[rows]
    along = (axis or 0) % rank
    return flat[rows].movedim(-1, along + 1).flatten(along, along + 1)


def _scatter_by_mask(nonzero: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return values put where the mask is set, in order; zeros elsewhere."""
    places = mask.reshape(-1).bool()
    if int(places.sum()) != nonzero.numel():
        raise ValueError(f"{nonzero.numel()} values for {int(places.sum())} places of the mask")
    dense = torch.zeros(places.numel(), dtype=nonzero.dtype)
    dense[places] = nonzero.reshape(-1)
    return dense.reshape(mask.shape)


@op("constexpr_sparse_to_dense")
def sparse_to_dense(site: Site) -> Step:
    nonzero, mask = _read_constants(site, "nonzero_data", "mask")
    if site.has("shape"):
        shape = site.static("shape")
        return Step(lambda: _scatter_by_mask(nonzero, _unpack_bits(mask, 1, _count(shape)).reshape(shape)), [])
    return Step(lambda: _scatter_by_mask(nonzero, mask), [])


def _repeat_blocks(values: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Return the values of blocks, repeated so that each element of `shape` has its own."""
    for axis, (size, count) in enumerate(zip(shape, values.shape)):
        if size != count:
            values = values.repeat_interleave(size // count, axis)
    return values


def _apply_shift_scale(data: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor | None) -> torch.Tensor:
    """Return scale * (data - offset), rounded to the scale's type after each of the two, as coremltools does."""
    if data.ndim != scale.ndim:
        raise ValueError(f"scales of rank {scale.ndim} for data of rank {data.ndim}")
    moved = data.to(scale.dtype)
    if offset is not None:
        moved = (widen(moved) - widen(_repeat_blocks(offset, data.shape))).to(scale.dtype)
    return moved * _repeat_blocks(scale, data.shape)


@op("constexpr_blockwise_shift_scale")
def blockwise_shift_scale(site: Site) -> Step:
    data, scale, offset = _read_constants(site, "data", "scale", "offset")
    return Step(lambda: align(_apply_shift_scale(data, scale, offset)), [])


@op("constexpr_lut_to_sparse")
def lut_to_sparse(site: Site) -> Step:
    """Return mask and values, for a constexpr_sparse_to_dense that follows."""
    mask, indices, lut = _read_constants(site, "indices_mask", "indices_nonzero_data", "lut")
    axis = site.static("vector_axis", None)

    def run() -> tuple[torch.Tensor, torch.Tensor]:
        dense = look_up(_scatter_by_mask(indices, mask), lut, axis)
        full_mask = mask if lut.shape[-1] == 1 else mask.repeat_interleave(lut.shape[-1], axis)
        return align(full_mask), align(dense[full_mask.bool()])

    return Step(run, [])


@op("constexpr_sparse_blockwise_shift_scale")
def sparse_blockwise_shift_scale(site: Site) -> Step:
    """Return mask and values, for a constexpr_sparse_to_dense that follows."""
    mask, nonzero, scale, offset = _read_constants(site, "data_mask", "nonzero_data", "scale", "offset")

    def run() -> tuple[torch.Tensor, torch.Tensor]:
        dense = _apply_shift_scale(_scatter_by_mask(nonzero, mask), scale, offset)
        return mask, align(dense[mask.bool()])

    return Step(run, [])


@op("quantize")
def quantize(site: Site) -> Step:
    """Compute clip(round(input / scale) + zero_point), halves to even."""
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
    """Compute scale * (input - zero_point)."""
    scale, zero = site.known_tensor("scale"), site.known_tensor("zero_point")
    axis, dtype = site.static("axis", None), site.dtype
    return Step(lambda x: dequantize_affine(x, scale, zero, axis).to(dtype), [site.name("input")])
