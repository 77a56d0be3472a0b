"""Multiply and convolve fp32 with oneDNN, a part of torch: twice as fast as torch's choice (MKL) on CPUs of other makers.

Only values that are declared fp32, or are fp32 in numerics=fp32, come here. Both libraries sum k products of fp32 numbers in
an order of their own, so each result is within k u / (1 - k u) times the sum of the products' magnitudes of the true one
(u = 2^-24; Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), but bits differ between them. The rounding of
fp16 programs hides most of that difference and not all: their products stay with MKL, and keep their bits.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ane_sweep.reference.constants import Constant, Room

CHANNELS_LAST = torch.channels_last


def supports(weight: Constant, dtype: torch.dtype) -> bool:
    """Return True if products with this weight, rounded to `dtype`, are computed by oneDNN."""
    is_single = weight.dtype == dtype == torch.float32
    return is_single and weight.device.type == "cpu" and 0 not in weight.shape and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias; weight (out, in). Weights are read where they lie: packed ones save 4 % at most, and take memory."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def make_convolution(
    weight: Constant, bias: Tensor | None, strides: list[int], dilations: list[int], groups: int
) -> Callable[[Tensor, list[int]], Tensor]:
    """Return a 2-D convolution of (x, padding of both dimensions) whose result has its channels last in memory.

    x may lie in any order. If the budget of constants has room, the weight is packed for the first x and the number of threads,
    which changes the time alone, and packed again if they change; else it is read where it lies.
    """
    room = Room(weight, weight.nbytes)
    packed: tuple[object, Tensor | None] = None, None

    def find_form(x: Tensor, padding: list[int]) -> Tensor:
        nonlocal packed
        wanted = x.shape, torch.get_num_threads()
        made_for, form = packed
        if form is None or made_for != wanted:
            pack, sizes = torch.ops.mkldnn._reorder_convolution_weight, list(x.shape)
            form = weight.convert(lambda read: pack(read, padding, strides, dilations, groups, sizes))
            packed = wanted, form
        return form

    def run(x: Tensor, padding: list[int]) -> Tensor:
        form = find_form(x, padding) if room.is_given else weight.get()
        x = x.contiguous(memory_format=CHANNELS_LAST)
        made: Tensor = torch.ops.mkldnn._convolution_pointwise(
            x, form, bias, padding, strides, dilations, groups, "none", [], ""
        )
        return made

    return run
