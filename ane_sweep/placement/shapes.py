"""Shapes and element types of an op's outputs: for the calibration cases, and for programs at their default shape.

Programs of fixed shape declare their shapes. The element types are used only for the calibration cases, as a program
always declares its types.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ane_sweep.placement.sites import Site, Tensor

Shape = tuple[int, ...]
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
    """Infer the output tensors of an op whose input shapes are known. Raises Unknown if they do not follow from the
    inputs.

    An op without a rule in this module keeps the shape of its inputs, with x and y broadcast.
    """
    if site.type in _NO_RULE:
        raise Unknown(site.type)
    if site.type in _SHAPES:
        read = site.inputs[_NAMES.get(site.type, "x")][0]
        return [Tensor(read.dtype, tuple(_SHAPES[site.type](site, _sizes(read))))]
    if site.type in _TENSORS:
        return _TENSORS[site.type](site)
    if site.type.startswith("reduce_"):
        return _reduced(site)
    names = [name for name in (_FOLLOWS.get(site.type), "x", "y", "cond", "a", "b") if site.inputs.get(name or "")]
    read_by = [site.inputs[str(name)][0] for name in names[: 1 if names[0] in _FOLLOWS.values() else None]]
    shape = broadcast([_sizes(tensor) for tensor in read_by])
    return [Tensor("bool" if site.type in _COMPARE else read_by[0].dtype, shape)]


def broadcast(shapes: Sequence[Shape]) -> Shape:
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded))


def _parameter(site: Site, parameter: str, default: object = None) -> Any:
    """Return a parameter's value, given or computed from shapes. Raises Unknown if it is given but its value is unknown."""
    tensor = site.tensor(parameter)
    if tensor is None:
        return default
    if tensor.value is None:
        raise Unknown(parameter)
    return tensor.value


def _all(site: Site, parameter: str) -> Shape:
    """Return a parameter's value as a tuple, () if it is not given."""
    found = _parameter(site, parameter, ())
    return found if isinstance(found, tuple) else (found,)


def _sizes(tensor: Tensor) -> Shape:
    if not tensor.is_static:
        raise Unknown(repr(tensor))
    return tuple(size or 0 for size in tensor.shape)


def _sizes_of(site: Site, parameter: str) -> Shape:
    return _sizes(site.inputs[parameter][0])


def _dummy(shape: Shape) -> np.ndarray:
    """Return an array of a shape that occupies one byte, so that numpy can compute the shapes of views."""
    return np.broadcast_to(np.int8(0), shape)


def _replace_axis(x: Shape, axis: int, *sizes: int) -> Shape:
    return (*x[:axis], *sizes, *x[axis + 1 :])


