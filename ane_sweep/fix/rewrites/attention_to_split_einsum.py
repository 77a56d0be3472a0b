"""Compute attention head by head on slices of (B, C, 1, S), with einsum products that need no reshape."""

from collections.abc import Iterator

import numpy as np

from ane_sweep.fix.attention import AttentionPattern, Heads, Operand, ScoreStep, Shape, find_attention, lift
from ane_sweep.fix.build import Builder, Given
from ane_sweep.fix.graph import Graph
from ane_sweep.fix.patterns import check_again, slice_axis
from ane_sweep.fix.rewrite import ProgramRewrite, Site
from ane_sweep.fix.values import Text

_MOST_HEADS = 128  # of one place: each is some eight ops
Masks = dict[tuple[str, int], str]  # (constant, head) -> the constant as keys by queries

REWRITE = ProgramRewrite(
    order=46,
    kind="placement",
    help="attention, fused or in single ops -> for each head slices of (B, C, 1, S), two einsums and softmax over the keys",
    condition="softmax over the keys; scale, masks and other element-wise steps on the scores; grouped heads; sizes known",
    bound=2e-4,
    derivation="scaled scores s up to 20: sums of d products in another order and the scale before the sum are wrong by some "
    "5 * 2^-24 s, the scale of a fused op in fp16 (two constants) by at most 3.4e-6 s: 7.4e-5; softmax doubles this",
    scales=(1.0, 2.0),
    lost_db=14.0,
    lost_why="scores are rounded after the product, and queries after the scale; the reference rounds the fused op once "
    "(83.6 -> 71.6 dB measured, with a mask), and single ops that scale after the product in another place (80.1 -> 78.7 dB)",
    then=("cancel_layout", "merge_views"),
    source="apple/ml-ane-transformers, principles 2 and 3 (Deploying Transformers on the Apple Neural Engine, 2022)",
    evidence="DistilBERT 56 -> 4.4 ms on an M1 with convolutions for linear (Apple, 2022); here predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    masks: Masks = {}
    for node in graph.nodes("matmul", "scaled_dot_product_attention"):
        found = find_attention(graph, node)
        if found is not None and found.heads <= _MOST_HEADS:
            yield Site(node, found.inner, facts={"masks": masks})


def apply(graph: Graph, site: Site) -> None:
    found = check_again(find_attention(graph, site.node), "it is no attention any more")
    masks = site.facts["masks"]
    assert isinstance(masks, dict)
    build, batch, (query, key, value) = Builder(graph, site.node), found.batch, (found.query, found.key, found.value)
    q = _merge_heads(build, batch, query, (0, 1, 3, 2))
    steps = list(found.steps)
    if steps and _is_scale(steps[0]):
        scale = steps.pop(0)
        q = build.op(scale.kind, {"x": q, "y": next(iter(scale.operands.values()))}, graph.shape(q))
    k = _merge_heads(build, batch, key, (0, 2, 1, 3))
    if found.key_scale is not None:
        k = build.op("mul", {"x": k, "y": found.key_scale}, graph.shape(k))
    parts = [
        _split_heads(graph, build, q, query, 1),
        _split_heads(graph, build, k, key, 3),
        _split_heads(graph, build, _merge_heads(build, batch, value, (0, 1, 3, 2)), value, 1),
    ]
    operands = [
        {name: _place_operand(graph, build, found, step, one, masks) for name, one in step.operands.items()}
        for step in steps
    ]
    made = []
    for head in range(found.heads):
        one, two, three = (part[head * len(part) // found.heads] for part in parts)
        shape = (batch, key.length, 1, query.length)
        scores = build.op("einsum", {"values": [two, one], "equation": Text("bkhc,bchq->bkhq")}, shape)
        for step, given in zip(steps, operands, strict=True):
            others = {name: values[head % len(values)] for name, values in given.items()}
            scores = build.op(step.kind, {step.main: scores, **others}, shape, graph.dtype(scores))
        weights = build.op("softmax", {"x": scores, "axis": 1}, shape)
        equation, shape = Text("bchk,bkhq->bchq"), (batch, value.width, 1, query.length)
        made.append(build.op("einsum", {"values": [three, weights], "equation": equation}, shape))
    graph.replace(site.node.outputs[0], _show_result(graph, build, found, made))


def _is_scale(step: ScoreStep) -> bool:
    return step.kind in ("mul", "real_div") and all(isinstance(one, np.ndarray) for one in step.operands.values())


def _reshape(build: Builder, x: str, shape: Shape) -> str:
    return x if build.graph.shape(x) == shape else build.op("reshape", {"x": x, "shape": list(shape)}, shape)


def _transpose(build: Builder, x: str, perm: tuple[int, ...]) -> str:
    return build.op("transpose", {"x": x, "perm": list(perm)}, [build.graph.shape(x)[axis] for axis in perm])


def _merge_heads(build: Builder, batch: int, heads: Heads, perm: tuple[int, ...]) -> str:
    """Return (B, n, S, d), permuted to (B, n, d, S) or (B, S, n, d), with the heads merged: (B, C, 1, S) or (B, S, 1, C)."""
    n, length, width = heads.count, heads.length, heads.width
    by_keys = perm == (0, 2, 1, 3)
    if heads.is_turned:
        x = _reshape(build, heads.name, (batch, n, width, length))
        x = _transpose(build, x, (0, 3, 1, 2)) if by_keys else x
    else:
        x = _transpose(build, _reshape(build, heads.name, (batch, n, length, width)), perm)
    return _reshape(build, x, (batch, length, 1, n * width) if by_keys else (batch, n * width, 1, length))


def _split_heads(graph: Graph, build: Builder, x: str, heads: Heads, axis: int) -> list[str]:
    if heads.count == 1:
        return [x]
    starts = range(0, heads.count * heads.width, heads.width)
    return [slice_axis(graph, build.place, x, axis, start, start + heads.width) for start in starts]


def _place_operand(
    graph: Graph, build: Builder, found: AttentionPattern, step: ScoreStep, operand: Operand, masks: Masks
) -> list[Given]:
    """Return an operand of the scores as (B, keys, 1, queries): one for all heads, or one for each."""
    if not isinstance(operand, str):
        return [operand]
    batch, heads, queries, keys = lift(graph.shape(operand), step.rank, found.batch, found.heads)
    value, maker = graph.value(operand), graph.maker(operand)
    if isinstance(value, np.ndarray) and maker is not None:
        array = value.reshape(batch, heads, queries, keys).transpose(0, 3, 1, 2)
        for head in range(heads):
            if (operand, head) not in masks:
                part = np.ascontiguousarray(array[:, :, head : head + 1])
                masks[operand, head] = Builder(graph, maker).const(part, "by_keys")
        return [masks[operand, head] for head in range(heads)]
    x = _reshape(build, operand, (batch, heads, queries, keys))
    is_view = keys == 1 or heads * queries == 1
    x = _reshape(build, x, (batch, keys, heads, queries)) if is_view else _transpose(build, x, (0, 3, 1, 2))
    return [slice_axis(graph, build.place, x, 2, head, head + 1) for head in range(heads)] if heads > 1 else [x]


def _show_result(graph: Graph, build: Builder, found: AttentionPattern, made: list[str]) -> str:
    """Return the heads' results (B, d, 1, S) as the attention's own: (B, heads, S, d), or with the leading axes merged."""
    batch, heads, length, width = found.batch, found.heads, found.query.length, found.value.width
    shape = (batch, heads * width, 1, length)
    x = build.op("concat", {"values": made, "axis": 1, "interleave": False}, shape) if heads > 1 else made[0]
    x = _transpose(build, _reshape(build, x, (batch, heads, width, length)), (0, 1, 3, 2))
    return _reshape(build, x, graph.shape(found.last.outputs[0]))
