"""Stage latency: what it leaves and says; the statistics to the last digit."""

import json
import subprocess
import sys

import numpy as np
import pytest

from ane_sweep.bridge import protocol
from ane_sweep.errors import StageError, Unavailable
from ane_sweep.stats import samples as statistics
from ane_sweep.worker.feeds.arrays import Inputs
from ane_sweep.worker.stages import latency
from ane_sweep.worker.timing import stability
from ane_sweep.worker.timing.sampling import Samples


@pytest.mark.parametrize(
    ("samples", "q", "value"),
    [([3], 0.9, 3), ([1, 2], 0.5, 1.5), ([4, 1, 3, 2], 0.25, 1.75), ([1, 2, 3, 4, 5], 0.9, 4.6), ([1, 2, 3], 1, 3)],
)
def test_quantiles(samples, q, value):
    assert statistics.quantile(samples, q) == pytest.approx(value, abs=1e-12)
    assert np.quantile(samples, q) == pytest.approx(value, abs=1e-12)


def test_summary():
    found = statistics.summarise([10, 20, 30, 40, 100])
    assert (found.count, found.median, found.iqr) == (5, 30, 20)
    assert found.p90 == pytest.approx(76)
    with pytest.raises(ValueError, match="no samples"):
        statistics.summarise([])


def test_the_99th_percentile_needs_a_hundred_samples():
    assert statistics.summarise(range(99)).p99 is None
    assert statistics.summarise(range(101)).p99 == pytest.approx(99)


def test_the_bootstrap_interval_covers_what_it_says_and_is_the_same_each_time():
    draws = np.random.default_rng(1).exponential(size=(200, 25))
    hit = sum(low <= np.log(2) <= high for low, high in map(statistics.bootstrap, draws.tolist()))
    assert 176 <= hit <= 199  # of 200 at 95 %: the percentile bootstrap of a median is known to be about right
    assert statistics.bootstrap([3.0]) == (3.0, 3.0)
    assert statistics.bootstrap([1, 2, 5, 9]) == statistics.bootstrap([1, 2, 5, 9])


def test_unstable_beyond_a_quarter_of_the_median():
    assert stability.describe_instability(statistics.summarise([95, 100, 105])) is None
    verdict = stability.describe_instability(statistics.summarise([66, 100, 134]))
    assert verdict == "timing is unstable: the middle half of the samples spreads over more than 25% of their median"
    assert stability.describe_instability(statistics.summarise([0, 0, 0])) is None


def test_peak_memory_is_in_bytes_and_a_small_child_of_a_big_parent_is_small():
    held = bytearray(b"x" * (200 << 20))
    code = "from ane_sweep.bridge import protocol; print(protocol.peak_bytes())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 5 << 20 < int(said) < len(held) // 2 < protocol.peak_bytes()


@pytest.fixture
def reference_folder(tmp_path):
    folder = tmp_path / "reference"
    folder.mkdir()
    ids = np.arange(16, dtype=np.int32).reshape(2, 1, 8)
    np.savez(folder / "inputs.npz", input_ids=ids, valid=np.ones((2, 8), bool))
    return folder


def test_the_first_input_is_predicted(reference_folder, tmp_path):
    (found,) = Inputs(reference_folder)[0].items()
    assert found[0] == "input_ids" and found[1].tolist() == [list(range(8))]
    np.savez(tmp_path / "inputs.npz", valid=np.ones((2, 8), bool))
    with pytest.raises(StageError, match="holds no inputs"):
        Inputs(tmp_path)


PARAMS = {
    "runtime": "torch_eager",
    "compute_units": None,
    "policy": {"warmup": 2, "samples": 5, "max_seconds": 20, "idle_s": 0.001},
    "round": 2,
    "model": {
        "family": "gpt2",
        "task": "causal_lm",
        "arch": {"vocab_size": 60, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2},
    },
    "weights": {"kind": "random", "digest": "random:0", "seed": 0},
    "variant": "original",
    "seq_len": 8,
}


def test_the_stage(reference_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "10000")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    out = tmp_path / "out"
    out.mkdir()
    result = latency.run(PARAMS, {"reference": reference_folder}, out)
    figures = {entry.name: entry for entry in result.metrics}
    assert set(figures) == {
        *(f"latency_{name}_ms" for name in ("first", "early", "median", "iqr", "p90", "low", "high", "after_idle")),
        *("load_ms", "peak_memory_bytes"),
    }
    assert all(entry.kind == "measured" and entry.source == "torch_eager" for entry in figures.values())
    kept = json.loads((out / "samples.json").read_text())
    assert len(kept["warmup_s"]) == 2 and len(kept["steady_s"]) == 5
    assert figures["latency_first_ms"].value == pytest.approx(1000 * kept["first_s"])
    assert figures["latency_median_ms"].value == pytest.approx(1000 * sorted(kept["steady_s"])[2])
    assert figures["latency_low_ms"].value <= figures["latency_median_ms"].value
    assert result.realised["runtime"] == "torch_eager" and result.realised["samples"] == 5
    assert result.realised["threads"] > 0 and result.realised["thread_wait"] == "GOMP_SPINCOUNT=10000"
    timing = result.timing
    assert (timing.round, len(timing.samples_ms), timing.idle_s) == (2, 5, 0.001)
    assert timing.samples_ms == pytest.approx([1000 * s for s in kept["steady_s"]], rel=1e-5)


def test_only_what_sleeps_is_timed_after_a_pause_unless_asked():
    assert latency.choose_pause(None, "coreml") == 2 and latency.choose_pause(None, "x") == 0
    assert latency.choose_pause(0, "coreml") == 0 and latency.choose_pause(3, "x") == 3


def test_scatter_and_short_measurements_are_said(reference_folder):
    taken = Samples(1.0, [1.0], [0.5, 1.0, 2.0])
    found = latency._report(taken, 0.0, {"runtime": "x"}, latency.Params.read({**PARAMS, "runtime": "x"}))
    assert found.realised["unstable"].startswith("timing is unstable")
    assert found.realised["cut_short"] == "3 of 5 samples in latency.max_seconds=20"


def test_what_the_runtime_itself_says_is_written_down():
    taken = Samples(1.0, [], [0.004, 0.005, 0.006], native_s=[0.001, 0.003, 0.002])
    found = latency._report(taken, 0.0, {}, latency.Params.read(PARAMS))
    assert {m.name: m.value for m in found.metrics}["latency_native_median_ms"] == pytest.approx(2)


def test_a_runtime_that_this_host_lacks(reference_folder, tmp_path, monkeypatch):
    from ane_sweep.machine import apple

    monkeypatch.setattr(apple, "no_coreml", lambda: "needs macOS")
    with pytest.raises(Unavailable, match="runtime=coreml needs macOS"):
        latency.run({**PARAMS, "runtime": "coreml"}, {"reference": reference_folder}, tmp_path)
