"""Multiply and sum in pieces of RUN products, as the Neural Engine's accumulator is known to do (mil/effects.py).

Everything is computed by matrix products: a convolution is one product for each position in its kernel, and a
transposed convolution is a convolution of an input with zeros between its values.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from ane_sweep.mil.effects import GRAIN, LIMIT, RUN

_MOST_PRODUCTS = 1 << 15  # held at once: they stay in a core's cache, and torch hands out no smaller pieces to threads
Multiply = Callable[[Tensor, Tensor], Tensor]


def sum_saturating(pieces: Iterable[Tensor]) -> Tensor:
    """Return the sum of partial sums as the accumulator computes it: it becomes infinite once it reaches LIMIT."""
    total: Tensor | None = None
    stuck: Tensor | None = None
    for piece in pieces:
        total = piece if total is None else total + piece
        over = torch.where(total.abs() >= LIMIT, torch.sign(total) * torch.inf, torch.zeros_like(total))
        stuck = over if stuck is None else torch.where(stuck == 0, over, stuck)
    assert total is not None and stuck is not None  # there is at least one piece
    return torch.where(stuck == 0, total, stuck)


def sum_pieces(pieces: Iterable[Tensor], effects: tuple[str, ...]) -> Tensor:
    if "accumulator" in effects:
        return sum_saturating(pieces)
    return functools.reduce(torch.add, pieces, torch.zeros(()))  # from 0: no sum is -0


def run_length(effects: tuple[str, ...], count: int) -> int:
    """Return how many of `count` products are added before the accumulator is checked again."""
    return RUN if "accumulator" in effects else max(1, count)


def multiply_in_pieces(left: Tensor, right: Tensor, effects: tuple[str, ...]) -> Iterable[Tensor]:
    """Yield partial products of (.., M, K) and (.., K, N), fp32."""
    run, multiply = run_length(effects, left.shape[-1]), choose_multiply(effects)
    for first in range(0, left.shape[-1], run):
        yield multiply(left[..., first : first + run], right[..., first : first + run, :])


def choose_multiply(effects: tuple[str, ...]) -> Multiply:
    return multiply_coarsely if "products" in effects else torch.matmul


def multiply_coarsely(left: Tensor, right: Tensor) -> Tensor:
    """Return a matrix product of fp16 numbers (held as fp32) with rounded products.

    Every product is rounded to a multiple of GRAIN, ties away from zero, and is 0 if the sum of its operands' exponents
    is less than GRAIN's.
    """
    rows = left.shape[-2]
    at_once = max(1, _MOST_PRODUCTS // max(1, left.numel() // max(1, rows) * right.shape[-1]))
    upper, lower, left = _power_of_two(left), _power_of_two(right), left / GRAIN
    made, half = [], torch.tensor(0.5)
    for first in range(0, rows, at_once):
        span = slice(first, first + at_once)
        product = left[..., span, :, None] * right[..., None, :, :]
        lost = upper[..., span, :, None] * lower[..., None, :, :] < GRAIN
        product = product.add_(torch.copysign(half, product)).trunc_().masked_fill_(lost, 0.0)
        made.append(product.sum(-2))
    return torch.cat(made, -2).mul_(GRAIN)


def _power_of_two(x: Tensor) -> Tensor:
    """Return the largest power of two up to each magnitude; infinity and NaN stay."""
    mantissa, exponent = torch.frexp(x)
    found = torch.ldexp(torch.where(mantissa == 0, 0.0, 0.5), exponent)
    return torch.where(x.isfinite(), found, torch.inf)


def convolve(
    x: Tensor, weight: Tensor, strides: Sequence[int], dilations: Sequence[int], effects: tuple[str, ...]
) -> Iterable[Tensor]:
    """Yield partial sums of a convolution, input channels in runs: x (N, G * C, *D), weight (G, O, C, *K) for G groups."""
    groups, made, channels, *kernel = weight.shape
    sizes = [
        (length - (size - 1) * dilation - 1) // stride + 1
        for length, size, stride, dilation in zip(x.shape[2:], kernel, strides, dilations)
    ]
    x = x.reshape(x.shape[0], groups, channels, *x.shape[2:])
    multiply = choose_multiply(effects)
    per_run = max(1, run_length(effects, channels * math.prod(kernel)) // math.prod(kernel))
    for first in range(0, channels, per_run):
        piece = None
        for place in itertools.product(*(range(size) for size in kernel)):
            spans = [
                slice(at * dilation, at * dilation + (size - 1) * stride + 1, stride)
                for at, size, stride, dilation in zip(place, sizes, strides, dilations)
            ]
            run = [slice(None), slice(None), slice(first, first + per_run)]
            pick: list[slice | int] = [*run, *place]
            found = multiply(weight[tuple(pick)], x[tuple(run + spans)].flatten(3))
            piece = found if piece is None else piece + found
        assert piece is not None  # a kernel has at least one place
        yield piece.reshape(x.shape[0], groups * made, *sizes)


def insert_zeros(x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Tensor:
    """Return x with zeros between and around its values, so that a transposed convolution becomes a convolution.

    The convolution must use the kernel rotated by 180 degrees.
    """
    lengths = [(length - 1) * stride + 1 for length, stride in zip(x.shape[2:], strides)]
    edges = [(size - 1) * dilation for size, dilation in zip(kernel, dilations)]
    full = x.new_zeros(*x.shape[:2], *(length + 2 * edge for length, edge in zip(lengths, edges)))
    spans = [slice(edge, edge + length, stride) for edge, length, stride in zip(edges, lengths, strides)]
    full[(slice(None), slice(None), *spans)] = x
    return full
