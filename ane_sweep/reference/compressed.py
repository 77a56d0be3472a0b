"""Build the constexpr ops (compressed weights, decompressed once at load), and quantize and dequantize of activations.

iOS16 forms pack bits into bytes and name the shape; iOS18 forms have unpacked indices and can be chained. Everything is
computed as coremltools' own `decompress` does: in the type of the scale or the table.
"""

import math

import torch
from torch import Tensor

from ane_sweep.reference.shapes import along
from ane_sweep.reference.site import align, kernel, widen

MOST_ELEMENTS = 1 << 36
_PIECE = 1 << 20  # elements that are looked up at once


def _unpack_bits(packed: Tensor, width: int, shape: list[int]) -> Tensor:
    """Unpack numbers of `width` bits, packed lowest bits first across bytes, into a shape."""
    count = math.prod(shape)
    if count > MOST_ELEMENTS or min(shape, default=1) < 0:
        raise ValueError(f"weights of shape {shape}")
    if packed.numel() * 8 < count * width:
        raise ValueError(f"{packed.numel()} bytes for {count} numbers of {width} bits")
    raw = packed.to(torch.uint8)
    if 8 % width == 0:
        shifts = torch.arange(0, 8, width, dtype=torch.uint8)
        return ((raw[:, None] >> shifts) & ((1 << width) - 1)).reshape(-1)[:count].reshape(shape)
    single = ((raw[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1).reshape(-1)[: count * width]
    numbers = (single.reshape(count, width) << torch.arange(width, dtype=torch.uint8)).sum(1, dtype=torch.uint8)
    return numbers.reshape(shape)


@kernel("constexpr_affine_dequantize")
def affine_dequantize(
    *, quantized_data: Tensor, zero_point: Tensor | None, scale: Tensor, axis: int, dtype: torch.dtype
) -> Tensor:
    """Compute scale * (quantized_data - zero_point); scale and zero point are scalars, or vectors along `axis`."""
    return dequantize(quantized_data, scale=scale, zero_point=zero_point, axis=axis, dtype=dtype)


def _along_axis(values: Tensor, axis: int | None, rank: int) -> Tensor:
    return values.float().reshape(()) if values.numel() == 1 else along(values.float(), axis or 0, rank)


@kernel("dequantize")
def dequantize(
    input: Tensor, *, scale: Tensor, zero_point: Tensor | None, axis: int | None = None, dtype: torch.dtype
) -> Tensor:
    """Compute scale * (input - zero_point) in fp32; scale and zero point are scalars, or vectors along `axis`."""
    moved = input.float() if zero_point is None else input.float() - _along_axis(zero_point, axis, input.ndim)
    return (moved * _along_axis(scale, axis, input.ndim)).to(dtype)


@kernel("quantize")
def quantize(
    input: Tensor, *, scale: Tensor, zero_point: Tensor | None, axis: int | None = None, dtype: torch.dtype
) -> Tensor:
    """Compute clip(round(input / scale) + zero_point); ties round to even."""
    steps = torch.round(widen(input) / _along_axis(scale, axis, input.ndim))
    if zero_point is not None:
        steps = steps + _along_axis(zero_point, axis, input.ndim)
    return steps.clamp(torch.iinfo(dtype).min, torch.iinfo(dtype).max).to(dtype)


@kernel("constexpr_cast")
def constexpr_cast(*, source_val: Tensor, dtype: torch.dtype) -> Tensor:
    return align(source_val.to(dtype))


@kernel("constexpr_lut_to_dense")
def lut_to_dense(
    *, indices: Tensor, lut: Tensor, shape: list[int] | None = None, vector_axis: int | None = None
) -> Tensor:
    if shape is None:
        return align(_look_up_by_rows(indices, lut, vector_axis))
    return align(lut[_unpack_bits(indices, int(math.log2(lut.numel())), shape).long()])


def _look_up_by_rows(indices: Tensor, lut: Tensor, axis: int | None) -> Tensor:
    """Return `look_up` computed in pieces of the first dimension, whose places of eight bytes are many times its result."""
    if (
        indices.numel() <= _PIECE
        or lut.shape[0] > 1
        or indices.ndim < 2
        or (lut.shape[-1] > 1 and (axis or 0) % indices.ndim == 0)
    ):
        return look_up(indices, lut, axis)
    rows = max(1, _PIECE // indices[0].numel())
    return torch.cat([look_up(indices[start : start + rows], lut, axis) for start in range(0, len(indices), rows)])


def look_up(indices: Tensor, lut: Tensor, axis: int | None) -> Tensor:
    """Return the values for indices of rank K from a table of rank K + 2: (groups by dimension..., entries, vector size).

    Each dimension of `indices` is a multiple of the same dimension of the groups. The elements of a vector lie along
    `axis`.
    """
    rank = indices.ndim
    if lut.ndim != rank + 2:
        raise ValueError(f"a table of rank {lut.ndim} for indices of rank {rank}")
    groups, (entries, vector) = lut.shape[:rank], lut.shape[rank:]
    number = torch.zeros([1] * rank, dtype=torch.int64)  # which table each place uses
    for dim, (size, count) in enumerate(zip(indices.shape, groups)):
        number = number * count + along(torch.arange(size) // (size // count), dim, rank)
    flat = lut.reshape(-1, vector)
    rows = number.expand(indices.shape) * entries + indices.long()
    if vector == 1:
        return flat.reshape(-1)[rows]
    place = (axis or 0) % rank
    return flat[rows].movedim(-1, place + 1).flatten(place, place + 1)


def _scatter_by_mask(nonzero: Tensor, mask: Tensor) -> Tensor:
    """Return an array with the values, in order, at the places where the mask is set, and zeros elsewhere."""
    places = mask.reshape(-1).bool()
    if int(places.sum()) != nonzero.numel():
        raise ValueError(f"{nonzero.numel()} values for {int(places.sum())} places of the mask")
    dense = torch.zeros(places.numel(), dtype=nonzero.dtype)
    dense[places] = nonzero.reshape(-1)
    return dense.reshape(mask.shape)


@kernel("constexpr_sparse_to_dense")
def sparse_to_dense(*, nonzero_data: Tensor, mask: Tensor, shape: list[int] | None = None) -> Tensor:
    return _scatter_by_mask(nonzero_data, mask if shape is None else _unpack_bits(mask, 1, shape))


def _repeat_blocks(values: Tensor, shape: torch.Size) -> Tensor:
    """Return the values of blocks, repeated so that each element of `shape` has its own."""
    for axis, (size, count) in enumerate(zip(shape, values.shape)):
        if size != count:
            values = values.repeat_interleave(size // count, axis)
    return values


def _apply_shift_scale(data: Tensor, scale: Tensor, offset: Tensor | None) -> Tensor:
    """Return scale * (data - offset), rounded to the scale's type after each of the two operations, as coremltools does."""
    if data.ndim != scale.ndim:
        raise ValueError(f"scales of rank {scale.ndim} for data of rank {data.ndim}")
    moved = data.to(scale.dtype)
    if offset is not None:
        moved = (widen(moved) - widen(_repeat_blocks(offset, data.shape))).to(scale.dtype)
    return moved * _repeat_blocks(scale, data.shape)


@kernel("constexpr_blockwise_shift_scale")
def blockwise_shift_scale(*, data: Tensor, scale: Tensor, offset: Tensor | None) -> Tensor:
    return align(_apply_shift_scale(data, scale, offset))


@kernel("constexpr_lut_to_sparse")
def lut_to_sparse(
    *, indices_mask: Tensor, indices_nonzero_data: Tensor, lut: Tensor, vector_axis: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return (mask, looked-up values) for the constexpr_sparse_to_dense that follows."""
    dense = look_up(_scatter_by_mask(indices_nonzero_data, indices_mask), lut, vector_axis)
    is_vector = lut.shape[-1] != 1
    mask = indices_mask.repeat_interleave(lut.shape[-1], vector_axis) if is_vector else indices_mask
    return align(mask), align(dense[mask.bool()])


@kernel("constexpr_sparse_blockwise_shift_scale")
def sparse_blockwise_shift_scale(
    *, data_mask: Tensor, nonzero_data: Tensor, scale: Tensor, offset: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return (mask, scaled values) for the constexpr_sparse_to_dense that follows."""
    dense = _apply_shift_scale(_scatter_by_mask(nonzero_data, data_mask), scale, offset)
    return data_mask, align(dense[data_mask.bool()])
