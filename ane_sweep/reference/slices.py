"""Build slices: taken from a tensor, and written into a copy of one."""

import torch

from ane_sweep.reference.site import Site, Step, align, op


def _read_spans(site: Site) -> list[int | slice]:
    """Return for each dimension a slice with Python's meaning, or one place (an int) whose dimension is dropped.

    A mask that is set means "as far as it goes".
    """
    begin, end = site.static("begin"), site.static("end")
    rank = len(begin)
    nowhere = [False] * rank
    stride = site.static("stride", [1] * rank)
    begin_mask, end_mask = site.static("begin_mask", nowhere), site.static("end_mask", nowhere)
    squeeze = site.static("squeeze_mask", nowhere)
    if 0 in stride:
        raise site.unsupported("with a stride of 0")
    return [
        begin[axis]
        if squeeze[axis]
        else slice(None if begin_mask[axis] else begin[axis], None if end_mask[axis] else end[axis], stride[axis])
        for axis in range(rank)
    ]


def _find_backward(spans: list[int | slice]) -> dict[int, slice]:
    """Return the slices with a negative step, which torch does not have, by dimension."""
    return {axis: span for axis, span in enumerate(spans) if isinstance(span, slice) and span.step < 0}


@op("slice_by_index")
def slice_by_index(site: Site) -> Step:
    """Take x[begin:end:stride] by dimension."""
    spans = _read_spans(site)
    flips = _find_backward(spans)
    index = tuple(slice(None) if axis in flips else span for axis, span in enumerate(spans))

    def run(x: torch.Tensor) -> torch.Tensor:
        for axis, span in flips.items():
            places = range(x.shape[axis])[span]
            x = x.index_select(axis, torch.tensor(list(places), dtype=torch.int64))
        return align(x[index])

    return Step(run, [site.name("x")])


@op("slice_by_size")
def slice_by_size(site: Site) -> Step:
    """Take `size` elements from `begin` on (counted from the end if negative); -1 takes all that follow."""
    sizes = site.static("size")

    def run(x: torch.Tensor, starts: list[int]) -> torch.Tensor:
        index = []
        for start, size, length in zip(starts, sizes, x.shape):
            first = start + length if start < 0 else start
            index.append(slice(first, None if size == -1 else first + size))
        return align(x[tuple(index)])

    if site.is_static("begin"):
        begin = site.static("begin")
        return Step(lambda x: run(x, begin), [site.name("x")])
    return Step(lambda x, begin: run(x, begin.tolist()), [site.name("x"), site.name("begin")])


@op("slice_update")
def slice_update(site: Site) -> Step:
    """Return a copy of x with update at x[begin:end:stride]."""
    spans = _read_spans(site)
    flips = _find_backward(spans)

    def run(x: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
        result, index = x.clone(), list(spans)
        for axis, span in flips.items():  # the same places front to back, and the update turned round with them
            places = range(x.shape[axis])[span]
            index[axis] = slice(places[-1], places[0] + 1, -places.step) if len(places) else slice(0, 0)
        turned = [axis - sum(isinstance(span, int) for span in spans[:axis]) for axis in flips]
        result[tuple(index)] = update.flip(turned) if turned else update
        return result

    return Step(run, [site.name("x"), site.name("update")])
