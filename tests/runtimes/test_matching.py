"""Values of two programs are matched by their place in them, whatever they are called."""

import random
from graphlib import TopologicalSorter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runtimes.test_reference_graphs import RECIPE, graph

from ane_sweep import reference
from ane_sweep.mil import package
from ane_sweep.mil.graph import free_names
from ane_sweep.reference import matching, trace

RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 16)).astype(np.float16)
HOW = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]}


def renamed(source, target, seed):
    """The same program with other names of all inner values, its ops in another order. Returns new name -> old."""
    draw, found = random.Random(seed), package.read(source)
    (block,) = found.spec.mlProgram.functions["main"].block_specializations.values()
    ops = list(block.operations)
    made = {value.name: place for place, op in enumerate(ops) for value in op.outputs}
    inner = [name for name in made if name not in block.outputs]
    new = dict(zip(inner, draw.sample([f"var_{n}" for n in range(2 * len(inner))], len(inner))))
    reads = [
        {made[name] for name in {*_read(op), *(n for b in op.blocks for n in free_names(b))} if name in made}
        for op in ops
    ]
    sorter = TopologicalSorter(dict(enumerate(reads)))
    sorter.prepare()
    order = []
    while sorter.is_active():
        ready = list(sorter.get_ready())
        draw.shuffle(ready)
        order += ready
        sorter.done(*ready)
    for op in ops:
        for value in op.outputs:
            value.name = new.get(value.name, value.name)
        for argument in op.inputs.values():
            for binding in argument.arguments:
                binding.name = new.get(binding.name, binding.name)
    copies = [type(op).FromString(ops[place].SerializeToString()) for place in order]
    del block.operations[:]
    block.operations.extend(copies)
    weights, before = package.create(target), found.model_path.parent / "weights" / "weight.bin"
    weights.write_bytes(before.read_bytes() if before.exists() else b"")
    package.write(target, found.spec)
    return {after: before for before, after in new.items()} | {name: name for name in block.outputs}


def _read(op):
    return [binding.name for argument in op.inputs.values() for binding in argument.arguments if binding.name]


def matched(a, b):
    return matching.match_values(reference.load(a), reference.load(b))


def check(mil, tmp_path, number, recipe, shape):
    x = np.ones(shape, np.float32)
    folder = tmp_path / str(number)
    folder.mkdir()
    a = mil.write(folder / "a.mlpackage", {"x": x}, lambda x: mil.mb.identity(x=graph(mil.mb, x, recipe)))
    old = renamed(a, folder / "b.mlpackage", number)
    found = matched(a, folder / "b.mlpackage")
    assert not found.alone and not found.ambiguous
    assert found.of == {after: old[after] for after in found.of} and len(found.of) == len(_ran(folder / "b.mlpackage"))


def _ran(path):
    ops = reference.load(path).ops
    return [name for op in ops if op.type != "identity" for name in op.outputs]


@settings(max_examples=10, derandomize=True, **HOW)
@given(recipe=RECIPE, shape=st.sampled_from([(2, 3), (3, 2, 4), (1, 4, 2, 3)]), number=st.integers(0, 10**9))
def test_random_graphs_are_known_again_whatever_their_names(mil, tmp_path_factory, recipe, shape, number):
    check(mil, tmp_path_factory.mktemp("graphs"), number, recipe, shape)


@pytest.mark.slow
@settings(max_examples=300, **HOW)
@given(recipe=RECIPE, shape=st.sampled_from([(2, 3), (3, 2, 4), (1, 4, 2, 3)]), number=st.integers(0, 10**9))
def test_many_random_graphs_are_known_again(mil, tmp_path_factory, recipe, shape, number):
    check(mil, tmp_path_factory.mktemp("graphs"), number, recipe, shape)


def weight(seed, width=16):
    return (np.random.default_rng(seed).standard_normal((width, width)) / 4).astype(np.float16)


def held(mb, dense, how):
    """A weight as it is, or in the form that a recipe gives it."""
    if how == "dense":
        return dense
    if how == "int8":
        scale = (np.abs(dense).max(1, keepdims=True) / 127).astype(np.float16)
        return mb.constexpr_blockwise_shift_scale(data=np.round(dense / scale).astype(np.int8), scale=scale)
    from coremltools.converters.mil.mil import types

    table = np.linspace(dense.min(), dense.max(), 16).astype(np.float16)
    indices = np.abs(dense[..., None] - table).argmin(-1).astype(np.uint8)
    return mb.constexpr_lut_to_dense(
        indices=indices.astype(types.nptype_from_builtin(types.uint4)), lut=table[None, None, :, None]
    )


def attention(mil, how, first, fused=False):
    """Query, key and value of one input, transposes numbered from `first` on as a converter numbers them."""

    def body(x):
        mb = mil.mb
        query, key, value = (
            mb.linear(x=x, weight=held(mb, weight(n), how), name=f"var_{9 * n + first}") for n in range(3)
        )
        rows = [
            mb.transpose(x=one, perm=[1, 0], name=f"transpose_{(n + first) % 3}")
            for n, one in enumerate((query, key, value))
        ]
        if fused:
            return mb.matmul(
                x=mb.matmul(x=rows[0], y=rows[1], transpose_x=True, name="scores"),
                y=rows[2],
                transpose_y=True,
                name="out",
            )
        scores = mb.softmax(x=mb.matmul(x=rows[0], y=rows[1], transpose_x=True, name="scores"), axis=-1, name="p")
        return mb.matmul(x=scores, y=rows[2], transpose_y=True, name="out")

    return body


