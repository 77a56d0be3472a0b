"""Attention in a graph: softmax(q k^T, with element-wise steps) v in single ops, and the op scaled_dot_product_attention."""

import math
from dataclasses import dataclass, replace

import numpy as np

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import number, numbers
from ane_sweep.mil.element_types import NUMPY

_MOST_STEPS = 8  # between the product and the softmax
_STEPS = {  # element-wise ops, and the parameters by which the scores may enter them
    "add": ("x", "y"), "sub": ("x", "y"), "mul": ("x", "y"), "real_div": ("x",), "maximum": ("x", "y"),
    "minimum": ("x", "y"), "select": ("a", "b"), "tanh": ("x",), "clip": ("x",),
}  # fmt: skip

Shape = tuple[int, ...]
Operand = str | np.ndarray


@dataclass(frozen=True)
class Heads:
    """Queries, keys or values of some heads: (B, count, S, width), or (B, count, width, S) if `is_turned`."""

    name: str
    count: int
    length: int
    width: int
    is_turned: bool


@dataclass(frozen=True)
class ScoreStep:
    """One op on the scores: they enter by `main`; `operands` are the others, which broadcast with scores of `rank` axes."""

    kind: str
    main: str
    operands: dict[str, Operand]
    rank: int


@dataclass(frozen=True)
class AttentionPattern:
    """Attention of `heads` heads: the op `last` makes its result, `inner` are its other ops.

    `query`, `key` and `value` may have fewer heads than `heads`; neighbours then share one. `key_scale` is a factor of the
    keys, if the one of the scores is more than one constant of the program's type can hold.
    """

    last: Node
    batch: int
    heads: int
    query: Heads
    key: Heads
    value: Heads
    steps: list[ScoreStep]
    inner: tuple[Node, ...] = ()
    key_scale: np.ndarray | None = None


def lift(shape: Shape, rank: int, batch: int, heads: int) -> Shape:
    """Return the shape with four axes (batch, heads, ...) of a value that goes with scores of `rank` axes."""
    if rank == 3 and len(shape) == 3 and shape[0] == batch * heads:
        return (batch, heads, *shape[1:])
    return (1,) * (4 - len(shape)) + shape


def find_attention(graph: Graph, last: Node) -> AttentionPattern | None:
    """Return the attention whose result an op makes, or None. Sizes are known, and each inner value has one reader."""
    found = _find_fused(graph, last) if last.type == "scaled_dot_product_attention" else _find_single(graph, last)
    if found is None or 0 in (found.batch, found.heads):
        return None
    q, k, v = found.query, found.key, found.value
    kinds = {graph.dtype(one.name) for one in (q, k, v)} | {graph.dtype(last.outputs[0])}
    fits = k.length == v.length and q.width == k.width and min(q.length, k.length, q.width, v.width) > 0
    return found if fits and len(kinds) == 1 else None


def _find_fused(graph: Graph, last: Node) -> AttentionPattern | None:
    names, mask = [last.read(key) for key in ("query", "key", "value")], last.read("attn_mask")
    if not graph.static(*names, *([mask] if mask else []), last.outputs[0]) or any(map(graph.is_constant, names)):
        return None
    shape, keys = (graph.shape(str(name)) for name in names[:2])
    if len(shape) not in (3, 4) or (mask and not _fits(graph.shape(mask), (*shape[:-1], keys[-2]))):
        return None
    batch, heads, kind = 1 if len(shape) == 3 else shape[0], shape[-3], NUMPY[graph.dtype(last.outputs[0])]
    found = [_find_heads(graph, str(name), False, batch, heads) for name in names]
    scale, key_scale = _split_scale(1 / math.sqrt(shape[-1]), kind)
    steps = [ScoreStep("mul", "x", {"y": scale}, len(shape))]
    if mask and graph.dtype(mask) == "bool":
        steps.append(ScoreStep("select", "a", {"cond": mask, "b": np.asarray(-np.inf, kind)}, len(shape)))
    elif mask and graph.dtype(mask) == graph.dtype(last.outputs[0]):
        steps.append(ScoreStep("add", "x", {"y": mask}, len(shape)))
    elif mask:
        return None
    made = _assemble(last, batch, heads, found, steps, ())
    return made and replace(made, key_scale=key_scale)


