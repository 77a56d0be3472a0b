"""Shapes and element types of an op's outputs: for the calibration cases, and for programs at their default shape.

Programs of fixed shape declare their shapes. Types are right for the cases alone; a program always declares its types.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ane_sweep.placement.sites import Site, Tensor

Shape = tuple[Any, ...]
_COMPARE = {"greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "logical_and", "logical_or"}
_FOLLOWS = {  # ops that keep the shape of another input than x and y
    "fill_like": "ref_tensor", "gather_along_axis": "indices", "scatter": "data", "scatter_along_axis": "data",
    "scatter_nd": "data", "read_state": "input", "coreml_update_state": "value", "classify": "probabilities",
}  # fmt: skip
_NO_RULE = {  # what they make follows from data, or has no rule here
    "cond", "while_loop", "make_list", "list_read", "list_write", "list_gather", "list_scatter", "list_length", "non_zero",
    "non_maximum_suppression", "crop_resize", "resample", "affine", "resize", "reshape_like", "batch_to_space",
    "space_to_batch", "random_categorical", "random_uniform", "random_bernoulli", "conv_quantized", "write_state",
}  # fmt: skip


class Unknown(ValueError):
    """Raised for a size that does not follow from the known sizes and values."""


def infer(site: Site) -> list[Tensor]:
    """Return the output tensors of a site whose inputs are complete. Raises Unknown if they do not follow from the inputs.

    An op without a rule in this module keeps the shape of its inputs, with x and y broadcast.
    """
    if site.type in _NO_RULE:
        raise Unknown(site.type)
    if site.type in _RULES:
        return _RULES[site.type](site)
    if site.type.startswith("reduce_"):
        return [_reduced(site)]
    names = [name for name in (_FOLLOWS.get(site.type), "x", "y", "cond", "a", "b") if site.inputs.get(name or "")]
    read = [site.inputs[str(name)][0] for name in names[: 1 if names[0] in _FOLLOWS.values() else None]]
    return [Tensor("bool" if site.type in _COMPARE else read[0].dtype, broadcast([tensor.shape for tensor in read]))]


def broadcast(shapes: Sequence[Shape]) -> Shape:
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded))


def parameter_value(site: Site, parameter: str, default: Any = None) -> Any:
    """Return a parameter's value, also one computed from shapes. Raises Unknown if it is given but its value is unknown."""
    tensor = site.tensor(parameter)
    if tensor is None:
        return default
    if tensor.value is None:
        raise Unknown(parameter)
    return tensor.value


def _parameter_tuple(site: Site, parameter: str) -> Shape:
    found = parameter_value(site, parameter, ())
    return found if isinstance(found, tuple) else (found,)


def _x(site: Site) -> Any:
    """Return the shape of `x`, whose sizes are known."""
    return site.inputs["x"][0].shape


def _like(site: Site, shape: Sequence[Any], parameter: str = "x") -> list[Tensor]:
    return [Tensor(site.inputs[parameter][0].dtype, tuple(shape))]


def _dummy(shape: Shape) -> np.ndarray:
    """Return an array of a shape that takes one byte, so that numpy computes shapes of views."""
    return np.broadcast_to(np.int8(0), shape)