def _windows(site: Site, x: Shape, kernel: Shape, dilation: Shape) -> list[int]:
    """Return the output sizes of a window that slides over the last axes."""
    kind, stride = _parameter(site, "pad_type", "valid"), _parameter(site, "strides", (1,) * len(kernel))
    pad = _parameter(site, "pad", (0,) * (2 * len(kernel)))
    sizes = []
    for axis, length in enumerate(x[2:]):
        if kind.startswith("same"):
            sizes.append(math.ceil(length / stride[axis]))
            continue
        extra = pad[2 * axis] + pad[2 * axis + 1] if kind == "custom" else 0
        reach = length + extra - dilation[axis] * ((kernel[axis] or 1) - 1) - 1
        sizes.append((-(-reach // stride[axis]) if _parameter(site, "ceil_mode", False) else reach // stride[axis]) + 1)
    return sizes


def _conv(site: Site, x: Shape) -> Sequence[int]:
    weight = _sizes_of(site, "weight")
    return (x[0], weight[0], *_windows(site, x, weight[2:], _parameter(site, "dilations", (1,) * (len(x) - 2))))


def _pool(site: Site, x: Shape) -> Sequence[int]:
    kernel = _parameter(site, "kernel_sizes")
    return (*x[:2], *_windows(site, x, kernel, (1,) * len(kernel)))


def _conv_transpose(site: Site, x: Shape) -> Sequence[int]:
    if (wanted := _parameter(site, "output_shape")) is not None:
        return tuple(wanted)
    weight, ones = _sizes_of(site, "weight"), (1,) * (len(x) - 2)
    stride, dilation = _parameter(site, "strides", ones), _parameter(site, "dilations", ones)
    kind, pad = _parameter(site, "pad_type", "valid"), _parameter(site, "pad", (0,) * (2 * len(ones)))
    sizes = []
    for axis, (length, width) in enumerate(zip(x[2:], weight[2:])):
        whole = (length - 1) * stride[axis] + dilation[axis] * ((width or 1) - 1) + 1
        cut = pad[2 * axis] + pad[2 * axis + 1] if kind == "custom" else 0
        sizes.append(length * stride[axis] if kind.startswith("same") else whole - cut)
    return (x[0], (weight[1] or 1) * _parameter(site, "groups", 1), *sizes)


def _reduced(site: Site) -> list[Tensor]:
    x = site.inputs["x"][0]
    axes = _parameter(site, "axes", (_parameter(site, "axis"),) if "axis" in site.inputs else tuple(range(x.rank)))
    axes = {axis % x.rank for axis in (axes if isinstance(axes, tuple) else (axes,))}
    keep = _parameter(site, "keep_dims", False)
    shape = tuple(1 if i in axes else length for i, length in enumerate(x.shape) if keep or i not in axes)
    return [Tensor("int32" if "arg" in site.type else x.dtype, shape)]


def _concat(site: Site, x: Shape) -> Sequence[int]:
    axis = _parameter(site, "axis") % (len(x) or 1)
    return _replace_axis(x, axis, sum(_sizes(one)[axis] if one.rank else 1 for one in site.inputs["values"]))


def _stack(site: Site, x: Shape) -> Sequence[int]:
    axis = _parameter(site, "axis") % (len(x) + 1)
    return (*x[:axis], len(site.inputs["values"]), *x[axis:])


def _split(site: Site) -> list[Tensor]:
    x = _sizes_of(site, "x")
    axis, count = _parameter(site, "axis") % len(x), _parameter(site, "num_splits", len(site.outputs))
    sizes = _parameter(site, "split_sizes") or (x[axis] // count,) * count
    return [Tensor(site.inputs["x"][0].dtype, _replace_axis(x, axis, size)) for size in sizes]


def _reshape(site: Site, x: Shape) -> Sequence[int]:
    """Return the shape of a reshape: size 0 takes the input's size at the same place counted from the last, -1 takes the rest."""
    wanted = list(_all(site, "shape"))
    for place, size in enumerate(wanted):
        if size == 0:
            wanted[place] = x[place - len(wanted)] if len(wanted) - place <= len(x) else 1
    if -1 in wanted:
        wanted[wanted.index(-1)] = math.prod(x) // (-math.prod(wanted) or 1)
    return wanted


def _squeeze(site: Site, x: Shape) -> Sequence[int]:
    axes = [axis % len(x) for axis in _all(site, "axes")] or range(len(x))
    return [length for axis, length in enumerate(x) if axis not in axes or length != 1]


def _flatten2d(site: Site, x: Shape) -> Sequence[int]:
    axis = _parameter(site, "axis", 1)
    return (math.prod(x[:axis]), math.prod(x[axis:]))


def _resized(site: Site, x: Shape) -> Sequence[int]:
    height = _parameter(site, "target_size_height") or int(x[2] * _parameter(site, "scale_factor_height", 1))
    width = _parameter(site, "target_size_width") or int(x[3] * _parameter(site, "scale_factor_width", 1))
    return (*x[:2], height, width)


def _pad(site: Site, x: Shape) -> Sequence[int]:
    sides = _all(site, "pad")
    kept = len(x) - len(sides) // 2
    return (*x[:kept], *(size + sum(sides[2 * i : 2 * i + 2]) for i, size in enumerate(x[kept:])))


def _topk(site: Site) -> list[Tensor]:
    x = site.inputs["x"][0]
    shape = _replace_axis(_sizes(x), _parameter(site, "axis", -1) % x.rank, _parameter(site, "k", 1))
    return [Tensor(x.dtype, shape), Tensor("uint16", shape)]  # iOS 18, with only the values used


def _gather(site: Site, x: Shape) -> Sequence[int]:
    indices = _sizes_of(site, "indices")[_parameter(site, "batch_dims", 0) :]
    return _replace_axis(x, _parameter(site, "axis", 0) % len(x), *indices)


def _gather_nd(site: Site, x: Shape) -> Sequence[int]:
    indices = _sizes_of(site, "indices")
    return (*indices[:-1], *x[_parameter(site, "batch_dims", 0) + indices[-1] :])


def _slice_by_size(site: Site, x: Shape) -> Sequence[int]:
    wanted = _all(site, "size")
    if -1 not in wanted:
        return wanted
    begin = _all(site, "begin")
    sizes = zip(x, wanted, strict=True)
    return [n - begin[axis] % n if size == -1 else size for axis, (n, size) in enumerate(sizes)]


def spans(
    begin: Any, end: Any, stride: Any, begin_mask: Any, end_mask: Any, squeeze_mask: Any
) -> tuple[int | slice, ...]:
    """Return the numpy index for slice_by_index's parameters. A begin or end mask removes that bound; a squeeze mask
    selects one element.
    """
    return tuple(
        begin[axis] if squeeze_mask[axis]
        else slice(None if begin_mask[axis] else begin[axis], None if end_mask[axis] else end[axis], stride[axis])
        for axis in range(len(begin))
    )  # fmt: skip


def _slice_by_index(site: Site, x: Shape) -> Sequence[int]:
    begin, end = (_parameter(site, name, ()) for name in ("begin", "end"))
    if not isinstance(begin, tuple) or not isinstance(end, tuple):
        raise Unknown(site.type)
    rest = [_parameter(site, f"{name}_mask", (False,) * len(x)) for name in ("begin", "end", "squeeze")]
    return _dummy(x)[spans(begin, end, _parameter(site, "stride", (1,) * len(x)), *rest)].shape


def _sliding_windows(site: Site, x: Shape) -> Sequence[int]:
    axis, size = _parameter(site, "axis"), _parameter(site, "size")
    return _replace_axis(x, axis, (x[axis] - size) // _parameter(site, "stride", 1) + 1, size)


def _one_hot(site: Site) -> list[Tensor]:
    indices = _sizes_of(site, "indices")
    axis = _parameter(site, "axis", -1) % (len(indices) + 1)
    return [Tensor("int32", (*indices[:axis], _parameter(site, "one_hot_vector_size"), *indices[axis:]))]


def _range_1d(site: Site) -> list[Tensor]:
    start, end, step = (_parameter(site, name) for name in ("start", "end", "step"))
    return [Tensor("int32", (max(0, math.ceil((end - start) / step)),))]


def _matmul(site: Site, x: Shape) -> Sequence[int]:
    y = _sizes_of(site, "y")
    rows = x[-1] if _parameter(site, "transpose_x", False) else x[-2]
    columns = y[-2] if _parameter(site, "transpose_y", False) else y[-1]
    return (*broadcast([x[:-2], y[:-2]]), rows, columns)


def _einsum(site: Site, x: Shape) -> Sequence[int]:
    takes, _, gives = _parameter(site, "equation").replace(" ", "").partition("->")
    shapes = [_sizes(tensor) for tensor in site.inputs["values"]]
    sizes = {label: size for labels, shape in zip(takes.split(","), shapes) for label, size in zip(labels, shape)}
    return [sizes[label] for label in gives]


def _recurrent(site: Site) -> list[Tensor]:
    x, hidden = _sizes_of(site, "x"), _sizes_of(site, "initial_h")
    length = x[0] if _parameter(site, "output_sequence", False) else 1
    shapes = [(length, x[1], hidden[-1])] + [hidden] * (2 if site.type == "lstm" else 1)
    return [Tensor(site.inputs["x"][0].dtype, shape) for shape in shapes]


def _move_blocks(larger: str, site: Site, x: Shape) -> Sequence[int]:
    """Return the shape after blocks of space move into channels, or back; `larger`: the parameter that replaces block_size."""
    (n, c, h, w), block = x, int(_parameter(site, "block_size", _parameter(site, larger)))
    if larger == "upscale_factor":
        return (n, c // block**2, h * block, w * block)
    return (n, c * block**2, h // block, w // block)


_NAMES = {  # the input whose element type, and mostly shape, the output has: else x
    **dict.fromkeys(("concat", "stack", "einsum"), "values"), "scaled_dot_product_attention": "query",
}  # fmt: skip
_SHAPES: dict[str, Callable[[Site, Shape], Sequence[int]]] = {
    "conv": _conv, "conv_transpose": _conv_transpose, "max_pool": _pool, "avg_pool": _pool, "l2_pool": _pool,
    "concat": _concat, "stack": _stack, "reshape": _reshape, "squeeze": _squeeze, "flatten2d": _flatten2d,
    "transpose": lambda site, x: [x[axis] for axis in _all(site, "perm")],
    "expand_dims": lambda site, x: np.expand_dims(_dummy(x), _all(site, "axes")).shape,
    "upsample_bilinear": _resized, "upsample_nearest_neighbor": _resized, "resize_nearest_neighbor": _resized,
    "resize_bilinear": _resized, "pad": _pad,
    "crop": lambda site, x: (*x[:-2], x[-2] - sum(_parameter(site, "crop_height")), x[-1] - sum(_parameter(site, "crop_width"))),
    "tile": lambda site, x: [length * times for length, times in zip(x, _all(site, "reps"))],
    "gather": _gather, "gather_nd": _gather_nd, "slice_by_size": _slice_by_size, "slice_by_index": _slice_by_index,
    "sliding_windows": _sliding_windows, "matmul": _matmul, "einsum": _einsum,
    "linear": lambda site, x: (*x[:-1], _sizes_of(site, "weight")[0]),
    "scaled_dot_product_attention": lambda site, query: (*query[:-1], _sizes_of(site, "value")[-1]),
    **dict.fromkeys(("depth_to_space", "pixel_shuffle"), partial(_move_blocks, "upscale_factor")),
    **dict.fromkeys(("space_to_depth", "pixel_unshuffle"), partial(_move_blocks, "downscale_factor")),
}  # fmt: skip
_TENSORS: dict[str, Callable[[Site], list[Tensor]]] = {
    "cast": lambda site: [Tensor(_parameter(site, "dtype"), site.inputs["x"][0].shape)],
    "shape": lambda site: [Tensor("int32", (site.inputs["x"][0].rank,), value=site.inputs["x"][0].shape)],
    "split": _split, "topk": _topk, "one_hot": _one_hot, "range_1d": _range_1d,
    **dict.fromkeys(("fill", "random_normal"), lambda site: [Tensor("fp16", _all(site, "shape"))]),
    **dict.fromkeys(("gru", "rnn", "lstm"), _recurrent),
    "quantize": lambda site: [Tensor(_parameter(site, "output_dtype"), site.inputs["input"][0].shape)],
    "dequantize": lambda site: [Tensor("fp16", site.inputs["input"][0].shape)],
}  # fmt: skip
