"""Build the products with sums: linear, matmul, einsum, convolution, attention.

If the device multiplies fp16 matrices with fp32 sums (site.half_accumulates_wide), weights stay fp16; otherwise their
wide form (constants.py) is multiplied and the result is rounded.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ane_sweep.reference import onednn
from ane_sweep.reference.constants import Constant, hold
from ane_sweep.reference.site import Site, Step, align, compute_wide, half_accumulates_wide, op, widen

_ROWS = 512  # of a weight that are multiplied at a time
# positions; from here on MKL gives the same bits whichever factor comes first, and for any slice (1,100 random shapes)
_FEW = 17

Padding = list[int] | Callable[[Tensor], list[int]]


def _stays_half(*tensors: Tensor | Constant) -> bool:
    return all(tensor.dtype == torch.float16 for tensor in tensors) and half_accumulates_wide(tensors[0].device.type)


@op("linear")
def linear(site: Site) -> Step:
    """Return the step of y = x @ weight.T + bias; weight (out, in)."""
    weight, bias = site.constant("weight"), site.tensor("bias")
    if weight is None or (site.has("bias") and bias is None):
        names = [site.name(name) for name in ("x", "weight", "bias") if site.has(name)]
        return Step(compute_wide(F.linear, site.dtype), names)
    if not weight.dtype.is_floating_point:  # integers are summed exactly
        exact = weight.form("exact", lambda dense, _: dense.double(), torch.float64)
        offset = None if bias is None else bias.double()
        return Step(lambda x: F.linear(x.double(), exact(), offset).to(site.dtype), [site.name("x")])
    return Step(_linear(weight, bias, site.dtype), [site.name("x")])


def _linear(weight: Constant, bias: Tensor | None, dtype: torch.dtype) -> Callable[..., Tensor]:
    if _stays_half(weight) and dtype == torch.float16 and (bias is None or bias.dtype == dtype):

        def run(x: Tensor) -> Tensor:
            if x.dtype == dtype:
                return F.linear(x, weight.get(), bias)
            return F.linear(x.float(), widen(weight.get()), None if bias is None else widen(bias)).to(dtype)

        return run
    wide_weight, wide_bias = weight.wide(), None if bias is None else widen(bias)
    if _is_long(weight):
        return partial(_multiply_in_slices, weight, wide_bias, dtype)
    multiply = onednn.multiply if onednn.supports(weight, dtype) else F.linear
    return lambda x: multiply(widen(x), wide_weight(), wide_bias).to(dtype)


def _is_long(weight: Constant) -> bool:
    return weight.dtype == torch.float16 and weight.device.type == "cpu" and weight.shape[0] >= 2 * _ROWS


def _multiply_in_slices(weight: Constant, bias: Tensor | None, dtype: torch.dtype, x: Tensor) -> Tensor:
    """Return x @ weight.T + bias with torch's bits, computed for some rows of the weight at a time, so that they are widened and
    multiplied while they lie in the CPU's caches. What torch adds in another order (few positions, batches in other strides) is left to it.
    """
    x = widen(x)
    made = torch.empty((*x.shape[:-1], weight.shape[0]), dtype=dtype)
    product = made.view(-1, weight.shape[0])
    if len(product) < _FEW or not (x.ndim == 2 or x.is_contiguous()):
        return F.linear(x, weight.wide()(), bias).to(dtype)
    weight.use_wide(lambda rows: _fill_in_slices(product.t(), rows, bias, x.reshape(-1, x.shape[-1]).t()))
    return made


def _fill_in_slices(made: Tensor, weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    """Fill `made` (out, positions) with weight (out, in) @ x (in, positions) + bias, and return it."""
    column = None if bias is None else bias[:, None]
    starts = range(0, len(weight) - _ROWS + 1, _ROWS)
    for start, end in zip(starts, [*starts[1:], len(weight)]):
        rows = widen(weight[start:end])
        made[start:end] = rows @ x if column is None else torch.addmm(column[start:end], rows, x)
    return made


@op("matmul")
def matmul(site: Site) -> Step:
    """Return the step that multiplies the last two dimensions in batches, broadcast as in numpy; either side may be transposed first."""
    flip_x, flip_y = site.static("transpose_x", False), site.static("transpose_y", False)
    y, dtype = site.constant("y"), site.dtype
    is_float = dtype.is_floating_point and y is not None and y.dtype.is_floating_point  # an integer x makes integers
    if y is not None and y.ndim == 2 and not flip_x and is_float and not site.is_static("x"):
        return Step(_linear(y if flip_y else y.transposed(), None, dtype), [site.name("x")])

    def run(x: Tensor, y: Tensor) -> Tensor:
        x = x.mT if flip_x and x.ndim > 1 else x
        y = y.mT if flip_y and y.ndim > 1 else y
        if x.dtype != y.dtype and not (x.dtype.is_floating_point and y.dtype.is_floating_point):
            x, y = x.to(dtype), y.to(dtype)  # iOS17 lets one side be an integer
        if not x.dtype.is_floating_point or _stays_half(x, y):
            return (x @ y).to(dtype)
        return (widen(x) @ widen(y)).to(dtype)

    return Step(run, [site.name("x"), site.name("y")])


@op("einsum")
def einsum(site: Site) -> Step:
    """Return the step of an einsum with any equation; coremltools 9.0 writes only nchw,nwhu->nchu and chw,whu->chu (with any letters)."""
    equation, dtype = site.static("equation"), site.dtype
    shape = site.known_shape
    if shape is not None and len(shape) == 4 and shape[2] == 1 and _is_head_product(equation):
        return Step(_one_head, site.names("values"))

    def run(*values: Tensor) -> Tensor:
        if not _stays_half(*values):
            values = tuple(widen(value) for value in values)
        return align(torch.einsum(equation, *values).to(dtype))

    return Step(run, site.names("values"))


def _is_head_product(equation: str) -> bool:
    letters = equation.replace(" ", "")
    order = {letter: place for place, letter in enumerate(dict.fromkeys(letters.replace(",", "").replace("->", "")))}
    return "".join(str(order.get(letter, letter)) for letter in letters) == "0123,0324->0124"


def _one_head(x: Tensor, y: Tensor) -> Tensor:
    """Multiply x (N,C,1,W) and y (N,W,1,U) to (N,C,1,U): a plain matrix product, as the dimension of 1 changes nothing."""
    left, right = x.squeeze(2), y.squeeze(2)
    if _stays_half(left, right):
        return (left @ right).unsqueeze(2)
    return (widen(left) @ widen(right)).to(x.dtype).unsqueeze(2)


@op("conv")
def conv(site: Site) -> Step:
    """Return the step of a convolution in 1, 2 or 3 D; x (N, C_in, *D), weight (C_out, C_in / groups, *K). pad: before
    and after each D.
    """
    weight = site.known_constant("weight")
    if weight is None:
        raise site.unsupported("without a weight")
    return convolution(site, weight, site.known_tensor("bias"))


def read_window(site: Site, weight: Tensor | Constant) -> tuple[int, list[int], list[int], int]:
    """Return the number of spatial dimensions, strides, dilations and groups of a convolution."""
    ones = [1] * (weight.ndim - 2)
    return len(ones), site.static("strides", ones), site.static("dilations", ones), site.static("groups", 1)


def convolution(site: Site, weight: Constant, bias: Tensor | None) -> Step:
    """Return the step of a convolution with these weights and the site's strides, padding, dilations and groups."""
    spatial, strides, dilations, groups = read_window(site, weight)
    padding = resolve_padding(site, list(weight.shape[2:]), strides, dilations)
    dtype = site.dtype
    if spatial == 2 and onednn.supports(weight, dtype):
        return _convolve_channels_last(site, weight, bias, padding)
    if (
        groups == 1
        and all(size == 1 for size in weight.shape[2:])
        and set(strides) == {1}
        and not (callable(padding) or any(padding))
    ):
        return Step(_pointwise(weight, bias, dtype), [site.name("x")])
    wide, bias = weight.wide(), None if bias is None else widen(bias)
    function = (F.conv1d, F.conv2d, F.conv3d)[spatial - 1]

    def run(x: Tensor) -> Tensor:
        x = pad_spatial(widen(x), padding(x) if callable(padding) else padding)
        return align(function(x, wide(), bias, strides, 0, dilations, groups).to(dtype))

    return Step(run, [site.name("x")])


