"""Shapes and element types of what an op makes, for the ops of the calibration cases. Programs carry their own."""

import math
from typing import Any

from ane_sweep.placement.sites import Site, Tensor

_COMPARE = {"greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "logical_and", "logical_or"}


def infer(site: Site) -> list[Tensor]:
    """Output tensors of a site whose inputs are complete. Ops without a rule keep the shape of what they read."""
    rule = globals().get(f"_{site.type}")
    if rule is not None:
        return rule(site)
    if site.type.startswith("reduce_"):
        return [_reduced(site)]
    tensors = [tensor for tensors in site.inputs.values() for tensor in tensors]
    shape = (
        broadcast([t.shape for name, ts in site.inputs.items() if name in ("x", "y") for t in ts]) or tensors[0].shape
    )
    return [Tensor("bool" if site.type in _COMPARE else tensors[0].dtype, shape)]


def broadcast(shapes: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded))


def _spatial(
    site: Site, kernel: tuple[int | None, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> list[int]:
    """Output sizes of a window that moves over the last axes."""
    kind = site.value("pad_type", "valid")
    pad = site.value("pad", (0,) * (2 * len(kernel)))
    sizes = []
    for axis, length in enumerate(site.inputs["x"][0].shape[2:]):
        assert length is not None
        if kind == "same":
            sizes.append(math.ceil(length / stride[axis]))
            continue
        extra = pad[2 * axis] + pad[2 * axis + 1] if kind == "custom" else 0
        sizes.append((length + extra - dilation[axis] * ((kernel[axis] or 1) - 1) - 1) // stride[axis] + 1)
    return sizes


def _conv(site: Site) -> list[Tensor]:
    x, weight = site.inputs["x"][0], site.inputs["weight"][0]
    ones = (1,) * (x.rank - 2)
    sizes = _spatial(site, weight.shape[2:], site.value("strides", ones), site.value("dilations", ones))
    return [Tensor(x.dtype, (x.shape[0], weight.shape[0], *sizes))]


def _conv_transpose(site: Site) -> list[Tensor]:
    x, weight = site.inputs["x"][0], site.inputs["weight"][0]
    stride = site.value("strides", (1,) * (x.rank - 2))
    sizes = [((length or 1) - 1) * s + (k or 1) for length, s, k in zip(x.shape[2:], stride, weight.shape[2:])]
    return [Tensor(x.dtype, (x.shape[0], weight.shape[1] * site.value("groups", 1), *sizes))]


def _pool(site: Site) -> list[Tensor]:
    x = site.inputs["x"][0]
    kernel = site.value("kernel_sizes")
    ones = (1,) * len(kernel)
    return [Tensor(x.dtype, (*x.shape[:2], *_spatial(site, kernel, site.value("strides", ones), ones)))]


_max_pool = _avg_pool = _l2_pool = _pool


def _reduced(site: Site) -> Tensor:
    x = site.inputs["x"][0]
    axes = site.value("axes", (site.value("axis"),) if "axis" in site.inputs else tuple(range(x.rank)))
    axes = {axis % x.rank for axis in axes}
    keep = site.value("keep_dims", False)
    shape = tuple(1 if i in axes else length for i, length in enumerate(x.shape) if keep or i not in axes)
    return Tensor("int32" if "arg" in site.type else x.dtype, shape)


def _cast(site: Site) -> list[Tensor]:
    return [Tensor(site.value("dtype"), site.inputs["x"][0].shape)]


def _concat(site: Site) -> list[Tensor]:
    values = site.inputs["values"]
    axis = site.value("axis") % values[0].rank
    total = sum(tensor.shape[axis] or 0 for tensor in values)
    return [Tensor(values[0].dtype, (*values[0].shape[:axis], total, *values[0].shape[axis + 1 :]))]


def _stack(site: Site) -> list[Tensor]:
    values, axis = site.inputs["values"], site.value("axis")
    return [Tensor(values[0].dtype, (*values[0].shape[:axis], len(values), *values[0].shape[axis:]))]


def _split(site: Site) -> list[Tensor]:
    x, axis, count = site.inputs["x"][0], site.value("axis"), site.value("num_splits")
    shape = (*x.shape[:axis], (x.shape[axis] or 0) // count, *x.shape[axis + 1 :])
    return [Tensor(x.dtype, shape) for _ in range(count)]


def _reshape(site: Site) -> list[Tensor]:
    return [Tensor(site.inputs["x"][0].dtype, tuple(site.value("shape")))]


def _transpose(site: Site) -> list[Tensor]:
    x = site.inputs["x"][0]
    return [Tensor(x.dtype, tuple(x.shape[axis] for axis in site.value("perm")))]


def _squeeze(site: Site) -> list[Tensor]:
    x, axes = site.inputs["x"][0], site.value("axes")
    return [Tensor(x.dtype, tuple(length for axis, length in enumerate(x.shape) if axis not in axes))]


def _expand_dims(site: Site) -> list[Tensor]:
    x, shape = site.inputs["x"][0], list(site.inputs["x"][0].shape)
    for axis in sorted(site.value("axes")):
        shape.insert(axis, 1)
    return [Tensor(x.dtype, tuple(shape))]


def _resized(site: Site) -> list[Tensor]:
    x = site.inputs["x"][0]
    height = site.value("target_size_height") or int((x.shape[2] or 0) * site.value("scale_factor_height", 1))
    width = site.value("target_size_width") or int((x.shape[3] or 0) * site.value("scale_factor_width", 1))
    return [Tensor(x.dtype, (*x.shape[:2], height, width))]


_upsample_bilinear = _upsample_nearest_neighbor = _resize_nearest_neighbor = _resize_bilinear = _resized


def _pad(site: Site) -> list[Tensor]:
    x, pad = site.inputs["x"][0], site.value("pad")
    first = x.rank - len(pad) // 2
    extra = [0] * first + [pad[i] + pad[i + 1] for i in range(0, len(pad), 2)]
    return [Tensor(x.dtype, tuple((length or 0) + more for length, more in zip(x.shape, extra)))]


def _tile(site: Site) -> list[Tensor]:
    x = site.inputs["x"][0]
    return [Tensor(x.dtype, tuple((length or 0) * times for length, times in zip(x.shape, site.value("reps"))))]


def _topk(site: Site) -> list[Tensor]:
    x, axis = site.inputs["x"][0], site.value("axis") % site.inputs["x"][0].rank
    shape = (*x.shape[:axis], site.value("k"), *x.shape[axis + 1 :])
    return [Tensor(x.dtype, shape), Tensor("uint16", shape)]  # iOS 18, with only the values used


def _gather(site: Site) -> list[Tensor]:
    x, indices, axis = site.inputs["x"][0], site.inputs["indices"][0], site.value("axis")
    return [Tensor(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))]


def _slice_by_size(site: Site) -> list[Tensor]:
    return [Tensor(site.inputs["x"][0].dtype, tuple(site.value("size")))]


def _sliding_windows(site: Site) -> list[Tensor]:
    x, axis, size = site.inputs["x"][0], site.value("axis"), site.value("size")
    count = ((x.shape[axis] or 0) - size) // site.value("stride", 1) + 1
    return [Tensor(x.dtype, (*x.shape[:axis], count, size, *x.shape[axis + 1 :]))]


def _one_hot(site: Site) -> list[Tensor]:
    return [Tensor("int32", (*site.inputs["indices"][0].shape, site.value("one_hot_vector_size")))]


def _random_normal(site: Site) -> list[Tensor]:
    return [Tensor("fp16", tuple(site.value("shape")))]


def _linear(site: Site) -> list[Tensor]:
    x = site.inputs["x"][0]
    return [Tensor(x.dtype, (*x.shape[:-1], site.inputs["weight"][0].shape[0]))]


def _matmul(site: Site) -> list[Tensor]:
    x, y = site.inputs["x"][0], site.inputs["y"][0]
    rows = x.shape[-1] if site.value("transpose_x", False) else x.shape[-2]
    columns = y.shape[-2] if site.value("transpose_y", False) else y.shape[-1]
    return [Tensor(x.dtype, (*broadcast([x.shape[:-2], y.shape[:-2]]), rows, columns))]


def _recurrent(site: Site) -> list[Tensor]:
    x, hidden = site.inputs["x"][0], site.inputs["initial_h"][0].shape
    length = x.shape[0] if site.value("output_sequence", False) else 1
    return [Tensor(x.dtype, (length, x.shape[1], hidden[-1])), Tensor(x.dtype, hidden)]


_gru = _rnn = _recurrent


def _depth_to_space(site: Site) -> list[Tensor]:
    x, block = site.inputs["x"][0], site.value("block_size")
    n, c, h, w = (length or 0 for length in x.shape)
    return [Tensor(x.dtype, (n, c // block**2, h * block, w * block))]


def _quantize(site: Site) -> list[Tensor]:
    return [Tensor(site.value("output_dtype"), site.inputs["input"][0].shape)]


def _dequantize(site: Site) -> list[Tensor]:
    return [Tensor("fp16", site.inputs["input"][0].shape)]
