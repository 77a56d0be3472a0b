"""Build gathering, scattering and sorting. Negative indices count from the end; out of range is an error, never garbage.

Since iOS17 negative indices are out of range too: they are refused if `validate_indices` is on; if it is off, MIL does
not define the result. Here a gather then still refuses them, `scatter` skips such updates, and the other scatters wrap
around, because coremltools' own tests expect so. Sorting is stable, which MIL leaves open.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ane_sweep.reference.site import Site, Step, align, kernel, op, widen


def _resolve_places(indices: Tensor, size: int, strict: bool | None) -> Tensor:
    """Return int64 indices, negative ones counted from the end. An index out of range is refused, or wrapped if
    `strict` is False.

    `strict` is `validate_indices`, or None before iOS17, which lacks this parameter.
    """
    indices = indices.long()
    if strict is False and size:
        return indices.remainder(size)
    if strict and indices.numel() and (int(indices.min()) < 0 or int(indices.max()) >= size):
        raise IndexError(f"an index is out of range: {int(indices.min())} to {int(indices.max())} of 0 to {size - 1}")
    return torch.where(indices < 0, indices + size, indices)


@kernel("gather")
def gather(
    x: Tensor, indices: Tensor, *, axis: int = 0, batch_dims: int = 0, validate_indices: bool | None = None
) -> Tensor:
    """Take slices of x along `axis`; the first `batch_dims` dimensions of x and indices correspond."""
    place = axis % x.ndim
    places = _resolve_places(indices, x.shape[place], validate_indices or None)
    if not batch_dims:
        picked = x.index_select(place, places.reshape(-1))
        return picked.reshape(x.shape[:place] + indices.shape + x.shape[place + 1 :])
    flat = x.reshape(-1, *x.shape[batch_dims:])
    rows = [row.index_select(place - batch_dims, own) for row, own in zip(flat, places.reshape(flat.shape[0], -1))]
    return torch.stack(rows).reshape(x.shape[:place] + indices.shape[batch_dims:] + x.shape[place + 1 :])


@kernel("gather_along_axis")
def gather_along_axis(x: Tensor, indices: Tensor, *, axis: int = 0, validate_indices: bool | None = None) -> Tensor:
    return x.gather(axis, _resolve_places(indices, x.shape[axis], validate_indices or None))


@kernel("gather_nd")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0, validate_indices: bool | None = None) -> Tensor:
    """Gather elements: the last dimension of indices addresses the dimensions of x after the first `batch_dims`."""
    picks: list[Tensor] = []
    for dim in range(batch_dims):
        sizes = [x.shape[dim] if d == dim else 1 for d in range(indices.ndim - 1)]
        picks.append(torch.arange(x.shape[dim]).view(sizes))
    for d in range(indices.shape[-1]):
        picks.append(_resolve_places(indices[..., d], x.shape[batch_dims + d], validate_indices or None))
    return align(x[tuple(picks)])


_IN_PLACE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
}


def _scatter(target: Tensor, picks: tuple[Tensor, ...], updates: Tensor, mode: str) -> None:
    """Set target[picks] = mode(target[picks], updates), in order if a place occurs twice."""
    if mode in ("add", "sub"):
        target.index_put_(picks, updates if mode == "add" else -updates, accumulate=True)
    elif mode == "update":
        target[picks] = updates
    else:
        rows = picks[0].numel()
        flat = [pick.reshape(-1) for pick in picks]
        values = updates.reshape(rows, *target.shape[len(picks) :])
        for row in range(rows):
            place = tuple(pick[row] for pick in flat)
            target[place] = _IN_PLACE[mode](target[place], values[row])


@op("scatter", "scatter_along_axis", "scatter_nd")
def scatter(site: Site) -> Step:
    """Return the step that combines data with updates at the places in `indices`: by slices along `axis`, by element,
    or over several axes.
    """
    kind, axis, mode, dtype = site.op.type, site.static("axis", 0), site.static("mode", "add"), site.dtype
    given = site.static("validate_indices", None)
    strict = None if given is None else bool(given)

    def slices(data: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        place = axis % data.ndim
        target = widen(data).movedim(place, 0).clone()
        spans = list(range(place, place + indices.ndim))
        moved = widen(updates).movedim(spans, list(range(indices.ndim))) if spans else widen(updates)
        if strict is False:
            inside = (indices >= 0) & (indices < target.shape[0])
            indices, moved = indices[inside], moved[inside]
        _scatter(target, (_resolve_places(indices, target.shape[0], strict),), moved.contiguous(), mode)
        return align(target.movedim(0, place).to(dtype))

    def elements(data: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        target = widen(data).clone()
        if kind == "scatter_nd":
            picks = [_resolve_places(indices[..., d], data.shape[d], strict) for d in range(indices.shape[-1])]
        else:
            place = axis % data.ndim
            picks = list(torch.meshgrid(*[torch.arange(size) for size in indices.shape], indexing="ij"))
            picks[place] = _resolve_places(indices, data.shape[place], strict)
        _scatter(target, tuple(picks), widen(updates), mode)
        return target.to(dtype)

    run = slices if kind == "scatter" else elements
    return Step(run, [site.name("data"), site.name("indices"), site.name("updates")])


@op("topk")
def topk(site: Site) -> Step:
    """Return the step that gives the largest values and (unless `return_indices` is off) their indices; sorted even if
    `sort` is off, as MIL allows.
    """
    k, axis, ascending = site.static("k", 1), site.static("axis", -1), site.static("ascending", False)
    both = site.static("return_indices", True)
    dtype = site.dtype_of(1) if both else torch.int32

    def run(x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        values, places = x.sort(dim=axis, descending=not ascending, stable=True)
        best = align(values.narrow(axis, 0, k))
        return (best, align(places.narrow(axis, 0, k).to(dtype))) if both else best

    return Step(run, [site.name("x")])


@kernel("argsort")
def argsort(x: Tensor, *, axis: int = -1, ascending: bool = False, dtype: torch.dtype) -> Tensor:
    return align(x.argsort(dim=axis, descending=not ascending, stable=True).to(dtype))
