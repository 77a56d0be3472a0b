"""Stage latency: what is measured with a clock of our own, and the statistics to the last digit."""

import gc
import json
import resource

import numpy as np
import pytest

from ane_sweep.errors import StageError, Unavailable
from ane_sweep.stages import _statistics, latency


class Clock:
    """Time stands still but for what calls take."""

    def __init__(self, durations):
        self.now, self.durations, self.calls = 0.0, iter(durations), 0

    def __call__(self):
        return self.now

    def work(self):
        self.calls += 1
        self.now += next(self.durations)


def test_first_warm_up_and_steady_are_kept_apart():
    clock = Clock([9, 3, 2, 1, 1.5, 1.25])
    taken = latency.measure(clock.work, clock=clock, warmup=2, samples=3, max_seconds=100)
    assert (taken.first_s, taken.warmup_s, taken.steady_s) == (9, [3, 2], [1, 1.5, 1.25])
    assert clock.calls == 6


@pytest.mark.parametrize(("max_seconds", "warm", "steady"), [(100, 5, 10), (8, 5, 2), (4, 3, 1), (0, 0, 1)])
def test_no_call_begins_after_the_deadline_but_one_sample_is_always_taken(max_seconds, warm, steady):
    clock = Clock([1] * 99)
    taken = latency.measure(clock.work, clock=clock, warmup=5, samples=10, max_seconds=max_seconds)
    assert (len(taken.warmup_s), len(taken.steady_s)) == (warm, steady)


def test_the_garbage_collector_rests_meanwhile():
    seen = []
    latency.measure(lambda: seen.append(gc.isenabled()), clock=lambda: 0.0, warmup=1, samples=1, max_seconds=1)
    assert seen == [False] * 3 and gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        latency.measure(lambda: 1 / 0, clock=lambda: 0.0, warmup=1, samples=1, max_seconds=1)
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("samples", "q", "value"),
    [([3], 0.9, 3), ([1, 2], 0.5, 1.5), ([4, 1, 3, 2], 0.25, 1.75), ([1, 2, 3, 4, 5], 0.9, 4.6), ([1, 2, 3], 1, 3)],
)
def test_quantiles(samples, q, value):
    assert _statistics.quantile(samples, q) == pytest.approx(value, abs=1e-12)
    assert np.quantile(samples, q) == pytest.approx(value, abs=1e-12)


def test_summary():
    found = _statistics.summarise([10, 20, 30, 40, 100])
    assert (found.count, found.median, found.iqr) == (5, 30, 20)
    assert found.p90 == pytest.approx(76)
    with pytest.raises(ValueError, match="no samples"):
        _statistics.summarise([])


def test_unstable_beyond_a_quarter_of_the_median():
    assert _statistics.instability(_statistics.summarise([95, 100, 105])) is None
    verdict = _statistics.instability(_statistics.summarise([66, 100, 134]))
    assert verdict == "timing is unstable: the middle half of the samples spreads over more than 25% of their median"
    assert _statistics.instability(_statistics.summarise([0, 0, 0])) is None


def test_peak_memory_is_in_bytes_on_both_systems():
    raw = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert latency.peak_memory_bytes("darwin") >= raw
    assert latency.peak_memory_bytes("linux") >= 1024 * raw


@pytest.fixture
def reference_folder(tmp_path):
    folder = tmp_path / "reference"
    folder.mkdir()
    ids = np.arange(16, dtype=np.int32).reshape(2, 1, 8)
    np.savez(folder / "inputs.npz", input_ids=ids, valid=np.ones((2, 8), bool))
    return folder


def test_the_first_input_is_predicted(reference_folder, tmp_path):
    (found,) = latency.first_input(reference_folder).items()
    assert found[0] == "input_ids" and found[1].tolist() == [list(range(8))]
    np.savez(tmp_path / "inputs.npz", valid=np.ones((2, 8), bool))
    with pytest.raises(StageError, match="holds no inputs"):
        latency.first_input(tmp_path)


PARAMS = {
    "runtime": "torch_eager",
    "compute_units": None,
    "policy": {"warmup": 2, "samples": 5, "max_seconds": 20},
    "model": {
        "family": "gpt2",
        "task": "causal_lm",
        "arch": {"vocab_size": 60, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2},
    },
    "weights": {"kind": "random", "digest": "random:0", "seed": 0},
    "variant": "original",
    "seq_len": 8,
}


def test_the_stage(reference_folder, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    result = latency.run(PARAMS, {"reference": reference_folder}, out)
    figures = {entry["name"]: entry for entry in result.metrics}
    assert set(figures) == {
        *("latency_first_ms", "latency_median_ms", "latency_iqr_ms", "latency_p90_ms"),
        *("load_ms", "peak_memory_bytes"),
    }
    assert all(entry["kind"] == "measured" and entry["source"] == "torch_eager" for entry in figures.values())
    kept = json.loads((out / "samples.json").read_text())
    assert len(kept["warmup_s"]) == 2 and len(kept["steady_s"]) == 5
    assert figures["latency_first_ms"]["value"] == pytest.approx(1000 * kept["first_s"])
    assert figures["latency_median_ms"]["value"] == pytest.approx(1000 * sorted(kept["steady_s"])[2])
    assert result.realised["runtime"] == "torch_eager" and result.realised["samples"] == 5


def test_scatter_and_short_measurements_are_said(reference_folder):
    taken = latency.Samples(1.0, [1.0], [0.5, 1.0, 2.0])
    found = latency._result(taken, 0.0, {"runtime": "x"}, "x", PARAMS["policy"])
    assert found.realised["unstable"].startswith("timing is unstable")
    assert found.realised["cut_short"] == "3 of 5 samples in latency.max_seconds=20"


def test_a_runtime_that_this_host_lacks(reference_folder, tmp_path, monkeypatch):
    from ane_sweep.runtimes import coreml

    monkeypatch.setattr(coreml, "available", lambda: "needs macOS")
    with pytest.raises(Unavailable, match="runtime=coreml needs macOS"):
        latency.run({**PARAMS, "runtime": "coreml"}, {"reference": reference_folder}, tmp_path)
