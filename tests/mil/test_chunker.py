"""Chunks compute the same bits as the whole, on graphs made to be awkward."""

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ane_sweep.errors import ChunkError
from ane_sweep.mil import chunker, graph, package
from ane_sweep.mil.chunker import ChunkRequest
from ane_sweep.mil.line import line_up, split

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 32)).astype(np.float16)


def weight(seed: int, dtype=np.float16) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((32, 32)) / 6).astype(dtype)


def check_all(source, tmp_path, predict, inputs, counts=(2, 3, 4, 8)) -> None:
    whole = predict([source], inputs)
    points = len(line_up(graph.load(source)).positions)
    for count in (n for n in counts if n <= points + 1):
        out = tmp_path / f"{source.stem}_{count}"
        out.mkdir()
        facts = chunker.chunk(source, out, ChunkRequest(count))
        assert len(facts["chunk_bytes"]) == count and len(facts["boundary_bytes"]) == count - 1
        found = predict(package.program_paths(out), inputs)
        assert list(found) == list(whole)
        for name in whole:
            assert found[name].dtype == whole[name].dtype
            np.testing.assert_array_equal(found[name], whole[name])
        assert computed(package.program_paths(out)) == computed([source]), "each op that computes occurs once"


def computed(paths) -> list[str]:
    """Names of the values that computing ops make, but for the casts added at boundaries."""
    names = [name for path in paths for op in split(graph.load(path))[0] for name in op.outputs]
    carried = {name for path in paths for name in graph.load(path).inputs if re.search("_as_(fp32|fp16|int8)$", name)}
    own = {re.sub("_as_[a-z0-9]+$", "", name) for name in carried}
    return sorted([*(name for name in names if name not in carried | own), *own])


@pytest.fixture
def awkward(mil):
    """Skips over layers, an early output that is used again, a weight used at both ends, a bool that crosses."""

    def body(x, y):
        mb = mil.mb
        shared = mb.const(val=weight(0))
        layer = first = mb.linear(x=x, weight=shared, name="first")
        early = mb.tanh(x=first, name="early")
        flag = mb.greater(x=first, y=y)
        for index in range(1, 5):
            layer = mb.add(x=mb.relu(x=mb.linear(x=layer, weight=weight(index))), y=first)
        picked = mb.select(cond=flag, a=layer, b=mb.mul(x=early, y=y))
        return mb.matmul(x=picked, y=shared, name="last"), early, mb.softmax(x=picked, axis=-1, name="soft")

    return body


@pytest.mark.parametrize("target", ["iOS16", "iOS18", "iOS26"])
def test_awkward_graph(mil, awkward, tmp_path, predict, target):
    inputs = {"x": X, "y": RNG.standard_normal((4, 32)).astype(np.float16)}
    source = mil.save(tmp_path / "model.mlpackage", inputs, awkward, target)
    check_all(source, tmp_path, predict, inputs)


@pytest.mark.parametrize(
    ("target", "dtype"), [("iOS15", "fp32"), ("iOS16", "fp16"), ("iOS18", "fp16"), ("iOS26", "int8")]
)
def test_a_bool_crosses_as_the_narrowest_feature_there_is(mil, tmp_path, predict, target, dtype):
    """As in an encoder of streams, whose mask is made at its start and read by every layer."""

    def body(x, y):
        mb = mil.mb
        mask = mb.greater(x=x, y=y, name="mask")
        for index in range(6):
            layer = mb.linear(x=x, weight=weight(index, np.float32))
            x = mb.select(cond=mask, a=layer, b=x)
        return mb.identity(x=x, name="last")

    inputs = {"x": X.astype(np.float32), "y": RNG.standard_normal((4, 32)).astype(np.float32)}
    source = mil.save(tmp_path / "model.mlpackage", inputs, body, target)
    check_all(source, tmp_path, predict, inputs, counts=(2, 5))
    facts = chunker.chunk(source, tmp_path / "cut", ChunkRequest(3))
    assert max(facts["chunk_bytes"]) == sum(facts["chunk_bytes"]) / 3 and "notes" not in facts
    second = graph.load(tmp_path / "cut" / package.chunk_name(1))
    assert second.tensor_type(f"mask_as_{dtype}").dtype == dtype
    size = {"fp32": 4, "fp16": 2, "int8": 1}[dtype]
    assert facts["boundary_bytes"] == [X.size * (4 + size)] * 2


def test_an_uneven_cut_is_said_with_its_reason(mil, tmp_path):
    def body(x):
        x = mil.mb.linear(x=x, weight=np.ones((2048, 32), np.float16))
        for _ in range(3):
            x = mil.mb.linear(x=x, weight=np.ones((4, x.shape[-1]), np.float16))
        return mil.mb.linear(x=x, weight=np.ones((4, 4), np.float16))

    source = mil.save(tmp_path / "m.mlpackage", {"x": X}, body)
    facts = chunker.chunk(source, tmp_path / "cut", ChunkRequest(4))
    (said,) = facts["notes"]
    assert said.startswith(f"uneven: the largest of 4 chunks has {max(facts['chunk_bytes'])} bytes of weights, 3.")
    assert "one tensor has that many" in said


