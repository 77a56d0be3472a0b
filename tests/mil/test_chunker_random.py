"""Random programs with several outputs, shared and compressed weights, and states: any number of chunks, the same bits."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ane_sweep.mil import chunker, cuts, graph, package, same
from ane_sweep.mil.line import line_up, split
from ane_sweep.worker.runtimes.reference import ReferenceRuntime

WIDTH = 32
X = np.random.default_rng(0).standard_normal((4, WIDTH)).astype(np.float16)
KINDS = ("tanh", "softmax", "add", "mul", "linear", "linear", "packed", "read", "update", "update")


@st.composite
def programs(draw):
    """[(kind, first operand, second operand, weight or state)], and which values are outputs early."""
    steps = draw(st.integers(6, 16))
    ops = []
    for step in range(steps):
        near = st.integers(max(0, step - 3), step + 1)
        ops.append((draw(st.sampled_from(KINDS)), draw(near), draw(near), draw(st.integers(0, 2))))
    return ops, sorted(draw(st.sets(st.integers(2, steps), max_size=2)) | {steps + 1})


def body_of(mil, ops, outputs):
    def body(x, y, *states):
        mb, values, weights = mil.mb, [x, y], {}
        for kind, left, right, which in ops:
            x = values[left]
            if kind in ("add", "mul"):
                made = getattr(mb, kind)(x=x, y=values[right])
            elif kind in ("linear", "packed"):
                key = (kind, which)
                weights[key] = weights.get(key) or (dense if kind == "linear" else packed)(mb, which)
                made = mb.linear(x=mb.tanh(x=x), weight=weights[key])
            elif kind == "read":
                made = mb.add(x=mb.read_state(input=states[which]), y=x)
            elif kind == "update":
                made = mb.coreml_update_state(state=states[which], value=mb.mul(x=x, y=np.float16(0.5)))
            else:
                made = mb.softmax(x=x, axis=-1) if kind == "softmax" else mb.tanh(x=x)
            values.append(made)
        return tuple(mb.identity(x=values[index]) for index in outputs)

    return body


def dense(mb, seed):
    return mb.const(val=(np.random.default_rng(seed).standard_normal((WIDTH, WIDTH)) / 6).astype(np.float16))


def packed(mb, seed):
    """Four bits a weight, through a table."""
    random = np.random.default_rng(seed)
    indices = random.integers(0, 16, (WIDTH, WIDTH)).astype(np.uint8)
    table = (random.standard_normal((1, 1, 16, 1)) / 6).astype(np.float16)
    from coremltools.converters.mil.mil import types

    return mb.constexpr_lut_to_dense(indices=indices.astype(types.nptype_from_builtin(types.uint4)), lut=table)


def random_program(mil, folder, made):
    ops, outputs = made
    used = sorted({which for kind, _, _, which in ops if kind in ("read", "update")})
    ops = [(*op[:3], used.index(op[3]) if op[0] in ("read", "update") else op[3]) for op in ops]
    states = {f"state_{index}": X.shape for index in used}  # coremltools 9.0 fails on a state that nothing uses
    return mil.save(folder / "model.mlpackage", {"x": X, "y": X}, body_of(mil, ops, outputs), states=states)


def steps_of(paths, count=3):
    """Outputs of some predictions in a row, states going on."""
    runtime = ReferenceRuntime(list(paths))
    runtime.reset()
    return [runtime.predict({"x": X * np.float16(step + 1), "y": X[::-1].copy()}) for step in range(count)]


def check(source, out) -> int:
    """Every number of chunks that is asked for and possible; returns how many there were."""
    whole = steps_of([source])
    line = line_up(graph.load(source))
    counts = [n for n in (2, 3, 4, 8) if n <= len(line.positions) + 1]
    for count in counts:
        folder = out / str(count)
        folder.mkdir()
        chunker.chunk(source, folder, chunker.ChunkRequest(count))
        paths = package.program_paths(folder)
        assert same.find_difference(package.read(source), [package.read(path) for path in paths]) is None
        for made, expected in zip(steps_of(paths), whole, strict=True):
            assert list(made) == list(expected)
            for name in expected:
                np.testing.assert_array_equal(made[name], expected[name], strict=True)
        programs = [graph.load(path) for path in paths]
        states = [name for p in programs for name in p.inputs if p.tensor_type(name) is None]
        assert sorted(states) == sorted(name for name in line.program.inputs if line.program.tensor_type(name) is None)
        kept = [name for p in programs for op in split(p)[0] for name in op.outputs]
        assert sorted(kept) == sorted(name for op in line.compute for name in op.outputs), "no op twice, none lost"
    return len(counts)


CALM = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=3, deadline=None, suppress_health_check=CALM, derandomize=True)
@given(made=programs())
def test_some(mil, tmp_path_factory, made):
    folder = tmp_path_factory.mktemp("random")
    check(random_program(mil, folder, made), folder)


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=CALM)
@given(made=programs())
def test_many(mil, tmp_path_factory, made):
    folder = tmp_path_factory.mktemp("random")
    check(random_program(mil, folder, made), folder)


def test_a_state_keeps_all_its_uses_in_one_chunk(mil, tmp_path):
    """Two states, the uses of the first spread over most of the program: cuts are left before, behind and nowhere else."""
    ops = [
        ("linear", 0, 0, 0), ("update", 2, 0, 0), ("linear", 3, 0, 1), ("linear", 4, 0, 2), ("read", 5, 0, 0),
        ("linear", 6, 0, 0), ("update", 7, 0, 1), ("linear", 8, 0, 1), ("update", 9, 0, 2), ("linear", 10, 0, 2),
    ]  # fmt: skip
    source = random_program(mil, tmp_path, (ops, [len(ops) + 1]))
    line = line_up(graph.load(source))
    uses = [place for place, names in enumerate(line.reads) if "state_0" in names]
    assert len(uses) >= 2 and not [p for p in line.positions if uses[0] < p <= uses[-1]]
    assert [p for p in line.positions if p <= uses[0]] and [p for p in line.positions if p > uses[-1]]
    assert check(source, tmp_path) == 4


def test_compressed_weights_count_as_they_are_stored(mil, tmp_path):
    """Three layers of four bits stand beside one that is dense."""
    ops = [("packed", 0, 0, n % 3) for n in range(3)] + [("linear", 4, 0, 0)]
    ops = [(kind, index + 1 if index else 0, 0, which) for index, (kind, _, _, which) in enumerate(ops)]
    source = random_program(mil, tmp_path, (ops, [len(ops) + 1]))
    line = line_up(graph.load(source))
    (first, second) = cuts.weight_bytes(line, cuts.choose(line, 2))
    payload, whole, bias = WIDTH * WIDTH // 2 + 32, 2 * WIDTH * WIDTH, 2 * WIDTH
    assert (first, second) == (3 * (payload + bias), whole + bias)