def _split_scale(scale: float, kind: np.dtype) -> tuple[np.ndarray, np.ndarray | None]:
    """Return one constant, or two whose product is the scale to some 2^-21 where a constant of fp16 is not exact."""
    if kind != np.float16 or float(np.float16(scale)) == scale:
        return np.asarray(scale, kind), None
    second = np.arange(1024, 2048) / 1024
    first = (scale / second).astype(np.float16)
    best = int(np.argmin(np.abs(first * second - scale)))
    return np.asarray(first[best]), np.asarray(second[best], kind)


def _fits(shape: Shape, scores: Shape) -> bool:
    """Return True if a mask broadcasts with the scores without making them larger."""
    return len(shape) <= len(scores) and all(one in (1, size) for one, size in zip(shape[::-1], scores[::-1]))


def _find_single(graph: Graph, last: Node) -> AttentionPattern | None:
    if last.type != "matmul" or number(graph, last, "transpose_x", 0) or not graph.static(last.outputs[0]):
        return None
    softmax, bridge = _skip_reshape(graph, last.read("x"))
    if softmax is None or softmax.type != "softmax" or graph.only_user(softmax.outputs[0]) is None:
        return None
    scores = softmax.reads("x")[0]
    axis = number(graph, softmax, "axis", -1)
    if not graph.static(scores) or axis is None or int(axis) % len(graph.shape(scores)) != len(graph.shape(scores)) - 1:
        return None
    found_chain = _find_chain(graph, scores, _MOST_STEPS)
    if found_chain is None:
        return None
    chain = [node for node, _ in found_chain]
    product = chain[0]
    ends = [(product, "x", "transpose_x", 0), (product, "y", "transpose_y", 1), (last, "y", "transpose_y", 0)]
    batch, heads = _count_heads(graph, [*chain, softmax], [node.read(key) for node, key, *_ in ends])
    found = []
    for node, key, flag, usual in ends:
        name, rank = node.read(key), len(graph.shape(node.outputs[0]))
        if not graph.static(name) or name is None or graph.is_constant(name) or len(graph.shape(name)) != rank:
            return None
        found.append(_find_heads(graph, name, bool(number(graph, node, flag, 0)) != bool(usual), batch, heads))
    steps = [_read_step(graph, node, main) for node, main in found_chain[1:] if node.type != "reshape"]
    inner = (*chain, softmax, *bridge)
    return _assemble(last, batch, heads, found, [step for step in steps if step], inner) if all(steps) else None


def _count_heads(graph: Graph, nodes: list[Node], ends: list[str | None]) -> tuple[int, int]:
    """Return batch and heads: those of the scores where these have four axes, else of what is merged for the products."""
    shapes = [graph.shape(node.outputs[0]) for node in nodes]
    merged = math.prod(shapes[0][:-2])
    for name in ends:
        while name is not None and (step := _step_back(graph, name)) is not None:
            name = step[0]
        if name is not None and graph.static(name):
            shapes.append(graph.shape(name))
    counts = (shape[:2] for shape in shapes if len(shape) == 4)
    return next(((one, many) for one, many in counts if one * many == merged), (1, merged))


def _assemble(
    last: Node, batch: int, heads: int, found: list[Heads | None], steps: list[ScoreStep], inner: tuple[Node, ...]
) -> AttentionPattern | None:
    query, key, value = found
    if query is None or key is None or value is None:
        return None
    return AttentionPattern(last, batch, heads, query, key, value, steps, inner)


def _skip_reshape(graph: Graph, name: str | None) -> tuple[Node | None, tuple[Node, ...]]:
    """Return the op that makes a value that one op reads, behind a reshape of the leading axes, and this reshape."""
    maker = graph.maker(name)
    if maker is None or name is None or graph.only_user(name) is None:
        return None, ()
    if maker.type == "reshape" and _keeps_matrices(graph, maker):
        return graph.maker(maker.read("x")), (maker,)
    return maker, ()


def _keeps_matrices(graph: Graph, reshape: Node) -> bool:
    """Return True for a reshape between (B, H, a, b) and (B * H, a, b)."""
    x, made = reshape.read("x"), reshape.outputs[0]
    if x is None or not graph.static(x, made):
        return False
    shapes = sorted((graph.shape(x), graph.shape(made)), key=len)
    return [len(shape) for shape in shapes] == [3, 4] and shapes[0][-2:] == shapes[1][-2:]


