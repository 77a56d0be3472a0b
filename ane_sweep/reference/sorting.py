"""Ops that put values in order. Equal values keep the order of their places, where MIL leaves it open."""

from typing import Any

import torch

from ane_sweep.reference.site import Site, Step, aligned, op


@op("topk")
def topk(site: Site) -> Step:
    """Values, then (unless `return_indices` is off) their places; sorted also where `sort` is off, which is allowed."""
    k, axis, ascending = site.static("k", 1), site.static("axis", -1), site.static("ascending", False)
    both = site.static("return_indices", True)
    dtype = site.dtype_of(1) if both else torch.int32

    def run(x: torch.Tensor) -> Any:
        values, places = x.sort(dim=axis, descending=not ascending, stable=True)
        best = aligned(values.narrow(axis, 0, k))
        return (best, aligned(places.narrow(axis, 0, k).to(dtype))) if both else best

    return Step(run, [site.name("x")])


@op("argsort")
def argsort(site: Site) -> Step:
    axis, ascending, dtype = site.static("axis", -1), site.static("ascending", False), site.dtype
    return Step(
        lambda x: aligned(x.argsort(dim=axis, descending=not ascending, stable=True).to(dtype)), [site.name("x")]
    )
