"""attention_to_split_einsum: proven over random shapes, masks, layouts and groups of heads; look-alikes left alone."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from fix.checks import check_rewrite, check_untouched, count_ops, save
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("coremltools")
from coremltools.converters.mil import Builder as mb

NAME = "attention_to_split_einsum"
FEW = settings(max_examples=10, deadline=None)
KINDS = st.sampled_from(["fp16", "fp32"])
NUMPY = {"fp16": np.float16, "fp32": np.float32}
MASKS = ("none", "constant", "per_head", "input", "input_per_head", "keys", "causal_select", "two", "capped")


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as made:
        yield lambda: Path(tempfile.mkdtemp(dir=made)) / "m.mlpackage"


@st.composite
def shapes(draw):
    """Batch, heads, heads of keys, queries, keys, width, width of values."""
    group, kv_heads = draw(st.sampled_from([1, 1, 2, 3])), draw(st.integers(1, 3))
    lengths, widths = st.integers(3, 9), st.integers(4, 9)
    sizes = draw(lengths), draw(lengths), draw(widths), draw(widths)
    return draw(st.sampled_from([1, 1, 2])), group * kv_heads, kv_heads, *sizes


def masked(kind: str, scores, mask, shape: list[int], dtype: str):
    """Add a mask of some kind to scores of this shape; `mask` is an input of the program."""
    _, heads, queries, keys = shape
    random = np.random.default_rng(0)
    if kind in ("constant", "two"):
        scores = mb.add(x=scores, y=random.normal(size=(queries, keys)).astype(NUMPY[dtype]))
    if kind == "per_head":
        scores = mb.add(x=random.normal(size=(1, heads, queries, keys)).astype(NUMPY[dtype]), y=scores)
    if kind in ("input", "input_per_head", "keys", "two"):
        scores = mb.add(x=scores, y=mask)
    if kind == "causal_select":
        low = NUMPY[dtype](-1e4)
        scores = mb.select(cond=np.tril(np.ones((1, 1, queries, keys), bool)), a=scores, b=low)
    if kind == "capped":
        scores = mb.mul(x=mb.tanh(x=mb.real_div(x=scores, y=NUMPY[dtype](5))), y=NUMPY[dtype](5))
    return scores


def mask_shape(kind: str, batch: int, heads: int, queries: int, keys: int) -> tuple[int, ...]:
    return {
        "input": (batch, 1, queries, keys), "input_per_head": (heads, queries, keys), "two": (queries, keys),
    }.get(kind, (batch, 1, 1, keys))  # fmt: skip


def repeat(x, group: int, batch: int, heads: int, last: tuple[int, int]):
    if group == 1:
        return x
    wide = mb.tile(x=mb.expand_dims(x=x, axes=[2]), reps=[1, 1, group, 1, 1])
    return mb.reshape(x=wide, shape=[batch, heads, *last])


@pytest.mark.slow
@pytest.mark.ci
@FEW
@given(sizes=shapes(), kind=KINDS, mask=st.sampled_from(MASKS), scale=st.sampled_from([None, "mul", "by", "div"]),
       transposed=st.booleans(), merged=st.booleans())  # fmt: skip
def test_attention_in_single_ops(folder, sizes, kind, mask, scale, transposed, merged):
    batch, heads, kv_heads, queries, keys, width, out = sizes
    number = NUMPY[kind]

    def split(x, count, length, size, perm):
        return mb.transpose(x=mb.reshape(x=x, shape=[batch, length, count, size]), perm=perm)

    def body(q, k, v, m):
        q = split(q, heads, queries, width, [0, 2, 1, 3])
        k = split(k, kv_heads, keys, width, [0, 2, 3, 1] if transposed else [0, 2, 1, 3])
        k = repeat(k, heads // kv_heads, batch, heads, (width, keys) if transposed else (keys, width))
        v = split(v, kv_heads, keys, out, [0, 2, 1, 3])
        v = repeat(v, heads // kv_heads, batch, heads, (keys, out))
        scores = mb.matmul(x=q, y=k, transpose_y=not transposed)
        if scale == "mul":
            scores = mb.mul(x=scores, y=number(width**-0.5))
        if scale == "by":
            scores = mb.mul(x=number(width**-0.5), y=scores)
        if scale == "div":
            scores = mb.real_div(x=scores, y=number(width**0.5))
        scores = masked(mask, scores, m, [batch, heads, queries, keys], kind)
        mixed = mb.matmul(x=mb.softmax(x=scores, axis=-1), y=v)
        if not merged:
            return mixed
        return mb.reshape(x=mb.transpose(x=mixed, perm=[0, 2, 1, 3]), shape=[batch, queries, heads * out])

    made = check_rewrite(NAME, save(
        folder(), body, q=(kind, (batch, queries, heads * width)), k=(kind, (batch, keys, kv_heads * width)),
        v=(kind, (batch, keys, kv_heads * out)), m=(kind, mask_shape(mask, batch, heads, queries, keys)),
    ))  # fmt: skip
    counts = count_ops(made)
    assert counts["einsum"] == 2 * counts["softmax"] == 2 * heads
    assert not {"matmul", "tile"} & set(counts)


@pytest.mark.slow
@pytest.mark.ci
@FEW
@given(sizes=shapes(), kind=KINDS, rank=st.integers(3, 4), mask=st.sampled_from(["none", "float", "bool", "row"]))
def test_the_fused_op(folder, sizes, kind, rank, mask):
    batch, heads, _, queries, keys, width, out = sizes
    lead = (batch, heads)[4 - rank :]
    types = {"bool": "bool", "float": kind, "row": kind, "none": kind}
    shape = (
        (keys,) if mask == "row" else (heads, queries, keys) if mask == "float" else (1,) * (rank - 2) + (queries, keys)
    )

    def body(q, k, v, m):
        return mb.scaled_dot_product_attention(query=q, key=k, value=v, **({} if mask == "none" else {"attn_mask": m}))

    made = check_rewrite(NAME, save(
        folder(), body, q=(kind, (*lead, queries, width)), k=(kind, (*lead, keys, width)), v=(kind, (*lead, keys, out)),
        m=(types[mask], shape),
    ))  # fmt: skip
    assert count_ops(made)["einsum"] == 2 * heads


def test_heads_merged_with_the_batch_and_a_reshape_before_the_mask(folder):
    """Bloom: products of three axes, a bias for each head on them, and the mask on four axes."""

    def body(q, k, v):
        bias = np.random.default_rng(0).normal(size=(6, 1, 5)).astype(np.float16)
        scores = mb.add(x=bias, y=mb.matmul(x=q, y=k, transpose_y=True))
        scores = mb.add(x=mb.reshape(x=scores, shape=[2, 3, 4, 5]), y=np.tril(np.ones((4, 5), np.float16)))
        weights = mb.reshape(x=mb.softmax(x=scores, axis=-1), shape=[6, 4, 5])
        return mb.matmul(x=weights, y=v)

    kind = {"q": (6, 4, 8), "k": (6, 5, 8), "v": (6, 5, 7)}
    made = check_rewrite(NAME, save(folder(), body, **{key: ("fp16", size) for key, size in kind.items()}))
    assert count_ops(made)["einsum"] == 6  # the two inputs of the batch in one product


@pytest.mark.parametrize("unmerged", ["query", "keys", "values"])
def test_heads_merged_with_the_batch_before_the_products(folder, unmerged):
    """The UNet of diffusers: (B, S, H, d) to (B * H, S, d), products and softmax on three axes, and back."""
    batch, heads, count, width = 2, 3, 4, 8

    def body(q, k, v):
        def split(x, name):
            if unmerged != name:
                return mb.reshape(x=x, shape=[batch * heads, count, width])
            x = mb.transpose(x=mb.reshape(x=x, shape=[batch, count, heads, width]), perm=[0, 2, 1, 3])
            return mb.reshape(x=x, shape=[batch * heads, count, width])

        q, k, v = split(q, "query"), split(k, "keys"), split(v, "values")
        scores = mb.matmul(x=mb.mul(x=q, y=np.float16(0.3)), y=k, transpose_y=True)
        return mb.matmul(x=mb.softmax(x=scores, axis=-1), y=v)

    kind = ("fp16", (batch, count, heads * width))
    made = check_rewrite(NAME, save(folder(), body, q=kind, k=kind, v=kind))
    found = count_ops(made)["einsum"]
    assert found == (2 * batch * heads if unmerged == "query" else 2 * heads)


def test_two_places_share_a_mask_that_is_written_once(folder):
    mask = np.tril(np.ones((1, 1, 6, 6), np.float16))

    def body(q, k, v):
        shared = mb.const(val=mask)
        for _ in range(2):
            q = mb.matmul(x=mb.softmax(x=mb.add(x=mb.matmul(x=q, y=k, transpose_y=True), y=shared), axis=-1), y=v)
        return q

    made = check_rewrite(NAME, save(folder(), body, **dict.fromkeys("qkv", ("fp16", (1, 2, 6, 6)))))
    assert count_ops(made)["softmax"] == 4
    weights = made / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"
    assert weights.stat().st_size < 2 * mask.nbytes + 256


def attend(q, k, v, axis=-1):
    return mb.matmul(x=mb.softmax(x=mb.matmul(x=q, y=k, transpose_y=True), axis=axis), y=v)


def read_scores_twice(q, k, v):
    scores = mb.matmul(x=q, y=k, transpose_y=True)
    return mb.matmul(x=mb.softmax(x=scores, axis=-1), y=v), mb.reduce_max(x=scores, axes=[-1])


def return_weights(q, k, v):
    weights = mb.softmax(x=mb.matmul(x=q, y=k, transpose_y=True), axis=-1)
    return mb.matmul(x=weights, y=v), weights


def drop_after_softmax(q, k, v):
    weights = mb.softmax(x=mb.matmul(x=q, y=k, transpose_y=True), axis=-1)
    return mb.matmul(x=mb.mul(x=weights, y=np.float16(1.1)), y=v)


def gate_by_own_scores(q, k, v):
    scores = mb.matmul(x=q, y=k, transpose_y=True)
    return mb.matmul(x=mb.softmax(x=mb.mul(x=scores, y=scores), axis=-1), y=v)


def widen_by_mask(q, k, v):
    mask = np.zeros((2, 1, 1, 1), np.float16)
    return mb.matmul(x=mb.softmax(x=mb.add(x=mb.matmul(x=q, y=k, transpose_y=True), y=mask), axis=-1), y=v)


def repeat_in_another_order(q, k, v):
    """Heads 0, 1, 0, 1: tiled whole, where groups would need 0, 0, 1, 1."""
    return attend(mb.tile(x=q, reps=[1, 2, 1, 1]), mb.tile(x=k, reps=[1, 2, 1, 1]), mb.tile(x=v, reps=[1, 2, 1, 1]))


def use_constant_keys(q, k, v):
    return attend(q, np.ones((1, 2, 6, 6), np.float16), mb.add(x=k, y=v))


@pytest.mark.parametrize("body", [
    lambda q, k, v: attend(q, k, v, axis=-2), read_scores_twice, return_weights, drop_after_softmax, gate_by_own_scores,
    widen_by_mask, use_constant_keys,
])  # fmt: skip
def test_look_alikes_stay(folder, body):
    check_untouched(NAME, save(folder(), body, **dict.fromkeys("qkv", ("fp16", (1, 2, 6, 6)))))


def test_whole_tiles_of_heads_are_no_groups(folder):
    made = check_rewrite(NAME, save(folder(), repeat_in_another_order, **dict.fromkeys("qkv", ("fp16", (1, 2, 6, 6)))))
    assert count_ops(made)["tile"] == 3


def test_sizes_that_are_not_known_stay(folder):
    from coremltools.converters.mil.mil import get_new_symbol

    shape = (1, 2, get_new_symbol(), 6)
    try:
        path = save(folder(), attend, **dict.fromkeys("qkv", ("fp16", shape)))
    except ValueError as error:
        pytest.skip(f"coremltools does not write it: {error}")
    check_untouched(NAME, path)
