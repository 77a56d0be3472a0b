"""Inside a prediction: parts, gaps and the rest of a sample add up to the whole, and are noted only while they are asked for."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ane_sweep.stats.samples import quantile
from ane_sweep.worker.runtimes._copies import Copies
from ane_sweep.worker.runtimes._runtime import Runtime
from ane_sweep.worker.timing import parts, sampling


class Clock:
    """Moved by others; every reading is counted."""

    now, readings = 0.0, 0

    def __call__(self) -> float:
        self.readings += 1
        return self.now


class Chain(Runtime):
    """Programs of scripted seconds, each with a gap ahead of it."""

    def __init__(self, clock: Clock, steps: list[tuple[float, float]]):
        self.clock, self.steps, self.parts, self.realised = clock, steps, len(steps), {}

    def predict(self, inputs):
        for gap, seconds in self.steps:
            self.clock.now += gap
            if self.marks is not None:
                self.marks.append(self.clock())
            self.clock.now += seconds
            if self.marks is not None:
                self.marks.append(self.clock())
        return {}


def measured(chain: Chain, clock: Clock, loops_tick: float = 0.0) -> sampling.Samples:
    return sampling.measure(
        lambda: chain.predict({}), clock=clock, warmup=2, samples=3, max_seconds=1e9, idle_s=1, tick_s=loops_tick,
        sleep=lambda _: None,
    )  # fmt: skip


steps = st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 1)), min_size=2, max_size=5)


@settings(max_examples=50, deadline=None)
@given(steps=steps, tick=st.sampled_from([0.0, 0.01]))
def test_parts_gaps_and_rest_of_every_sample_are_the_whole(steps, tick):
    clock = Clock()
    chain = Chain(clock, steps)
    parts.start_marks(chain)
    taken = measured(chain, clock, tick)
    steady, calls = parts.collect_samples(chain, taken)
    assert len(steady) == 3 and len(calls) == 1 + 2 + 3 * taken.loops + 1 and chain.marks is None
    for sample, seconds in zip(steady, taken.steady_s, strict=True):
        assert sum(sample.parts) + sum(sample.gaps) + sample.rest == pytest.approx(1000 * seconds)
        assert sample.parts == pytest.approx([1000 * seconds for _, seconds in steps], abs=1e-6)
        assert sample.gaps == pytest.approx([1000 * gap for gap, _ in steps[1:]], abs=1e-6)


def test_the_200_ms_between_two_predictions_show():
    clock = Clock()
    chain = Chain(clock, [(0.0, 0.25), (0.2, 0.2)])
    parts.start_marks(chain)
    found = {
        m.name: m.value
        for m in parts.list_metrics("chunk", parts.collect_samples(chain, measured(chain, clock))[0], "x")
    }
    assert found == pytest.approx({
        "latency_gaps_median_ms": 200, "latency_chunk_1_median_ms": 250, "latency_chunk_2_median_ms": 200,
        "latency_gap_1_median_ms": 200,
    })  # fmt: skip


def test_two_readings_a_part_and_none_where_nobody_asks():
    clock = Clock()
    chain = Chain(clock, [(0, 1), (0, 1), (0, 1)])
    chain.predict({})
    assert clock.readings == 0
    parts.start_marks(chain)
    chain.predict({})
    assert clock.readings == 2 * 3
    alone = Chain(clock, [(0, 1)])
    parts.start_marks(alone)
    assert alone.marks is None, "a program in one piece has nothing to note"


def test_copies_note_their_parts_with_the_readings_that_they_take_anyway():
    clock = Clock()
    copies = Copies([Chain(clock, [(0, 1)]), Chain(clock, [(0, 3)])], [0.0, 0.0], clock)
    copies.predict({})
    before = clock.readings
    parts.start_marks(copies)
    copies.predict({})
    assert clock.readings == 2 * before and copies.marks == [4, 5, 5, 8] and copies.part == "copy"


def test_calls_that_are_not_all_there_give_no_figures():
    clock = Clock()
    chain = Chain(clock, [(0, 1), (0, 1)])
    parts.start_marks(chain)
    taken = measured(chain, clock)
    chain.marks = chain.marks[:-1]
    assert parts.collect_samples(chain, taken) == ([], []) and parts.list_metrics("chunk", [], "x") == []


def test_the_costliest_ops_are_named_with_their_share():
    times = [(f"op{n}", "linear", 1, 0.001) for n in range(70)] + [("logits", "linear", 2, 0.03)]
    found = parts.rank_costs(times, "reference")
    assert found["ops"][0] == {"op": "logits", "type": "linear", "chunk": 2, "share": 0.3}
    assert len(found["ops"]) == parts.COSTLY and parts.rank_costs([], "reference") == {}
    assert quantile([one["share"] for one in found["ops"]], 0.5) == 0.01


def test_samples_know_when_they_began():
    clock = Clock()
    chain = SimpleNamespace(predict=lambda _: setattr(clock, "now", clock.now + 2))
    taken = measured(chain, clock)
    assert taken.starts == [0, 2, 4, 6, 8, 10, 12] and taken.after_idle_s == 2