@pytest.mark.parametrize("how", ["int8", "palette"])
def test_a_compressed_program_is_matched_though_its_names_shifted(mil, tmp_path, how):
    dense = mil.write(tmp_path / "a.mlpackage", {"x": X}, attention(mil, "dense", 0))
    small = mil.write(tmp_path / "b.mlpackage", {"x": X}, attention(mil, how, 1))
    a, b = reference.load(dense), reference.load(small)
    compared = trace.compare_values(a, b, {"x": X})
    assert not compared.matching.alone and not compared.matching.ambiguous
    of = compared.matching.of
    assert [of[f"transpose_{n}"] for n in (1, 2, 0)] == ["transpose_0", "transpose_1", "transpose_2"]
    drifts = {item.name: item.drift for item in compared.seen}
    assert len(drifts) == len(a.ops)
    assert max(drifts[f"transpose_{n}"] for n in range(3)) < (0.02 if how == "int8" else 0.2)
    by_name = (
        trace.collect_values(a, {"x": X}, ["transpose_1"])["transpose_1"],
        trace.collect_values(b, {"x": X}, ["transpose_1"])["transpose_1"],
    )
    assert np.abs(by_name[0] - by_name[1]).max() > np.abs(by_name[0]).max(), (
        "equal names would have said 100 % and more"
    )


def test_where_programs_differ_the_trace_ends(mil, tmp_path):
    """One op more in the middle: what comes before is known from the input, what comes after from the output."""

    def body(clipped):
        def make(x):
            mb = mil.mb
            y = mb.tanh(x=mb.exp(x=x, name="before"), name="early")
            y = mb.clip(x=y, alpha=np.float16(-1), beta=np.float16(0.5), name="only_here") if clipped else y
            return mb.square(x=mb.sigmoid(x=y, name="late"), name="out")

        return make

    found = matched(
        mil.write(tmp_path / "a.mlpackage", {"x": X}, body(False)),
        mil.write(tmp_path / "b.mlpackage", {"x": X}, body(True)),
    )
    assert found.of == {"before": "before", "early": "early", "late": "late", "out": "out"}
    assert found.alone == ["only_here"] and str(found) == "left out: 1 where the programs differ"


@pytest.mark.parametrize(("how", "known"), [("dense", True), ("int8", False)])
def test_what_could_be_several_is_left_out_unless_its_weights_tell(mil, tmp_path, how, known):
    """Downstream differs, so query, key and value are told apart by their weights alone."""

    def body(how, joined):
        def make(x):
            mb = mil.mb
            rows = [mb.linear(x=x, weight=held(mb, weight(n), how), name=f"row_{n}") for n in range(3)]
            made = mb.concat(values=rows, axis=1) if joined else mb.add(x=mb.add(x=rows[0], y=rows[1]), y=rows[2])
            return mb.reduce_sum(x=made, axes=[1], keep_dims=True, name="out")

        return make

    found = matched(
        mil.write(tmp_path / "a.mlpackage", {"x": X}, body("dense", True)),
        mil.write(tmp_path / "b.mlpackage", {"x": X}, body(how, False)),
    )
    rows = {f"row_{n}" for n in range(3)}
    if known:
        assert {name: found.of[name] for name in rows} == {name: name for name in rows}
    else:
        assert rows == {*found.ambiguous} and "3 that could be several of the other's" in str(found)


def test_a_stack_with_one_layer_less_is_matched_by_its_weights(mil, tmp_path):
    """From the output alone the last layers would be paired, from the input the first."""
    scales = [RNG.standard_normal(16).astype(np.float16) for _ in range(4)]

    def body(kept):
        def make(x):
            mb = mil.mb
            for n in kept:
                norm = mb.layer_norm(x=x, axes=[-1], gamma=scales[n], name=f"norm_{n}")
                x = mb.add(x=x, y=mb.linear(x=norm, weight=weight(n), name=f"ffn_{n}"), name=f"layer_{n}")
            return mb.relu(x=x, name="out")

        return make

    found = matched(
        mil.write(tmp_path / "a.mlpackage", {"x": X}, body([0, 1, 2, 3])),
        mil.write(tmp_path / "b.mlpackage", {"x": X}, body([0, 1, 3])),
    )
    names = [f"{kind}_{n}" for n in (0, 1, 3) for kind in ("norm", "ffn", "layer")] + ["out"]
    assert found.of == {name: name for name in names}


def test_casts_and_quantised_activations_are_looked_through(mil, tmp_path):
    def body(half):
        def make(x):
            mb = mil.mb
            y = mb.tanh(x=mb.cast(x=x, dtype="fp16") if half else x, name="a")
            if half:
                scale = np.float16(1 / 127)
                y = mb.dequantize(input=mb.quantize(input=y, scale=scale, output_dtype="int8"), scale=scale)
            y = mb.exp(x=y, name="b")
            return mb.cast(x=y, dtype="fp32", name="out") if half else mb.identity(x=y, name="out")

        return make

    x = X.astype(np.float32)
    wide, half = (mil.write(tmp_path / f"{n}.mlpackage", {"x": x}, body(n)) for n in (False, True))
    found = matched(wide, half)
    assert found.of == {"a": "a", "b": "b"} and not found.alone
    seen = {
        item.name: item.drift
        for item in trace.compare_values(reference.load(wide), reference.load(half), {"x": x}).seen
    }
    assert 0 < seen["a"] < 1e-3 < seen["b"] < 0.02