def test_inputs_come_again_and_skips_do_not_pass_through(mil, tmp_path):
    def body(x, y):
        mb = mil.mb
        a = mb.linear(x=x, weight=weight(0), name="a")
        b = mb.linear(x=a, weight=weight(1), name="b")
        c = mb.linear(x=b, weight=weight(2), name="c")
        return mb.add(x=mb.add(x=c, y=a), y=y, name="d")

    source = mil.save(tmp_path / "model.mlpackage", {"x": X, "y": X}, body)
    line = line_up(graph.load(source))
    first, second, third = chunker.split_at(line, [1, 2])
    assert (first.inputs, first.outputs) == (["x"], ["a"])
    assert (second.inputs, second.outputs) == (["a"], ["b"])
    assert (third.inputs, third.outputs) == (["y", "a", "b"], ["d"])


def test_a_shared_weight_is_written_into_both(mil, tmp_path):
    def body(x):
        mb = mil.mb
        shared = mb.const(val=weight(0))
        return mb.linear(x=mb.relu(x=mb.linear(x=x, weight=shared)), weight=shared)

    source = mil.save(tmp_path / "model.mlpackage", {"x": X}, body)
    facts = chunker.chunk(source, tmp_path, ChunkRequest(2))
    assert facts["chunk_bytes"] == [2048 + 64, 2048 + 64], "the weight and a bias of zeros"


def test_ops_on_constants_alone_follow_their_users(mil, tmp_path, predict):
    def body(x):
        mb = mil.mb
        turned = mb.transpose(x=mb.const(val=weight(0)), perm=(1, 0))
        x = mb.matmul(x=x, y=turned)
        return mb.matmul(x=mb.tanh(x=x), y=turned)

    source = mil.save(tmp_path / "model.mlpackage", {"x": X}, body)
    line = line_up(graph.load(source))
    assert [op.type for op in line.compute] == ["matmul", "tanh", "matmul"] and line.positions == [1, 2]
    check_all(source, tmp_path, predict, {"x": X})


def test_too_many_chunks(mil, tmp_path):
    source = mil.save(tmp_path / "model.mlpackage", {"x": X}, lambda x: mil.mb.tanh(x=mil.mb.relu(x=x)))
    with pytest.raises(ChunkError, match=r"chunks=3: model\.mlpackage has 1 cut points, so it makes at most 2 chunks"):
        chunker.chunk(source, tmp_path, ChunkRequest(3))
    with pytest.raises(ChunkError, match="chunks=0"):
        chunker.chunk(source, tmp_path, ChunkRequest(0))


def test_one_chunk_is_a_copy(mil, tmp_path, predict):
    source = mil.save(tmp_path / "model.mlpackage", {"x": X}, lambda x: mil.mb.relu(x=x, name="y"))
    chunker.chunk(source, tmp_path, ChunkRequest(1))
    (copy,) = [tmp_path / "chunk_01.mlpackage"]
    np.testing.assert_array_equal(predict([copy], {"x": X})["y"], predict([source], {"x": X})["y"])


def test_the_same_program_gives_the_same_files(mil, awkward, tmp_path):
    source = mil.save(tmp_path / "model.mlpackage", {"x": X, "y": X}, awkward)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        chunker.chunk(source, tmp_path / name, ChunkRequest(3))
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert len(files) == 9
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_graphs(mil, tmp_path_factory, predict, data):
    """Random unary, binary and weighted ops with any earlier value as operand, and several outputs."""
    steps = data.draw(st.integers(4, 14))
    plan = []
    for step in range(steps):
        kind = data.draw(st.sampled_from(["tanh", "relu", "softmax", "add", "mul", "linear", "linear"]))
        pick = st.integers(max(0, step - 3), step + 1)
        plan.append((kind, data.draw(pick), data.draw(pick), data.draw(st.integers(0, 3))))
    extra = data.draw(st.sets(st.integers(2, steps), max_size=2))

    def body(x, y):
        mb, values, shared = mil.mb, [x, y], {}
        for kind, left, right, seed in plan:
            if kind in ("add", "mul"):
                values.append(getattr(mb, kind)(x=values[left], y=values[right]))
            elif kind == "linear":
                shared[seed] = shared.get(seed) or mb.const(val=weight(seed))
                values.append(mb.linear(x=values[left], weight=shared[seed]))
            else:
                given = {"axis": -1} if kind == "softmax" else {}
                values.append(getattr(mb, kind)(x=values[left], **given))
        return tuple(values[index] for index in sorted({*extra, steps + 1}))

    tmp_path = tmp_path_factory.mktemp("random")
    inputs = {"x": X, "y": X[::-1].copy()}
    source = mil.save(tmp_path / "model.mlpackage", inputs, body)
    check_all(source, tmp_path, predict, inputs)
