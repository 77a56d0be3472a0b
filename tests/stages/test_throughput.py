"""Many inputs in a row: what is timed, in which order, and what the figure is called."""

import gc
from types import SimpleNamespace

import numpy as np
import pytest

from ane_sweep.errors import StageError, Unavailable
from ane_sweep.worker import runtimes
from ane_sweep.worker.stages import throughput


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_only_the_loop_is_timed_and_inputs_come_in_turn():
    clock, seen = Clock(), []

    def predict(values):
        clock.now += 0.25
        seen.append((values, gc.isenabled()))

    assert throughput.time_predictions(predict, ["a", "b", "c"], 5, clock) == pytest.approx(1.25)
    assert [values for values, _ in seen] == ["a", "b", "c", "a", "b", "c", "a", "b"]
    assert [collecting for _, collecting in seen] == [True] * 3 + [False] * 5 and gc.isenabled()


def test_garbage_collection_comes_back_after_a_failure():
    def predict(values):
        if not gc.isenabled():
            raise StageError("boom")

    with pytest.raises(StageError, match="boom"):
        throughput.time_predictions(predict, ["a"], 2, Clock())
    assert gc.isenabled()


def stage(tmp_path, monkeypatch, runtime, count=10):
    np.savez(tmp_path / "inputs.npz", input_ids=np.arange(12).reshape(3, 1, 4), valid=np.ones((3, 4), bool))
    monkeypatch.setattr(runtimes, "get", lambda name: runtime)
    return throughput.run({"runtime": "reference", "throughput": count}, {"reference": tmp_path}, tmp_path)


def test_figures_and_what_was_done(tmp_path, monkeypatch):
    calls = []
    loaded = SimpleNamespace(batch=1,
        predict=lambda values: calls.append(int(values["input_ids"][0, 0])), realised={"runtime": "reference"},
        reset=lambda: calls.append("reset"), prepare=lambda values: {**values, "prepared": True},
    )  # fmt: skip
    runtime = SimpleNamespace(available=lambda: None, load=lambda params, inputs: loaded)
    result = stage(tmp_path, monkeypatch, runtime)
    assert calls[: 2 * 4] == ["reset", 0, "reset", 4, "reset", 8, "reset", 0], "each input is a sequence of its own"
    assert result.realised["throughput"] == {"inputs": 10, "distinct": 3, "order": "repeated in turn", "warmup": 3}
    rate, total = (m for m in result.metrics)
    assert (rate.name, rate.unit, rate.kind) == ("throughput_per_s", "1/s", "measured")
    assert rate.value * total.value == pytest.approx(10)


def test_a_host_without_the_runtime(tmp_path, monkeypatch):
    with pytest.raises(Unavailable, match="runtime=reference needs a Mac"):
        stage(tmp_path, monkeypatch, SimpleNamespace(available=lambda: "needs a Mac"))