def _convolve_channels_last(site: Site, weight: Constant, bias: Tensor | None, padding: Padding) -> Step:
    _, strides, dilations, groups = read_window(site, weight)
    convolve = onednn.make_convolution(weight, None if bias is None else widen(bias), strides, dilations, groups)

    def run(x: Tensor) -> Tensor:
        sides = padding(x) if callable(padding) else padding
        if sides[::2] == sides[1::2]:
            return convolve(widen(x), sides[::2])
        return convolve(pad_spatial(widen(x), sides), [0, 0])

    return Step(run, [site.name("x")], layout="channels_last")


def _pointwise(weight: Constant, bias: Tensor | None, dtype: torch.dtype) -> Callable[..., Tensor]:
    """Return a 1x1 convolution as one matrix product: (out, in) @ (in, positions)."""
    get, is_long = weight.get, False
    if not (_stays_half(weight) and dtype == torch.float16 and (bias is None or bias.dtype == dtype)):
        get, bias, is_long = weight.wide(), None if bias is None else widen(bias), _is_long(weight)
    column = None if bias is None else bias[:, None]

    def run(x: Tensor) -> Tensor:
        if is_long and x.shape[0] == 1:
            made = torch.empty((1, weight.shape[0], *x.shape[2:]), dtype=dtype)
            flat = widen(x).flatten(2)[0]
            weight.use_wide(lambda rows: _fill_in_slices(made.flatten(2)[0], rows.flatten(1), bias, flat))
            return made
        matrix = get().flatten(1)
        flat = x.flatten(2).to(matrix.dtype)
        if x.shape[0] == 1:
            product = matrix @ flat[0] if column is None else torch.addmm(column, matrix, flat[0])
        elif column is None:
            product = matrix @ flat
        else:
            product = torch.baddbmm(column, matrix.expand(x.shape[0], -1, -1), flat)
        return product.reshape(x.shape[0], matrix.shape[0], *x.shape[2:]).to(dtype)

    return run


