"""Compute in fp16 what a program of fp16 computes in fp32 between two casts, as in attention or pooling."""

from collections.abc import Iterator

import numpy as np

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import copy_op, prove_with, text
from ane_sweep.fix.rewrite import ProgramRewrite, Site
from ane_sweep.fix.values import Text

_OPS = (
    "softmax", "matmul", "avg_pool", "max_pool", "reduce_mean", "reduce_sum", "reduce_max", "reduce_min", "layer_norm",
    "add", "sub", "mul", "real_div", "maximum", "minimum", "abs", "relu", "sigmoid", "tanh", "exp", "sqrt", "square", "rsqrt",
    "select", "reshape", "transpose", "expand_dims", "squeeze", "tile", "slice_by_index", "concat", "identity",
)  # fmt: skip
_LONGEST = 64  # ops of one island

REWRITE = ProgramRewrite(
    order=28,
    kind="placement",
    help="ops in fp32 between casts from and to fp16 -> the same ops in fp16",
    condition="fp16 holds the constants as they are, but for an epsilon; fp16 PSNR is not worse by 1 dB, shown place by place",
    bound=1e-3,
    derivation="the same ops on the same values; an epsilon in fp16 is off by 2^-11 of it, below 6e-5 by 3e-8",
    source="john-rocky/coreai-model-zoo, notes on ane-region-count",
    evidence="13 -> 1 regions, 13.19 -> 4.60 ms (Core AI), reported there; here predicted only",
    then=("merge_repeats",),
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("cast"):
        x, island = node.read("x"), dict[str, Node]()
        is_end = graph.static(x) and graph.has_dtype(x, "fp32") and text(graph, node, "dtype", "") == "fp16"
        if is_end and _collect(graph, str(x), island) and island:
            yield Site(node, tuple(island.values()))


def _collect(graph: Graph, end: str, island: dict[str, Node]) -> bool:
    """Collect the fp32 ops behind a value. Return False if the island reads other values than fp16 and constants,
    or has too many ops.
    """
    left = [end]
    while left:
        name = left.pop()
        maker = graph.maker(name)
        is_begin = maker is not None and maker.type == "cast" and graph.has_dtype(maker.read("x"), "fp16", "bool")
        if name in island or is_begin:
            continue
        if maker is None or maker.type not in _OPS or len(island) >= _LONGEST or not graph.static(name):
            return False
        island[name] = maker
        for parameter in maker.proto.inputs:
            if not maker.reads(parameter):
                return False  # a literal argument
            for one in maker.reads(parameter):
                if not graph.has_dtype(one, "fp32"):
                    continue
                if not graph.is_constant(one):
                    left.append(one)
                elif not _fits(graph, one, parameter):
                    return False
    return True


def _fits(graph: Graph, name: str, parameter: str) -> bool:
    """Return True for a constant that fp16 holds as it is: later ops may enlarge the error of a rounded one. Epsilons may be
    rounded, but not to 0.
    """
    value = graph.value(name)
    if not isinstance(value, np.ndarray):
        return False
    with np.errstate(over="ignore", under="ignore"):
        small = value.astype(np.float16)
    return bool(small.all()) if parameter == "epsilon" else np.array_equal(small, value)


def apply(graph: Graph, site: Site) -> None:
    node, build, end = site.node, Builder(graph, site.node), str(site.node.read("x"))
    island: dict[str, Node] = {}
    if not _collect(graph, end, island):
        raise ValueError("its ops have changed")
    names: dict[str, str] = {}
    begins: list[Node] = []

    def make(name: str) -> str:
        """Return a value in fp16."""
        if name not in names:
            maker, value = graph.maker(name), graph.value(name)
            if isinstance(value, np.ndarray):
                names[name] = build.const(value.astype(np.float16))
            elif maker is not None and name not in island:
                begins.append(maker)
                x = str(maker.read("x"))
                if graph.dtype(x) == "bool":
                    x = build.op("cast", {"x": x, "dtype": Text("fp16")}, graph.shape(name), "fp16")
                names[name] = x
            else:
                names[name] = copy_op(graph, node, island[name], convert(island[name]), "fp16")
        return names[name]

    def convert(maker: Node) -> dict[str, list[str]]:
        return {
            parameter: [make(one) for one in maker.reads(parameter)]
            for parameter in maker.proto.inputs
            if all(graph.has_dtype(one, "fp32") for one in maker.reads(parameter))
        }

    graph.replace(node.outputs[0], make(end))
    prove_with(graph, (*island.values(), *begins))
