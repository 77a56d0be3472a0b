"""Build slices: taken from a tensor, and written into a copy of one."""

import torch
from torch import Tensor

from ane_sweep.reference.site import Site, Step, align, kernel, op


def _read_spans(site: Site) -> tuple[list[int | slice], dict[int, slice]]:
    """Return for each dimension a Python slice, or an int for one place whose dimension is dropped; and the slices with
    a negative step.

    A set mask removes that bound. Slices with a negative step, which torch lacks, are returned by dimension.
    """
    begin, end = site.static("begin"), site.static("end")
    rank = len(begin)
    nowhere = [False] * rank
    stride = site.static("stride", [1] * rank)
    begin_mask, end_mask = site.static("begin_mask", nowhere), site.static("end_mask", nowhere)
    squeeze = site.static("squeeze_mask", nowhere)
    if 0 in stride:
        raise site.unsupported("with a stride of 0")
    spans = [
        begin[axis]
        if squeeze[axis]
        else slice(None if begin_mask[axis] else begin[axis], None if end_mask[axis] else end[axis], stride[axis])
        for axis in range(rank)
    ]
    return spans, {axis: span for axis, span in enumerate(spans) if isinstance(span, slice) and span.step < 0}


@op("slice_by_index")
def slice_by_index(site: Site) -> Step:
    """Return the step of x[begin:end:stride] by dimension."""
    spans, flips = _read_spans(site)
    index = tuple(slice(None) if axis in flips else span for axis, span in enumerate(spans))

    def run(x: Tensor) -> Tensor:
        for axis, span in flips.items():
            x = x.index_select(axis, torch.tensor(range(x.shape[axis])[span], dtype=torch.int64))
        return align(x[index])

    return Step(run, [site.name("x")])


@kernel("slice_by_size")
def slice_by_size(x: Tensor, begin: Tensor, *, size: list[int]) -> Tensor:
    """Take `size` elements from `begin` (counted from the end if negative); size -1 takes all that follow."""
    index = []
    for start, count, length in zip(begin.tolist(), size, x.shape):
        first = start + length if start < 0 else start
        index.append(slice(first, None if count == -1 else first + count))
    return align(x[tuple(index)])


@op("slice_update")
def slice_update(site: Site) -> Step:
    """Return the step of a copy of x with the update at x[begin:end:stride]."""
    spans, flips = _read_spans(site)

    def run(x: Tensor, update: Tensor) -> Tensor:
        result, index = x.clone(), list(spans)
        for axis, span in flips.items():  # the same places front to back, and the update turned round with them
            places = range(x.shape[axis])[span]
            index[axis] = slice(places[-1], places[0] + 1, -places.step) if len(places) else slice(0, 0)
        turned = [axis - sum(isinstance(span, int) for span in spans[:axis]) for axis in flips]
        result[tuple(index)] = update.flip(turned) if turned else update
        return result

    return Step(run, [site.name("x"), site.name("update")])