def pad_spatial(x: Tensor, padding: list[int], value: float = 0.0) -> Tensor:
    """Pad the spatial dimensions of x.

    `padding` is before and after each spatial dimension, first dimension first (torch wants the last one first).
    """
    if not any(padding):
        return x
    pairs = [padding[index : index + 2] for index in range(0, len(padding), 2)]
    return F.pad(x, [side for pair in reversed(pairs) for side in pair], value=value)


def resolve_padding(site: Site, kernel: list[int], strides: list[int], dilations: list[int]) -> Padding:
    """Return explicit padding, or for `same` a function of x that pads so that the output has length ceil(in / stride)."""
    kind = site.static("pad_type", "valid")
    if kind == "valid":
        return [0] * (2 * len(kernel))
    if kind == "custom":
        return list(site.static("pad"))

    def same(x: Tensor) -> list[int]:
        result = []
        for length, size, stride, dilation in zip(x.shape[2:], kernel, strides, dilations):
            total = max(0, (math.ceil(length / stride) - 1) * stride + (size - 1) * dilation + 1 - length)
            small, large = total // 2, total - total // 2
            result += [large, small] if kind == "same_lower" else [small, large]
        return result

    if all(size == 1 for size in kernel) and set(strides) == {1}:
        return [0] * (2 * len(kernel))
    return same


