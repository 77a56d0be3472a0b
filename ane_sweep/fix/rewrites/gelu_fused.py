"""Compute a gelu that is written out as one gelu op: with erf, with tanh, or as x * sigmoid(1.702 x).

Converters fuse most of these; coremltools 9 leaves x * 0.5 * (1 + erf(x / sqrt(2))) as five ops.
"""

import math
from collections.abc import Iterator

import numpy as np

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import check_again, is_number, other_input, prove_with
from ane_sweep.fix.rewrite import ProgramRewrite, Site
from ane_sweep.fix.values import Text

REWRITE = ProgramRewrite(
    order=15,
    kind="placement",
    help="0.5 x (1 + erf(x / sqrt(2))), 0.5 x (1 + tanh(...)) and x * sigmoid(1.702 x) -> gelu, in the mode that is equal",
    condition="constants are those of the formula as nearly as an fp16 number can be; 64 numbers or more",
    bound=1e-3,
    derivation="three constants in fp16, each up to 2^-11 off, where gelu moves by less than its argument",
    source="coremltools' passes fuse_gelu_exact and fuse_gelu_tanh_approximation, for fewer spellings",
    evidence="predicted only",
)
_ROOT, _INNER, _CUBE, _QUICK = math.sqrt(0.5), math.sqrt(2 / math.pi), 0.044715, 1.702
_MOST = 6  # factors of the product
_LEAST = 64  # numbers: of fewer, all may lie where gelu is near 0, and nothing is gained


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("erf", "tanh", "sigmoid"):
        if found := _read(graph, node):
            yield Site(found[1], (node,))


def _read(graph: Graph, node: Node) -> tuple[str, Node, str] | None:
    """Return (x, the last op, mode) of a gelu around an op."""
    inner, mode = node.read("x"), {"erf": "EXACT", "tanh": "TANH_APPROXIMATION"}.get(node.type, "SIGMOID_APPROXIMATION")
    x = _read_factor(graph, inner, _QUICK if node.type == "sigmoid" else _ROOT)
    if node.type == "tanh":
        x = _read_cubic(graph, inner)
    if x is None or not graph.static(x) or math.prod(graph.shape(x)) < _LEAST:
        return None
    if node.type == "sigmoid":
        last = graph.only_user(node.outputs[0])
        is_product = last is not None and last.type == "mul" and other_input(last, node.outputs[0]) == x
        return (x, last, mode) if last is not None and is_product else None
    total = graph.only_user(node.outputs[0])
    if total is None or total.type != "add" or not is_number(graph, other_input(total, node.outputs[0]), 1.0):
        return None
    last = _read_product(graph, total, x)
    return (x, last, mode) if last is not None else None


def _read_factor(graph: Graph, name: str | None, factor: float) -> str | None:
    """Return x of factor * x, or of x / (1 / factor)."""
    maker = graph.maker(name)
    if maker is None or maker.type not in ("mul", "real_div"):
        return None
    for side, other in (("y", "x"), ("x", "y")):
        if maker.type == "mul" and is_number(graph, maker.read(side), factor):
            return maker.read(other)
    return maker.read("x") if maker.type == "real_div" and is_number(graph, maker.read("y"), 1 / factor) else None


def _read_cubic(graph: Graph, name: str | None) -> str | None:
    """Return x of sqrt(2 / pi) * (x + 0.044715 x^3), or of sqrt(2 / pi) * x * (1 + 0.044715 x^2)."""
    for x in _list_operands(graph, name):
        factor, leaves = _split_product(graph, name, x)
        rest = [leaf for leaf in leaves if leaf != x]
        total = graph.maker(rest[0]) if len(rest) == 1 else None
        if total is None or total.type != "add" or abs(factor - _INNER) > 2**-10:
            continue
        for side, other in (("x", "y"), ("y", "x")):
            one, power = total.read(side), total.read(other)
            if len(leaves) == 1 and one == x and _is_power(graph, power, x, 3):
                return x
            if len(leaves) == 2 and is_number(graph, one, 1.0) and _is_power(graph, power, x, 2):
                return x
    return None


def _list_operands(graph: Graph, name: str | None) -> list[str]:
    """Return the computed values within three ops before a value: sums and products, and what they are made of."""
    found, level = dict[str, None](), [name]
    for _ in range(3):
        makers = [graph.maker(one) for one in level]
        level = [one for maker in makers if maker is not None and maker.type in ("add", "mul") for one in maker.names()]
        found |= dict.fromkeys(one for one in level if one is not None and not graph.is_constant(one))
    return sorted(found)


def _is_power(graph: Graph, name: str | None, x: str, power: int) -> bool:
    """Return True for 0.044715 * x^power."""
    factor, leaves = _split_product(graph, name, x)
    return leaves == [x] * power and abs(factor - _CUBE) <= 2**-10 * _CUBE


def _split_product(graph: Graph, name: str | None, *stops: str) -> tuple[float, list[str]]:
    """Return the constant factor of a product of products, and its other factors; `stops` are not taken apart."""
    factor, leaves = 1.0, list[str]()
    left = [name] if name is not None else []
    while left:
        one = left.pop()
        value, maker = graph.value(one), graph.maker(one)
        x, y = (maker.read("x"), maker.read("y")) if maker is not None else (None, None)
        if isinstance(value, np.ndarray) and value.size == 1:
            factor *= value.item()
        elif one in stops or maker is None or x is None or len(leaves) + len(left) > _MOST:
            leaves.append(one)
        elif maker.type == "mul" and y is not None:
            left += [x, y]
        elif maker.type == "square":
            left += [x, x]
        elif maker.type == "pow" and is_number(graph, y, 2.0, 3.0):
            left += [x] * (2 if is_number(graph, y, 2.0) else 3)
        else:
            leaves.append(one)
    return factor, leaves


def _read_product(graph: Graph, total: Node, x: str) -> Node | None:
    """Return the op that completes the product of a sum, x and one half, in any order."""
    node: Node | None = total
    for _ in range(2):
        node = graph.only_user(node.outputs[0]) if node is not None else None
        if node is None or node.type != "mul":
            return None
        factor, leaves = _split_product(graph, node.outputs[0], x, total.outputs[0])
        if abs(factor - 0.5) < 2**-11 and sorted(leaves) == sorted([x, total.outputs[0]]):
            return node if graph.shape(node.outputs[0]) == graph.shape(x) else None
    return None


def apply(graph: Graph, site: Site) -> None:
    x, last, mode = check_again(_read(graph, site.others[0]))
    between = _list_between(graph, x, last)
    graph.replace(last.outputs[0], Builder(graph, last).op("gelu", {"x": x, "mode": Text(mode)}, graph.shape(x)))
    prove_with(graph, between)


def _list_between(graph: Graph, x: str, last: Node) -> list[Node]:
    """Return the ops from `x` to the last op of the pattern, in no order; others may read them, too."""
    found, left = dict[Node, None](), [last]
    while left:
        node = left.pop()
        found[node] = None
        makers = [graph.maker(name) for name in node.names() if name != x and not graph.is_constant(name)]
        left += [maker for maker in makers if maker is not None and maker not in found]
    return list(found)