def _spatial(
    site: Site, kernel: tuple[int | None, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> list[int]:
    """Return the output sizes of a window that moves over the last axes."""
    kind = parameter_value(site, "pad_type", "valid")
    pad = parameter_value(site, "pad", (0,) * (2 * len(kernel)))
    sizes = []
    for axis, length in enumerate(_x(site)[2:]):
        if kind.startswith("same"):
            sizes.append(math.ceil(length / stride[axis]))
            continue
        extra = pad[2 * axis] + pad[2 * axis + 1] if kind == "custom" else 0
        reach = length + extra - dilation[axis] * ((kernel[axis] or 1) - 1) - 1
        sizes.append(
            (-(-reach // stride[axis]) if parameter_value(site, "ceil_mode", False) else reach // stride[axis]) + 1
        )
    return sizes


def _conv(site: Site) -> list[Tensor]:
    x, weight = site.inputs["x"][0], site.inputs["weight"][0]
    ones = (1,) * (x.rank - 2)
    sizes = _spatial(
        site, weight.shape[2:], parameter_value(site, "strides", ones), parameter_value(site, "dilations", ones)
    )
    return _like(site, (x.shape[0], weight.shape[0], *sizes))


def _conv_transpose(site: Site) -> list[Tensor]:
    x, weight = site.inputs["x"][0], site.inputs["weight"][0]
    if (wanted := parameter_value(site, "output_shape")) is not None:
        return _like(site, wanted)
    ones = (1,) * (x.rank - 2)
    stride, dilation = parameter_value(site, "strides", ones), parameter_value(site, "dilations", ones)
    kind, pad = parameter_value(site, "pad_type", "valid"), parameter_value(site, "pad", (0,) * (2 * len(ones)))
    sizes = []
    for axis, (length, width) in enumerate(zip(_x(site)[2:], weight.shape[2:])):
        whole = (length - 1) * stride[axis] + dilation[axis] * ((width or 1) - 1) + 1
        cut = pad[2 * axis] + pad[2 * axis + 1] if kind == "custom" else 0
        sizes.append(length * stride[axis] if kind.startswith("same") else whole - cut)
    return _like(site, (x.shape[0], (weight.shape[1] or 1) * parameter_value(site, "groups", 1), *sizes))


def _pool(site: Site) -> list[Tensor]:
    x, kernel = _x(site), parameter_value(site, "kernel_sizes")
    ones = (1,) * len(kernel)
    return _like(site, (*x[:2], *_spatial(site, kernel, parameter_value(site, "strides", ones), ones)))


def _reduced(site: Site) -> Tensor:
    x = site.inputs["x"][0]
    axes = parameter_value(
        site, "axes", (parameter_value(site, "axis"),) if "axis" in site.inputs else tuple(range(x.rank))
    )
    axes = {axis % x.rank for axis in (axes if isinstance(axes, tuple) else (axes,))}
    keep = parameter_value(site, "keep_dims", False)
    shape = tuple(1 if i in axes else length for i, length in enumerate(x.shape) if keep or i not in axes)
    return Tensor("int32" if "arg" in site.type else x.dtype, shape)


def _cast(site: Site) -> list[Tensor]:
    return [Tensor(parameter_value(site, "dtype"), _x(site))]


def _shape(site: Site) -> list[Tensor]:
    return [Tensor("int32", (len(_x(site)),), value=_x(site))]


def _concat(site: Site) -> list[Tensor]:
    values = site.inputs["values"]
    axis = parameter_value(site, "axis") % (values[0].rank or 1)
    total = sum(tensor.shape[axis] or 0 if tensor.rank else 1 for tensor in values)
    return _like(site, (*values[0].shape[:axis], total, *values[0].shape[axis + 1 :]), "values")


def _stack(site: Site) -> list[Tensor]:
    values = site.inputs["values"]
    axis = parameter_value(site, "axis") % (values[0].rank + 1)
    return _like(site, (*values[0].shape[:axis], len(values), *values[0].shape[axis:]), "values")


def _split(site: Site) -> list[Tensor]:
    x = _x(site)
    axis, count = parameter_value(site, "axis") % len(x), parameter_value(site, "num_splits", len(site.outputs))
    sizes = parameter_value(site, "split_sizes") or (x[axis] // count,) * count
    return [_like(site, (*x[:axis], size, *x[axis + 1 :]))[0] for size in sizes]


def _reshape(site: Site) -> list[Tensor]:
    """Reshape: a size of 0 takes the input's size at the same place counted from the last, -1 takes the rest."""
    x, wanted = _x(site), list(_parameter_tuple(site, "shape"))
    for place, size in enumerate(wanted):
        if size == 0:
            wanted[place] = x[place - len(wanted)] if len(wanted) - place <= len(x) else 1
    if -1 in wanted:
        wanted[wanted.index(-1)] = math.prod(x) // (-math.prod(wanted) or 1)
    return _like(site, wanted)


def _transpose(site: Site) -> list[Tensor]:
    return _like(site, [_x(site)[axis] for axis in _parameter_tuple(site, "perm")])


def _squeeze(site: Site) -> list[Tensor]:
    x = _x(site)
    axes = [axis % len(x) for axis in _parameter_tuple(site, "axes")] or range(len(x))
    return _like(site, [length for axis, length in enumerate(x) if axis not in axes or length != 1])


def _expand_dims(site: Site) -> list[Tensor]:
    return _like(site, np.expand_dims(_dummy(_x(site)), _parameter_tuple(site, "axes")).shape)


def _flatten2d(site: Site) -> list[Tensor]:
    x, axis = _x(site), parameter_value(site, "axis", 1)
    return _like(site, (math.prod(x[:axis]), math.prod(x[axis:])))


def _resized(site: Site) -> list[Tensor]:
    x = _x(site)
    height = parameter_value(site, "target_size_height") or int(x[2] * parameter_value(site, "scale_factor_height", 1))
    width = parameter_value(site, "target_size_width") or int(x[3] * parameter_value(site, "scale_factor_width", 1))
    return _like(site, (*x[:2], height, width))


def _pad(site: Site) -> list[Tensor]:
    x, sides = _x(site), _parameter_tuple(site, "pad")
    kept = len(x) - len(sides) // 2
    return _like(site, (*x[:kept], *(size + sum(sides[2 * i : 2 * i + 2]) for i, size in enumerate(x[kept:]))))


def _crop(site: Site) -> list[Tensor]:
    x = _x(site)
    return _like(
        site,
        (*x[:-2], x[-2] - sum(parameter_value(site, "crop_height")), x[-1] - sum(parameter_value(site, "crop_width"))),
    )


def _tile(site: Site) -> list[Tensor]:
    return _like(site, [length * times for length, times in zip(_x(site), _parameter_tuple(site, "reps"))])


def _topk(site: Site) -> list[Tensor]:
    x = _x(site)
    axis = parameter_value(site, "axis", -1) % len(x)
    shape = (*x[:axis], parameter_value(site, "k", 1), *x[axis + 1 :])
    return [*_like(site, shape), Tensor("uint16", shape)]  # iOS 18, with only the values used


def _gather(site: Site) -> list[Tensor]:
    x, indices, batch = _x(site), site.inputs["indices"][0].shape, parameter_value(site, "batch_dims", 0)
    axis = parameter_value(site, "axis", 0) % len(x)
    return _like(site, (*x[:axis], *indices[batch:], *x[axis + 1 :]))


def _gather_nd(site: Site) -> list[Tensor]:
    indices: Any = site.inputs["indices"][0].shape
    return _like(site, (*indices[:-1], *_x(site)[parameter_value(site, "batch_dims", 0) + indices[-1] :]))


def _slice_by_size(site: Site) -> list[Tensor]:
    sizes = zip(_x(site), _parameter_tuple(site, "size"), strict=True)
    if -1 not in _parameter_tuple(site, "size"):
        return _like(site, _parameter_tuple(site, "size"))
    begin = _parameter_tuple(site, "begin")
    return _like(site, [n - begin[axis] % n if size == -1 else size for axis, (n, size) in enumerate(sizes)])


def spans(begin: Any, end: Any, stride: Any, begin_mask: Any, end_mask: Any, squeeze_mask: Any) -> tuple[Any, ...]:
    """Return the index of slice_by_index's parameters. A begin or end mask removes that bound, a squeeze mask takes one place."""
    return tuple(
        begin[axis] if squeeze_mask[axis]
        else slice(None if begin_mask[axis] else begin[axis], None if end_mask[axis] else end[axis], stride[axis])
        for axis in range(len(begin))
    )  # fmt: skip


def _slice_by_index(site: Site) -> list[Tensor]:
    x = _x(site)
    if any(not isinstance(parameter_value(site, name, ()), tuple) for name in ("begin", "end")):
        raise Unknown(site.type)
    rest = [parameter_value(site, f"{name}_mask", (False,) * len(x)) for name in ("begin", "end", "squeeze")]
    index = spans(
        parameter_value(site, "begin"),
        parameter_value(site, "end"),
        parameter_value(site, "stride", (1,) * len(x)),
        *rest,
    )
    return _like(site, _dummy(x)[index].shape)


def _sliding_windows(site: Site) -> list[Tensor]:
    x, axis, size = _x(site), parameter_value(site, "axis"), parameter_value(site, "size")
    count = (x[axis] - size) // parameter_value(site, "stride", 1) + 1
    return _like(site, (*x[:axis], count, size, *x[axis + 1 :]))


def _one_hot(site: Site) -> list[Tensor]:
    indices: Any = site.inputs["indices"][0].shape
    axis = parameter_value(site, "axis", -1) % (len(indices) + 1)
    return [Tensor("int32", (*indices[:axis], parameter_value(site, "one_hot_vector_size"), *indices[axis:]))]


def _fill(site: Site) -> list[Tensor]:
    return [Tensor("fp16", _parameter_tuple(site, "shape"))]


def _range_1d(site: Site) -> list[Tensor]:
    start, end, step = (parameter_value(site, name) for name in ("start", "end", "step"))
    return [Tensor("int32", (max(0, math.ceil((end - start) / step)),))]


def _linear(site: Site) -> list[Tensor]:
    return _like(site, (*_x(site)[:-1], site.inputs["weight"][0].shape[0]))


def _matmul(site: Site) -> list[Tensor]:
    x, y = _x(site), site.inputs["y"][0].shape
    rows = x[-1] if parameter_value(site, "transpose_x", False) else x[-2]
    columns = y[-2] if parameter_value(site, "transpose_y", False) else y[-1]
    return _like(site, (*broadcast([x[:-2], y[:-2]]), rows, columns))


def _einsum(site: Site) -> list[Tensor]:
    takes, _, gives = parameter_value(site, "equation").replace(" ", "").partition("->")
    shapes: Any = [tensor.shape for tensor in site.inputs["values"]]
    sizes = {label: size for labels, shape in zip(takes.split(","), shapes) for label, size in zip(labels, shape)}
    return _like(site, [sizes[label] for label in gives], "values")


def _scaled_dot_product_attention(site: Site) -> list[Tensor]:
    query, value = site.inputs["query"][0].shape, site.inputs["value"][0].shape
    return _like(site, (*query[:-1], value[-1]), "query")


def _recurrent(site: Site) -> list[Tensor]:
    x, hidden = _x(site), site.inputs["initial_h"][0].shape
    length = x[0] if parameter_value(site, "output_sequence", False) else 1
    states = [hidden] * (2 if site.type == "lstm" else 1)
    return [*_like(site, (length, x[1], hidden[-1])), *(_like(site, shape)[0] for shape in states)]


def _depth_to_space(site: Site) -> list[Tensor]:
    (n, c, h, w), block = _x(site), int(parameter_value(site, "block_size", parameter_value(site, "upscale_factor")))
    return _like(site, (n, c // block**2, h * block, w * block))


def _space_to_depth(site: Site) -> list[Tensor]:
    (n, c, h, w), block = _x(site), int(parameter_value(site, "block_size", parameter_value(site, "downscale_factor")))
    return _like(site, (n, c * block**2, h // block, w // block))


def _quantize(site: Site) -> list[Tensor]:
    return [Tensor(parameter_value(site, "output_dtype"), site.inputs["input"][0].shape)]


def _dequantize(site: Site) -> list[Tensor]:
    return [Tensor("fp16", site.inputs["input"][0].shape)]


_RULES: dict[str, Callable[[Site], list[Tensor]]] = {
    "conv": _conv, "conv_transpose": _conv_transpose, "max_pool": _pool, "avg_pool": _pool, "l2_pool": _pool,
    "cast": _cast, "shape": _shape, "concat": _concat, "stack": _stack, "split": _split, "reshape": _reshape,
    "transpose": _transpose, "squeeze": _squeeze, "expand_dims": _expand_dims, "flatten2d": _flatten2d,
    "upsample_bilinear": _resized, "upsample_nearest_neighbor": _resized, "resize_nearest_neighbor": _resized,
    "resize_bilinear": _resized, "pad": _pad, "crop": _crop, "tile": _tile, "topk": _topk, "gather": _gather,
    "gather_nd": _gather_nd, "slice_by_size": _slice_by_size, "slice_by_index": _slice_by_index,
    "sliding_windows": _sliding_windows, "one_hot": _one_hot, "fill": _fill,
    "random_normal": _fill, "range_1d": _range_1d, "linear": _linear, "matmul": _matmul, "einsum": _einsum,
    "scaled_dot_product_attention": _scaled_dot_product_attention, "gru": _recurrent, "rnn": _recurrent,
    "lstm": _recurrent, "depth_to_space": _depth_to_space, "pixel_shuffle": _depth_to_space,
    "space_to_depth": _space_to_depth, "pixel_unshuffle": _space_to_depth, "quantize": _quantize,
    "dequantize": _dequantize,
}  # fmt: skip