@op("conv_transpose")
def conv_transpose(site: Site) -> Step:
    """Return the step of a transposed convolution; weight (C_in, C_out / groups, *K); `pad` is cut from the full result."""
    weight, bias = site.known_tensor("weight"), site.known_tensor("bias")
    spatial, strides, dilations, groups = read_window(site, weight)
    weight, bias = widen(weight), None if bias is None else widen(bias).reshape(-1, *[1] * spatial)
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[spatial - 1]
    return crop_transposed(
        site, weight, lambda x: function(widen(x), weight, None, strides, 0, 0, groups, dilations), bias
    )


def crop_transposed(site: Site, weight: Tensor, make_full: Callable[[Tensor], Tensor], bias: Tensor | None) -> Step:
    """Return the step of a transposed convolution: `make_full` computes the full result, which is cut before the bias is added."""
    spatial, strides, dilations, _ = read_window(site, weight)
    dtype, kind = site.dtype, site.static("pad_type", "valid")
    custom = site.static("pad", [0] * (2 * spatial)) if kind == "custom" else [0] * (2 * spatial)
    wanted = site.static("output_shape", None)

    def cut(axis: int, length: int) -> tuple[int, int]:
        """Return (start, length) of the result within the full result of this length along a dimension."""
        before, after = custom[2 * axis], custom[2 * axis + 1]
        size = length - before - after
        if kind in ("same", "same_lower"):
            size = (length - (weight.shape[2 + axis] - 1) * dilations[axis] - 1) + strides[axis]
        if wanted is not None:
            size = wanted[len(wanted) - spatial + axis]
        if kind in ("same", "same_lower"):
            spare = max(0, length - size)
            before = spare // 2 if kind == "same" else spare - spare // 2
        return before, size

    def run(x: Tensor) -> Tensor:
        full = make_full(x)
        for axis in range(spatial):
            before, size = cut(axis, full.shape[2 + axis])
            lacking = max(0, before + size - full.shape[2 + axis])  # more may be asked for than there is: zeros
            full = F.pad(full, [0, 0] * (spatial - 1 - axis) + [0, lacking]) if lacking else full
            full = full.narrow(2 + axis, before, size)
        if bias is not None:
            full = full + bias
        return align(full.to(dtype))

    return Step(run, [site.name("x")])


@op("conv_quantized")
def conv_quantized(site: Site) -> Step:
    """Return the step of a convolution with uint8 weights: weight * quant_scale + quant_bias, or a table of 2 ** nbits
    values (lut).

    coremltools never writes this op into an ML Program; only its documentation describes it.
    """
    weight = site.known_tensor("weight")
    scale, offset = widen(site.known_tensor("quant_scale")), site.known_tensor("quant_bias")
    if site.static("quantization_type") == "lut":
        return convolution(site, hold(scale.reshape(-1)[weight.long()]), site.known_tensor("bias"))
    shape = [-1] + [1] * (weight.ndim - 1)
    dense = weight.float() * scale.reshape(shape)
    dense = dense if offset is None else dense + widen(offset).reshape(shape)
    return convolution(site, hold(dense), site.known_tensor("bias"))


@op("scaled_dot_product_attention")
def attention(site: Site) -> Step:
    """Return the step of softmax(query @ key.T / sqrt(E) + mask) @ value in fp32; a boolean mask marks the positions to attend to."""
    names = [site.name(name) for name in ("query", "key", "value")]
    names += [site.name("attn_mask")] if site.has("attn_mask") else []

    return Step(compute_wide(partial(attend, torch.matmul), site.dtype), names)


def attend(
    multiply: Callable[[Tensor, Tensor], Tensor], query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Compute attention with this matrix product."""
    scores = multiply(query, key.mT) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return multiply(scores.softmax(-1), value)
