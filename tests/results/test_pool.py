"""Several processes of one cell become one cell's figures, and lose nothing."""

import pytest

from ane_sweep.bridge.figures import Look, Metric, Timing
from ane_sweep.bridge.task import TaskResult
from ane_sweep.results.pool import in_vain, pooled


def result(number: int, median: float, *, memory: int = 5, unstable: str | None = None, samples: int = 3):
    said = {"unstable": unstable} if unstable else {}
    return TaskResult(
        "latency",
        "k",
        "ok",
        metrics=[
            Metric("latency_median_ms", median, "ms", source="x"),
            Metric("latency_first_ms", 10 * median, "ms", source="x"),
            Metric("latency_low_ms", median, "ms", source="x"),
            Metric("peak_memory_bytes", memory, "bytes", source="x"),
        ],
        realised={"runtime": "x", **said},
        timing=Timing(number, median, samples_ms=[median] * samples),
    )


def figures(results):
    return {metric.name: metric.value for metric in pooled(results)[0]}


def test_one_process_is_left_as_it_is():
    metrics, realised, timings = pooled([result(1, 4.0)])
    assert metrics == result(1, 4.0).metrics and realised == {"runtime": "x"} and len(timings) == 1
    assert pooled([]) == ([], {}, [])


def test_several_processes():
    found = figures([result(1, 4.0, memory=7), result(2, 5.0, memory=9), result(3, 4.5)])
    assert found["latency_median_ms"] == 4.5 and found["latency_first_ms"] == 45 and found["peak_memory_bytes"] == 9
    assert found["latency_processes"] == 3 and found["latency_between_ms"] == pytest.approx(0.5)
    assert found["latency_low_ms"] < 4 < 5 < found["latency_high_ms"]
    assert found["latency_p90_ms"] == pytest.approx(5.0) and "latency_p99_ms" not in found
    assert figures([result(n, 4.0, samples=50) for n in (1, 2)])["latency_p99_ms"] == 4.0
    assert [t.round for t in pooled([result(1, 4.0), result(2, 5.0)])[2]] == [1, 2]


def test_doubt_about_most_processes_or_about_their_agreement_is_kept():
    calm, shaky = result(1, 4.0), result(2, 4.0, unstable="timing is unstable: x")
    assert "unstable" not in pooled([calm, shaky, calm])[1]
    assert pooled([calm, shaky, shaky])[1]["unstable"] == "timing is unstable: x"
    assert pooled([calm, result(2, 5.5)])[1]["unstable"].startswith("processes disagree")


def timed(*in_vain):
    return [Timing(1, 1.0, gate=Look(in_vain=list(sentences))) for sentences in in_vain]


def test_a_median_that_rests_on_timings_of_a_busy_machine_deserves_doubt():
    busy, hot = "other programs were using the processor", "the machine was hot"
    assert in_vain(timed([busy])) == f"timed while {busy}"
    assert in_vain(timed([busy], [busy, hot], [])) == f"timed while {busy} and {hot} (2 of 3 processes)"
    assert in_vain(timed([busy], [])) == f"timed while {busy} (1 of 2 processes)"
    assert in_vain(timed([busy], [], [])) is None and in_vain([]) is None
    assert in_vain([Timing(1, 1.0), Timing(2, 1.0, gate=Look(False, doubts=[busy]))]) is None  # of earlier versions
