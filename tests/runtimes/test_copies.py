"""Copies of a program: loaded in the order asked for, timed one by one, told apart by their weights."""

from types import SimpleNamespace

import numpy as np
import pytest

from ane_sweep import reference as _reference
from ane_sweep.errors import StageError
from ane_sweep.mil import chunker, package, pipeline
from ane_sweep.worker.runtimes import _copies, reference
from ane_sweep.worker.timing.sampling import Samples

X = np.random.default_rng(0).standard_normal((4, 96)).astype(np.float16)


class Clock:
    """A clock that others move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def scripted(clock: Clock, seconds: list[float]) -> SimpleNamespace:
    """A runtime whose n-th program to be loaded takes seconds[n] a prediction, and 1 s to load."""
    opened: list[str] = []

    def load(params, inputs):
        clock.now += 1
        number = len(opened)
        opened.append(inputs["program"])

        def predict(values):
            clock.now += seconds[number]
            return {"y": number}

        return SimpleNamespace(
            realised={"runtime": "scripted"}, predict=predict, last_native_ms=None, prepare=lambda values: values
        )

    return SimpleNamespace(load=load, opened=opened)


@pytest.mark.parametrize(("order", "slow", "first"), [("forward", 3, 0), ("reverse", 1, 2)])
def test_the_last_to_be_loaded_is_the_one_that_shows(order, slow, first):
    clock = Clock()
    runtime = scripted(clock, [0.25, 0.25, 1.0])
    params = {"copies": {"count": 3, "kind": "identical", "order": order}}
    copies = _copies.load(runtime, params, {"program": "here"}, clock)
    assert copies.predict({}) == {"y": first}, "copy 1's outputs, whichever was loaded first"
    for _ in range(2):
        copies.predict({})
    found = {entry.name: entry.value for entry in copies.metrics("scripted")}
    assert [found[f"latency_copy_{n}_median_ms"] for n in (1, 2, 3)] == [1000 if n == slow else 250 for n in (1, 2, 3)]
    assert found["latency_copies_ratio"] == 4 and found["load_copy_2_ms"] == 1000
    assert copies.realised == {"runtime": "scripted", "copies": 3}


def test_samples_of_rounds_are_given_per_prediction():
    copies = _copies.Copies([SimpleNamespace(realised={})] * 4, [0.0] * 4, Clock())
    taken = copies.per_prediction(Samples(8.0, [4.0], [2.0, 6.0], after_idle_s=12.0))
    assert (taken.first_s, taken.warmup_s, taken.steady_s, taken.after_idle_s) == (2.0, [1.0], [0.5, 1.5], 3.0)


@pytest.fixture(scope="module")
def programs(mil, tmp_path_factory):
    """A program whose one weight fills more than one page, as a chain of two and as a pipeline."""
    whole, chain = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("chain")
    weights = [(np.random.default_rng(n).standard_normal((96, 96)) / 10).astype(np.float16) for n in range(2)]

    def body(x):
        first = mil.mb.tanh(x=mil.mb.linear(x=x, weight=weights[0]))
        return mil.mb.linear(x=first, weight=weights[1], name="y")

    mil.write(whole / "model.mlpackage", {"x": X}, body)
    chunker.chunk(whole / "model.mlpackage", chain, chunker.ChunkRequest(2))
    piped = tmp_path_factory.mktemp("pipeline")
    pipeline.merge(package.program_paths(chain), piped / "model.mlpackage")
    return {"whole": whole, "chain": chain, "pipeline": piped}


@pytest.mark.parametrize("form", ["whole", "chain", "pipeline"])
def test_different_copies_differ_in_every_page_and_hardly_in_what_they_compute(programs, form):
    source = programs[form]
    before = {path: path.read_bytes() for path in source.rglob("*.bin")}
    copies = _copies.load(
        reference, {"copies": {"count": 2, "kind": "different", "order": "forward"}}, {"program": source}
    )
    assert before == {path: path.read_bytes() for path in source.rglob("*.bin")}, "the artifact itself stays as it is"
    first, second = (one.predict({"x": X})["y"] for one in copies.loaded)
    assert not np.array_equal(first, second)
    np.testing.assert_allclose(first, second, atol=0.02)
    folders = [one.models[0].path.parent for one in copies.loaded]
    for path in before:
        one, two = (np.fromfile(folder / path.relative_to(source), np.uint8) for folder in folders)
        changed = np.flatnonzero(one != two)
        assert len(changed) >= len(one) // _copies.PAGE_BYTES, "no page of the weights is shared"


@pytest.mark.parametrize("kind", ["identical", "different"])
def test_smaller_copies_are_the_beginning_of_the_program(programs, kind):
    asked = {"count": 3, "kind": kind, "order": "reverse", "sizes": [0.5, 1]}
    copies = _copies.load(reference, {"copies": asked}, {"program": programs["whole"]})
    half, whole, again = (one.models[0] for one in copies.loaded)
    assert [[op.type for op in model.ops] for model in (half, whole)] == [
        ["linear", "tanh"],
        ["linear", "tanh", "linear"],
    ]
    small, large, same = copies.realised["copies_bytes"]
    assert small == same and 96 * 96 * 2 < large - small < 96 * 96 * 2 + 4096
    assert (half.path == again.path) == (kind == "identical")
    (made,) = half.predict({"x": X}).values()
    (first,) = _reference.load(programs["chain"] / "chunk_01.mlpackage").predict({"x": X}).values()
    np.testing.assert_allclose(made, np.tanh(first.astype(np.float32)), atol=1e-3 if kind == "identical" else 0.02)


def test_without_floating_weights_copies_cannot_differ(mil, tmp_path):
    mil.write(tmp_path / "model.mlpackage", {"x": X}, lambda x: mil.mb.relu(x=x, name="y"))
    with pytest.raises(StageError, match="copies_kind=identical"):
        _copies.load(
            reference, {"copies": {"count": 2, "kind": "different", "order": "forward"}}, {"program": tmp_path}
        )