def _find_chain(graph: Graph, name: str, most: int) -> list[tuple[Node, str]] | None:
    """Return the ops from the product of queries and keys to the scores `name`, each read by the next one alone, and the
    parameter by which the scores enter each.
    """
    maker = graph.maker(name)
    if maker is None or graph.only_user(name) is None or most < 0 or not graph.static(name):
        return None
    if maker.type == "matmul":
        return [(maker, "")] if len(graph.shape(name)) in (3, 4) else None
    mains = ("x",) if maker.type == "reshape" and _keeps_matrices(graph, maker) else _STEPS.get(maker.type, ())
    for main in mains:
        x = _main_input(graph, maker, main)
        if x is not None and (rest := _find_chain(graph, x, most - 1)) is not None:
            return [*rest, (maker, main)]
    return None


def _main_input(graph: Graph, node: Node, main: str) -> str | None:
    """Return the scores that enter an op by `main`, if it reads them once and keeps their shape, or None."""
    x, made = node.read(main), node.outputs[0]
    if x is None or not graph.static(x) or sum(one == x for key in node.proto.inputs for one in node.reads(key)) != 1:
        return None
    is_same = graph.shape(x) == graph.shape(made) and graph.dtype(x) == graph.dtype(made)
    return x if is_same or node.type == "reshape" else None


def _read_step(graph: Graph, node: Node, main: str) -> ScoreStep | None:
    """Return an op of the chain as a step, or None if an operand has an unknown size."""
    rank = len(graph.shape(node.outputs[0]))
    operands: dict[str, Operand] = {}
    for key in node.proto.inputs:
        name, value = node.read(key), graph.parameter(node, key)
        if key == main:
            continue
        if isinstance(value, np.ndarray) and value.size == 1:
            operands[key] = value.reshape(())
        elif name is not None and graph.static(name) and len(graph.shape(name)) <= rank:
            operands[key] = name
        else:
            return None
    return ScoreStep(node.type, main, operands, rank)


def _find_heads(graph: Graph, name: str, is_turned: bool, batch: int, heads: int) -> Heads | None:
    """Return the heads that a value holds: those before a repetition for groups, if there is one."""
    while (step := _step_back(graph, name)) is not None:
        name, is_turned = step[0], is_turned != step[1]
    shape = graph.shape(name)
    whole = lift(shape, len(shape), batch, heads)
    if len(whole) != 4 or whole[0] != batch or heads % whole[1]:
        return None
    length, width = whole[:1:-1] if is_turned else whole[2:]
    return Heads(name, whole[1], length, width, is_turned)


def _step_back(graph: Graph, name: str) -> tuple[str, bool] | None:
    """Return the value before a turn of the last two axes, a merge of the leading ones or a repetition of heads, and
    True for a turn.
    """
    maker = graph.maker(name)
    x = maker.read("x") if maker is not None else None
    if maker is None or x is None or not graph.static(x, name):
        return None
    rank = len(graph.shape(x))
    perm = numbers(graph, maker, "perm") if maker.type == "transpose" else None
    if perm is not None and [axis % rank for axis in perm] == [*range(rank - 2), rank - 1, rank - 2]:
        return x, True
    if maker.type == "reshape" and _keeps_matrices(graph, maker) and rank == 4:
        return x, False
    if maker.type == "tile" and rank == 4 and graph.shape(x)[1] == 1 and graph.shape(name)[2:] == graph.shape(x)[2:]:
        return (x, False) if graph.shape(name)[0] == graph.shape(x)[0] else None
    source = _find_repeated(graph, maker) if maker.type == "reshape" else None
    return (source, False) if source is not None else None


def _find_repeated(graph: Graph, reshape: Node) -> str | None:
    """Return x of (B, n, a, b) where a reshape makes (B, n * g, a, b) of it with every head g times, or None."""
    tile = graph.maker(reshape.read("x"))
    spread = graph.maker(tile.read("x")) if tile is not None and tile.type == "tile" else None
    x = spread.read("x") if spread is not None and spread.type in ("expand_dims", "reshape") else None
    if tile is None or spread is None or x is None or not graph.static(x, *tile.outputs, *spread.outputs):
        return None
    shape, wide, made = (graph.shape(name) for name in (spread.outputs[0], tile.outputs[0], reshape.outputs[0]))
    if len(shape) != 5 or shape[2] != 1 or graph.shape(x) != (*shape[:2], *shape[3:]):
        return None
    is_repeated = wide == (*shape[:2], wide[2], *shape[3:]) and made == (shape[0], shape[1] * wide[2], *shape[3:])
    return x if is_repeated else None
