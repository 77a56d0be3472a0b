"""Build gathering, scattering and sorting. Negative indices count from the end; out of range is an error, never garbage.

Since iOS17 negative indices are out of range as well: refused if `validate_indices` is on; if it is off, MIL leaves the
result open. Then a gather still refuses them here; `scatter` leaves such updates out and the other scatters count on around
the dimension, because coremltools' own tests have both succeed and the first give no wrapped result. Equal values keep the
order of their places when sorted, where MIL leaves it open.
"""

from collections.abc import Callable

import torch

from ane_sweep.reference.site import Site, Step, align, op, widen


def _resolve_places(indices: torch.Tensor, size: int, strict: bool | None) -> torch.Tensor:
    """Return int64 indices, negative ones counted from the end; out of range is refused, or wrapped if `strict` is False."""
    indices = indices.long()
    if strict is False and size:
        return indices.remainder(size)
    if strict and indices.numel() and (int(indices.min()) < 0 or int(indices.max()) >= size):
        raise IndexError(f"an index is out of range: {int(indices.min())} to {int(indices.max())} of 0 to {size - 1}")
    return torch.where(indices < 0, indices + size, indices)


def _reads_strictly(site: Site) -> bool | None:
    """Return `validate_indices`; None before iOS17, which has no such parameter."""
    given = site.static("validate_indices", None)
    return None if given is None else bool(given)


@op("gather")
def gather(site: Site) -> Step:
    """Take slices of x along `axis`; the first `batch_dims` dimensions of x and indices go together."""
    axis, batch_dims, strict = site.static("axis", 0), site.static("batch_dims", 0), _reads_strictly(site) or None

    def run(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        place = axis % x.ndim
        picked = x.index_select(place, _resolve_places(indices, x.shape[place], strict).reshape(-1))
        return picked.reshape(x.shape[:place] + indices.shape + x.shape[place + 1 :])

    def run_batched(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        place = axis % x.ndim
        lead = x.shape[:batch_dims]
        flat_x = x.reshape(-1, *x.shape[batch_dims:])
        flat_i = _resolve_places(indices, x.shape[place], strict).reshape(flat_x.shape[0], -1)
        rows = [row.index_select(place - batch_dims, places) for row, places in zip(flat_x, flat_i)]
        inner = x.shape[batch_dims:place] + indices.shape[batch_dims:] + x.shape[place + 1 :]
        return torch.stack(rows).reshape(lead + inner)

    return Step(run_batched if batch_dims else run, [site.name("x"), site.name("indices")])


@op("gather_along_axis")
def gather_along_axis(site: Site) -> Step:
    axis, strict = site.static("axis", 0), _reads_strictly(site) or None
    return Step(
        lambda x, indices: x.gather(axis, _resolve_places(indices, x.shape[axis], strict)),
        [site.name("x"), site.name("indices")],
    )


@op("gather_nd")
def gather_nd(site: Site) -> Step:
    """Gather: the last dimension of indices addresses the dimensions of x after the first `batch_dims`."""
    batch_dims, strict = site.static("batch_dims", 0), _reads_strictly(site) or None

    def run(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        depth = indices.shape[-1]
        picks: list[torch.Tensor] = []
        for dim in range(batch_dims):
            sizes = [x.shape[dim] if d == dim else 1 for d in range(indices.ndim - 1)]
            picks.append(torch.arange(x.shape[dim]).view(sizes))
        picks += [_resolve_places(indices[..., d], x.shape[batch_dims + d], strict) for d in range(depth)]
        return align(x[tuple(picks)])

    return Step(run, [site.name("x"), site.name("indices")])


_IN_PLACE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "update": lambda old, new: new,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
}


def _scatter(target: torch.Tensor, picks: tuple[torch.Tensor, ...], updates: torch.Tensor, mode: str) -> None:
    """Set target[picks] = mode(target[picks], updates), one after the other if a place is named twice."""
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


@op("scatter")
def scatter(site: Site) -> Step:
    """Combine slices of data along `axis`, at `indices`, with updates."""
    axis, mode, dtype, strict = site.static("axis", 0), site.static("mode", "add"), site.dtype, _reads_strictly(site)

    def run(data: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        place = axis % data.ndim
        target = widen(data).movedim(place, 0).clone()
        spans = list(range(place, place + indices.ndim))
        moved = widen(updates).movedim(spans, list(range(indices.ndim))) if spans else widen(updates)
        if strict is False:
            inside = (indices >= 0) & (indices < target.shape[0])
            indices, moved = indices[inside], moved[inside]
        _scatter(target, (_resolve_places(indices, target.shape[0], strict),), moved.contiguous(), mode)
        return align(target.movedim(0, place).to(dtype))

    return Step(run, [site.name("data"), site.name("indices"), site.name("updates")])


@op("scatter_along_axis")
def scatter_along_axis(site: Site) -> Step:
    axis, mode, dtype, strict = site.static("axis", 0), site.static("mode", "add"), site.dtype, _reads_strictly(site)

    def run(data: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        target = widen(data).clone()
        place = axis % data.ndim
        grid = list(torch.meshgrid(*[torch.arange(size) for size in indices.shape], indexing="ij"))
        grid[place] = _resolve_places(indices, data.shape[place], strict)
        _scatter(target, tuple(grid), widen(updates), mode)
        return target.to(dtype)

    return Step(run, [site.name("data"), site.name("indices"), site.name("updates")])


@op("scatter_nd")
def scatter_nd(site: Site) -> Step:
    mode, dtype, strict = site.static("mode", "add"), site.dtype, _reads_strictly(site)

    def run(data: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        target = widen(data).clone()
        picks = tuple(_resolve_places(indices[..., d], data.shape[d], strict) for d in range(indices.shape[-1]))
        _scatter(target, picks, widen(updates), mode)
        return target.to(dtype)

    return Step(run, [site.name("data"), site.name("indices"), site.name("updates")])


@op("topk")
def topk(site: Site) -> Step:
    """Return values, then (unless `return_indices` is off) their places; sorted also if `sort` is off, which is allowed."""
    k, axis, ascending = site.static("k", 1), site.static("axis", -1), site.static("ascending", False)
    both = site.static("return_indices", True)
    dtype = site.dtype_of(1) if both else torch.int32

    def run(x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        values, places = x.sort(dim=axis, descending=not ascending, stable=True)
        best = align(values.narrow(axis, 0, k))
        return (best, align(places.narrow(axis, 0, k).to(dtype))) if both else best

    return Step(run, [site.name("x")])


@op("argsort")
def argsort(site: Site) -> Step:
    axis, ascending, dtype = site.static("axis", -1), site.static("ascending", False), site.dtype
    return Step(lambda x: align(x.argsort(dim=axis, descending=not ascending, stable=True).to(dtype)), [site.name("x")])
