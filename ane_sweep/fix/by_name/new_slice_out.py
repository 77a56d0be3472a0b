"""Return the new slice of a cache instead of the whole cache with the slice appended."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from ane_sweep.fix.build import Builder
from ane_sweep.fix.functions import name_output, open_functions, replace_outputs
from ane_sweep.fix.graph import Graph
from ane_sweep.fix.interface import Change, InterfaceRewrite, Run, Values
from ane_sweep.fix.patterns import number
from ane_sweep.fix.values import Text
from ane_sweep.mil.package import Package

REWRITE = InterfaceRewrite(
    order=30,
    help="an output that is an input (a cache) with new values appended -> the new values alone, as output NAME_new",
    host="it appends the new values to its cache",
    condition="a concat of an input and one other value, with known sizes; casts between may stand",
    source="FluidInference/mobius pull request 78",
    evidence="about 40 % of a step, reported there with an error of 9.5e-7; here predicted only",
)

Cache = tuple[str, str, int]  # the input, the value that is appended, the axis


def find(graphs: Sequence[Graph]) -> list[str]:
    return list({name: None for graph in graphs for name in _find_caches(graph)})


def change(package: Package, sizes: str) -> Change:
    runs, names = [], dict[str, None]()
    for name, graph in open_functions(package).items():
        found = _find_caches(graph)
        replace_outputs(package, name, graph, {out: _add_slice(graph, out, new) for out, (_, new, _) in found.items()})
        names |= dict.fromkeys(f"{out} -> {out}_new" for out in found)
        runs.append(Run(name, name, to_old=partial(_append, found)))
    return Change(package, ", ".join(names), runs)


def _append(found: dict[str, Cache], given: Values, made: Values) -> Values:
    """Return the outputs with the host's part: every cache with its new values appended."""
    whole = {out: np.concatenate([given[cache], made[f"{out}_new"]], axis) for out, (cache, _, axis) in found.items()}
    return {**made, **whole}


def _find_caches(graph: Graph) -> dict[str, Cache]:
    """Return the outputs that are an input with a value appended."""
    found = {}
    for out in graph.program.outputs:
        concat = graph.maker(_skip_casts(graph, out))
        if concat is None or concat.type != "concat" or len(concat.reads("values")) != 2:
            continue
        first, new = concat.reads("values")
        cache, axis = _skip_casts(graph, first), number(graph, concat, "axis")
        if (
            cache in graph.inputs
            and graph.static(cache, new, out)
            and graph.dtype(cache) == graph.dtype(out)
            and axis is not None
            and not number(graph, concat, "interleave", 0)
            and f"{out}_new" not in graph.types
        ):
            found[out] = (cache, new, int(axis))
    return found


def _skip_casts(graph: Graph, name: str) -> str:
    """Return the value that a value is, but for casts between floats."""
    maker = graph.maker(name)
    while maker is not None and maker.type in ("cast", "identity"):
        (source,) = maker.reads("x")
        if {graph.dtype(one) for one in (source, name)} - {"fp16", "fp32"}:
            break
        name, maker = source, graph.maker(source)
    return name


def _add_slice(graph: Graph, out: str, new: str) -> str:
    """Add the output of the new values, in the old output's element type, and return its name."""
    place, dtype = graph.maker(out), graph.dtype(out)
    assert place is not None
    given = {"x": new} if graph.dtype(new) == dtype else {"x": new, "dtype": Text(dtype)}
    made = Builder(graph, place).op("cast" if "dtype" in given else "identity", given, graph.shape(new), dtype)
    return name_output(graph, made, f"{out}_new")
