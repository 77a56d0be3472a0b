"""Compute masks, positions and lengths in fp16 instead of int32, as far as that is exact.

A chain begins at a value that must stay int32 (an input, say), and ends at a cast to fp16 or bool, or a comparison
with a constant. Values that only move between the two may be any: rounding keeps their order, and fp16 holds every
whole number up to 2,048, so none beyond is taken for a constant below. Values that are added or multiplied must be
known to stay within 2,048.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import copy_op, prove_with, text
from ane_sweep.fix.rewrite import ProgramRewrite, Site
from ane_sweep.fix.values import Text

_MOST = 2048
_MOVES = ("expand_dims", "squeeze", "reshape", "transpose", "tile", "slice_by_index", "slice_by_size", "identity")
_SUMS = ("add", "sub", "mul", "maximum", "minimum")
_COMPARES = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_LONGEST = 64  # ops of one chain

REWRITE = ProgramRewrite(
    order=26,
    kind="placement",
    help="int32 ops that end in a cast or a comparison -> the same in fp16, cast where they begin",
    condition="values only move, or are known to stay within 2,048; constants compared with are below 2,048",
    bound=0.0,
    derivation="fp16 holds every whole number up to 2,048, and rounding keeps the order of others",
    source="seed notes on Core ML (an int32 value is a sign for the CPU); 751K study (`Unsupported tensor data type: int32`)",
    evidence="int32 ops stay off the Neural Engine (several parties); the replacement is predicted only",
    then=("merge_repeats",),
)


class _Range(NamedTuple):
    low: float
    high: float

    @property
    def is_exact(self) -> bool:
        return self.low >= -_MOST and self.high <= _MOST


_ANY = _Range(-np.inf, np.inf)


class _Chain:
    """The int32 ops between the beginnings and one end; `ranges` are the known values."""

    def __init__(self, graph: Graph):
        self.graph, self.ops, self.ranges = graph, dict[str, Node](), dict[str, _Range]()

    def follow(self, name: str) -> _Range:
        """Add the ops behind a value to the chain while fp16 computes them exactly. Return the range of the value."""
        if name not in self.ranges:
            self.ranges[name] = _ANY
            self.ranges[name] = self._follow(name)
        return self.ranges[name]

    def _follow(self, name: str) -> _Range:
        graph, maker = self.graph, self.graph.maker(name)
        value = graph.value(name)
        if isinstance(value, np.ndarray) and value.size:
            return _Range(float(value.min()), float(value.max()))
        if maker is None or len(self.ops) >= _LONGEST or not graph.static(name) or len(maker.outputs) > 1:
            return _ANY
        x, y = maker.read("x"), maker.read("y")
        if maker.type == "cast" and x is not None and graph.dtype(x) == "bool":
            self.ops[name] = maker
            return _Range(0, 1)
        if maker.type in _MOVES and x is not None and not graph.is_constant(x):
            self.ops[name] = maker
            return self.follow(x)
        if maker.type in _SUMS and x is not None and y is not None:
            found = _combine(maker.type, self.follow(x), self.follow(y))
            if found.is_exact and self.ranges[x].is_exact and self.ranges[y].is_exact:
                self.ops[name] = maker
            return found
        return _ANY


def _combine(kind: str, x: _Range, y: _Range) -> _Range:
    """Return the range of a sum, difference, product, or choice of two values."""
    if not (x.is_exact and y.is_exact):
        return _ANY
    if kind == "add":
        return _Range(x.low + y.low, x.high + y.high)
    if kind == "sub":
        return _Range(x.low - y.high, x.high - y.low)
    if kind == "mul":
        ends = [one * other for one in x for other in y]
        return _Range(min(ends), max(ends))
    choose = max if kind == "maximum" else min
    return _Range(choose(x.low, y.low), choose(x.high, y.high))


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("cast", *_COMPARES):
        chain = _Chain(graph)
        if _is_end(graph, node, chain) and chain.ops:
            yield Site(node, tuple(chain.ops.values()))


def _is_end(graph: Graph, node: Node, chain: _Chain) -> bool:
    read = [node.read(key) for key in ("x", "y") if key in node.proto.inputs]
    names = [name for name in read if name is not None]
    if len(names) != len(read) or not graph.static(*names, *node.outputs) or graph.dtype(names[0]) != "int32":
        return False
    ranges = [chain.follow(name) for name in names]
    if node.type == "cast":
        return text(graph, node, "dtype", "") in ("fp16", "bool")
    return any(found.low > -_MOST and found.high < _MOST for found in ranges)


def apply(graph: Graph, site: Site) -> None:
    node, chain = site.node, _Chain(graph)
    if not _is_end(graph, node, chain):
        raise ValueError("its values are no longer known")
    build, out, names = Builder(graph, node), node.outputs[0], dict[str, str]()

    def make(name: str) -> str:
        """Return a value in fp16."""
        if name not in names:
            maker, value = chain.ops.get(name), graph.value(name)
            if isinstance(value, np.ndarray):
                names[name] = build.const(value.astype(np.float16))
            elif maker is None or maker.type == "cast":
                source = name if maker is None else str(maker.read("x"))
                names[name] = build.op("cast", {"x": source, "dtype": Text("fp16")}, graph.shape(name), "fp16")
            else:
                given = {key: [make(str(maker.read(key)))] for key in ("x", "y") if key in maker.proto.inputs}
                names[name] = copy_op(graph, node, maker, given, "fp16")
        return names[name]

    shape, x = graph.shape(out), make(str(node.read("x")))
    if node.type == "cast":
        made = x if graph.dtype(out) == "fp16" else build.op("not_equal", {"x": x, "y": 0.0}, shape, "bool")
    else:
        made = build.op(node.type, {"x": x, "y": make(str(node.read("y")))}, shape, "bool")
    graph.replace(out, made)
    prove_with(graph, chain.ops.values())
