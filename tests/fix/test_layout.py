"""linear_to_conv, layer_norm_channels, cancel_layout and merge_views: proven over random shapes; look-alikes stay."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from fix.checks import apply_rewrite, assert_legal, check_rewrite, check_untouched, count_ops, save
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("coremltools")
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

from ane_sweep.fix import output, whole
from ane_sweep.mil import graph, package

FEW = settings(max_examples=8, deadline=None, phases=(Phase.explicit, Phase.generate))  # shrinking converts for minutes
KINDS = st.sampled_from(["fp16", "fp32"])
SHAPES = st.one_of(
    st.tuples(st.integers(1, 5), st.integers(2, 6)),
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(2, 6)),
    st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(2, 6)),
)
NUMBERS = {"fp16": np.float16, "fp32": np.float32}


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as made:
        yield lambda: Path(tempfile.mkdtemp(dir=made)) / "m.mlpackage"


def draw(*shape, kind="fp16", seed=0):
    return np.asarray(np.random.default_rng(seed).standard_normal(shape)).astype(NUMBERS[kind])


def normalise(x, size, kind="fp16", seed=0):
    return mb.layer_norm(
        x=x, axes=[-1], gamma=draw(size, kind=kind, seed=seed), beta=draw(size, kind=kind), epsilon=NUMBERS[kind](1e-3)
    )


@FEW
@given(
    kind=KINDS,
    shape=SHAPES,
    out=st.integers(2, 7),
    form=st.sampled_from(["linear", "matmul", "turned", "bias", "wide_bias"]),
)
def test_a_linear_layer_becomes_a_convolution(folder, kind, shape, out, form):
    def body(x):
        if form == "linear":
            y = mb.linear(x=x, weight=draw(out, shape[-1], kind=kind), bias=draw(out, kind=kind))
        elif form == "turned":
            y = mb.matmul(x=x, y=draw(out, shape[-1], kind=kind), transpose_y=True)
        else:
            y = mb.matmul(x=x, y=draw(shape[-1], out, kind=kind))
        if "bias" in form:
            y = mb.add(x=y, y=draw(out, kind=kind) if form == "bias" else draw(*[1] * (len(shape) - 1), out, kind=kind))
        return mb.relu(x=y)

    made = check_rewrite("linear_to_conv", save(folder(), body, x=(kind, shape)))
    counts = count_ops(made)
    assert counts["conv"] == 1 and not {"linear", "matmul", "add"} & set(counts)


def test_linear_layers_that_cannot_be_a_convolution_stay(folder):
    for body in (
        lambda x: mb.relu(x=mb.matmul(x=x, y=x, transpose_y=True)),  # not constant
        lambda x: mb.relu(x=mb.matmul(x=x, y=draw(4, 8), transpose_x=True)),
        lambda x: mb.relu(x=mb.matmul(x=x, y=draw(2, 8, 3))),  # a weight for each of the batch
        lambda x: mb.relu(x=mb.matmul(x=draw(2, 3, 4), y=x)),
        lambda x: mb.linear(x=x, weight=draw(5, 8)),  # the program ends there: a transpose would come after it
    ):
        check_untouched("linear_to_conv", save(folder(), body, x=("fp16", (2, 4, 8))))


def test_a_weight_is_shared_and_not_copied(folder):
    path = save(folder(), lambda x: mb.relu(x=mb.linear(x=x, weight=draw(64, 32))), x=("fp16", (1, 4, 32)))
    made = check_rewrite("linear_to_conv", path)
    files = [one / "Data" / "com.apple.CoreML" / "weights" / "weight.bin" for one in (path, made)]
    assert files[0].stat().st_ino == files[1].stat().st_ino


def test_a_bias_that_is_none_is_added_after_the_convolution(folder):
    def body(x):
        y = mb.matmul(x=x, y=draw(8, 6))
        return mb.relu(x=mb.add(x=y, y=draw(4, 6))), mb.relu(x=y)

    counts = count_ops(check_rewrite("linear_to_conv", save(folder(), body, x=("fp16", (2, 4, 8)))))
    assert counts["conv"] == counts["add"] == 1


@pytest.mark.parametrize("form", ["lut", "blockwise", "affine"])
def test_a_compressed_weight_keeps_its_numbers(folder, form):
    def body(x):
        if form == "lut":
            indices = (np.arange(6 * 8).reshape(6, 8) % 16).astype(types.np_uint4_dtype)
            made = mb.constexpr_lut_to_dense(indices=indices, lut=draw(2, 1, 16, 1))
        elif form == "blockwise":
            data = (np.arange(6 * 8).reshape(6, 8) - 20).astype(np.int8)
            made = mb.constexpr_blockwise_shift_scale(data=data, scale=draw(6, 2))
        else:
            data = np.arange(48).reshape(6, 8).astype(np.uint8)
            made = mb.constexpr_affine_dequantize(
                quantized_data=data, zero_point=np.uint8(3), scale=np.float16(0.1), axis=0
            )
        return mb.relu(x=mb.linear(x=x, weight=made))

    path = save(folder(), body, target="iOS16" if form == "affine" else "iOS18", x=("fp16", (1, 4, 8)))
    if form == "affine":
        scratch = path.with_name("scratch")
        scratch.mkdir()
        _, changes, failed = apply_rewrite(package.read(path), "linear_to_conv", scratch)
        assert failed and not changes  # left alone, with the reason
    else:
        counts = count_ops(check_rewrite("linear_to_conv", path, places=1))
        assert counts["conv"] == 1 and sum(counts[one] for one in counts if one.startswith("constexpr")) == 1


@FEW
@given(kind=KINDS, shape=st.tuples(st.integers(1, 2), st.integers(2, 5), st.integers(2, 9)))
def test_a_norm_is_taken_over_the_channels(folder, kind, shape):
    def body(x):
        return mb.conv(x=turn(normalise(x, shape[-1], kind)), weight=draw(3, shape[-1], 1, kind=kind)), mb.relu(x=x)

    made = graph.load(check_rewrite("layer_norm_channels", save(folder(), body, x=(kind, shape))))
    (norm,) = [op for op in made.ops if op.type == "layer_norm"]
    assert made.tensor_type(norm.outputs[0]).shape[1] == shape[-1]


@FEW
@given(
    kind=KINDS, shape=st.tuples(st.integers(1, 2), st.integers(2, 5), st.integers(2, 9)), is_centred=st.booleans(),
    square=st.sampled_from(["pow", "mul", "square"]), root=st.sampled_from(["rsqrt", "sqrt"]), has_weight=st.booleans(),
)  # fmt: skip
def test_a_norm_in_single_ops_is_taken_over_the_channels(folder, kind, shape, is_centred, square, root, has_weight):
    one = NUMBERS[kind]

    def body(x):
        v = mb.sub(x=x, y=mb.reduce_mean(x=x, axes=[-1], keep_dims=True)) if is_centred else x
        s = {"pow": lambda: mb.pow(x=v, y=one(2)), "mul": lambda: mb.mul(x=v, y=v), "square": lambda: mb.square(x=v)}[
            square
        ]()
        m = mb.add(x=mb.reduce_mean(x=s, axes=[-1], keep_dims=True), y=one(0.01))
        y = mb.mul(x=v, y=mb.rsqrt(x=m, epsilon=one(0))) if root == "rsqrt" else mb.real_div(x=v, y=mb.sqrt(x=m))
        y = mb.mul(x=y, y=draw(shape[-1], kind=kind)) if has_weight else y
        return mb.conv(x=turn(y), weight=draw(3, shape[-1], 1, kind=kind)), mb.relu(x=x)

    made = graph.load(check_rewrite("layer_norm_channels", save(folder(), body, x=(kind, shape))))
    (mean, *_) = [op for op in made.ops if op.type == "reduce_mean"]
    assert made.tensor_type(mean.outputs[0]).shape[1] == 1


def test_other_norms_stay(folder):
    gamma = draw(4, 6)
    for body in (
        lambda x: mb.relu(x=normalise(x, 6)),  # no transpose near it
        lambda x: turn(mb.layer_norm(x=x, axes=[1, 2], gamma=gamma, epsilon=np.float16(1e-3))),
        lambda x: turn(mb.layer_norm(x=x, axes=[1], epsilon=np.float16(1e-3))),
        lambda x: mb.layer_norm(x=x, axes=[-1], epsilon=np.float16(1e-3)),  # the program ends there
        lambda x: mb.mul(
            x=x, y=mb.rsqrt(x=mb.add(x=mb.reduce_mean(x=mb.square(x=x), axes=[1], keep_dims=True), y=np.float16(1)))
        ),
        lambda x: mb.mul(
            x=x, y=mb.rsqrt(x=mb.add(x=mb.reduce_sum(x=mb.square(x=x), axes=[-1], keep_dims=True), y=np.float16(1)))
        ),
    ):
        check_untouched("layer_norm_channels", save(folder(), body, x=("fp16", (2, 4, 6))))


def turn(x):
    return mb.transpose(x=x, perm=[0, 2, 1])


MIDDLES = {
    "relu": lambda x: mb.relu(x=x),
    "gelu": lambda x: mb.gelu(x=x, mode="TANH_APPROXIMATION"),
    "scalar": lambda x: mb.mul(x=x, y=np.float16(0.5)),
    "row": lambda x: mb.add(x=draw(6), y=x),
    "column": lambda x: mb.sub(x=x, y=draw(1, 5, 1)),
    "table": lambda x: mb.maximum(x=x, y=draw(5, 6)),
    "softmax": lambda x: mb.softmax(x=x, axis=-1),
    "norm": lambda x: normalise(x, 6),
    "slice": lambda x: mb.slice_by_index(
        x=x, begin=[0, 0, 2], end=[0, 0, -1], begin_mask=[True, True, False], end_mask=[True, True, False]
    ),
    "concat": lambda x: mb.concat(values=[mb.relu(x=x), draw(2, 1, 6), x], axis=1),
    "split": lambda x: mb.add(**dict(zip("xy", mb.split(x=x, num_splits=2, axis=2)))),
    "mean": lambda x: mb.sub(x=x, y=mb.reduce_mean(x=x, axes=[-1], keep_dims=True)),
    "cast": lambda x: mb.cast(x=mb.cast(x=x, dtype="fp32"), dtype="fp16"),
    "select": lambda x: mb.select(cond=mb.greater(x=x, y=np.float16(0)), a=x, b=np.float16(-1)),
    "power": lambda x: mb.pow(x=mb.abs(x=x), y=np.float16(1.5)),
    "square": lambda x: mb.mul(x=x, y=x),
}


@pytest.mark.parametrize("name", sorted(MIDDLES))
def test_an_op_between_two_transposes_loses_both(folder, name):
    path = save(folder(), lambda x: turn(MIDDLES[name](turn(x))), x=("fp16", (2, 6, 5)))
    made = check_rewrite("cancel_layout", path)
    assert "transpose" not in count_ops(made)


@FEW
@given(kind=KINDS, batch=st.integers(1, 2), width=st.integers(2, 4), count=st.integers(1, 4), data=st.data())
def test_random_chains_lose_transposes_and_compute_the_same(folder, kind, batch, width, count, data):
    shape = (batch, 3, 2 * width)
    plan = [data.draw(st.sampled_from(["relu", "turn", "table", "twice", "flat", "scores"])) for _ in range(2 * count)]

    def body(x):
        for step in plan:
            if step == "turn":
                x = turn(x)
            elif step == "table":
                x = mb.add(x=x, y=draw(1, *x.shape[1:], kind=kind))
            elif step == "twice":
                x = mb.add(x=mb.relu(x=x), y=turn(mb.tanh(x=turn(x))))
            elif step == "flat":
                x = mb.reshape(x=mb.relu(x=mb.reshape(x=x, shape=[batch, -1])), shape=x.shape)
            elif step == "scores":
                x = mb.matmul(x=x, y=mb.reduce_mean(x=x, axes=[1], keep_dims=True), transpose_y=True)
                x = mb.add(x=x, y=draw(1, 1, x.shape[1], kind=kind))
                x = mb.softmax(x=x, axis=2) if x.shape[2] > 1 else x
            else:
                x = mb.relu(x=x)
        return mb.sigmoid(x=x)

    path = save(folder(), body, x=(kind, shape))
    before = count_ops(path)
    for name in ("cancel_layout", "merge_views"):
        path = apply_somewhere(name, path)
        after = count_ops(path)
        assert after.get("transpose", 0) <= before.get("transpose", 0)


def apply_somewhere(name, path):
    """Apply a rewrite that may match nowhere; everything is proven and legal. Return the package."""
    scratch = path.with_name(f"{path.stem}.{name}.scratch")
    scratch.mkdir()
    source = package.read(path)
    made, changes, failed = apply_rewrite(source, name, scratch)
    assert failed == {} and all(change.proven for change in changes)
    if not changes:
        return path
    assert whole.prove_whole(source, made, graph.default_function(made.spec), False) is None
    target = path.with_name(f"{path.stem}.{name}.mlpackage")
    output.write_package(source, made, target)
    assert_legal(target)
    assert apply_rewrite(package.read(target), name, scratch)[1] == []
    return target


def test_ops_whose_transposes_would_stay_are_left_alone(folder):
    for body in (
        lambda x: mb.relu(x=turn(x)),  # the output is needed as it is
        lambda x: turn(mb.cumsum(x=turn(x), axis=1)),
        lambda x: turn(mb.reverse(x=turn(x), axes=[1])),
        lambda x: mb.add(x=mb.transpose(x=x, perm=[1, 0, 2]), y=draw(6, 1, 5)),
    ):
        check_untouched("cancel_layout", save(folder(), body, x=("fp16", (2, 6, 5))))


def test_views_are_merged_shared_and_dropped(folder):
    def body(x):
        a = mb.reshape(x=mb.reshape(x=x, shape=[12, 5]), shape=[3, 20])
        b = turn(turn(x))
        c = mb.expand_dims(x=mb.squeeze(x=mb.reshape(x=x, shape=[1, 12, 5]), axes=[0]), axes=[2])
        d, e = turn(mb.relu(x=x)), turn(mb.relu(x=x))
        f = mb.reshape(x=mb.transpose(x=mb.reshape(x=x, shape=[2, 3, 2, 5, 1]), perm=[0, 2, 1, 3, 4]), shape=[4, 3, 5])
        return [mb.relu(x=one) for one in (a, b, c, d, e, f)] + [mb.add(x=turn(x), y=turn(x))]

    counts = count_ops(check_rewrite("merge_views", save(folder(), lambda x: tuple(body(x)), x=("fp16", (2, 6, 5)))))
    assert counts["transpose"] == 4 and counts["reshape"] == 4 and not {"squeeze", "expand_dims"} & set(counts)


def test_views_that_are_the_fewest_stay(folder):
    for body in (
        lambda x: mb.relu(x=mb.reshape(x=turn(x), shape=[2, 30])),
        lambda x: (mb.relu(x=turn(x)), mb.reshape(x=turn(mb.relu(x=x)), shape=[60])),
        lambda x: (turn(x), turn(mb.relu(x=x))),
    ):
        check_untouched("merge_views", save(folder(), body, x=("fp16", (2, 6, 5))))


def test_a_block_of_a_transformer_keeps_no_transpose_between_its_convolutions(folder):
    def body(x):
        x = normalise(x, 8)
        for seed in range(2):
            y = mb.linear(x=normalise(x, 8, seed=seed), weight=draw(16, 8, seed=seed), bias=draw(16))
            y = mb.linear(x=mb.gelu(x=y, mode="EXACT"), weight=draw(8, 16, seed=seed), bias=draw(8))
            x = mb.add(x=x, y=mb.mul(x=y, y=np.float16(0.5)))
        return normalise(x, 8)

    made = check_rewrite("linear_to_conv", save(folder(), body, x=("fp16", (1, 6, 8))))
    kinds = [op.type for op in graph.load(made).ops if op.type != "const"]
    assert kinds.count("transpose") == 2 and kinds.count("conv") == 4
    first, last = (kinds.index("transpose"), len(kinds) - 1 - kinds[::-1].index("transpose"))
    assert not {"transpose", "reshape"} & set(kinds[first + 1 : last - 1])
