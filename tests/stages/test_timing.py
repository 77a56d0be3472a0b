"""Taking samples, with a clock of our own; verdicts about them."""

import gc

import pytest

from ane_sweep.worker.timing import sampling, stability
from ane_sweep.worker.timing.sampling import Samples


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
    taken = sampling.measure(clock.work, clock=clock, warmup=2, samples=3, max_seconds=100)
    assert (taken.first_s, taken.warmup_s, taken.steady_s) == (9, [3, 2], [1, 1.5, 1.25])
    assert clock.calls == 6


@pytest.mark.parametrize(("max_seconds", "warm", "steady"), [(100, 5, 10), (8, 5, 2), (4, 3, 1), (0, 0, 1)])
def test_no_call_begins_after_the_deadline_but_one_sample_is_always_taken(max_seconds, warm, steady):
    clock = Clock([1] * 99)
    taken = sampling.measure(clock.work, clock=clock, warmup=5, samples=10, max_seconds=max_seconds)
    assert (len(taken.warmup_s), len(taken.steady_s)) == (warm, steady)


@pytest.mark.parametrize(
    ("check", "first", "steady", "calls"), [(True, 9, [9], 1), (False, 9, [2], 2), (True, 7, [2], 3)]
)
def test_a_first_call_that_takes_all_seconds_of_a_check_is_its_sample(check, first, steady, calls):
    clock = Clock([first, 2, 2])
    taken = sampling.measure(clock.work, clock=clock, warmup=1, samples=1, max_seconds=8, check=check)
    assert (taken.first_s, taken.steady_s, clock.calls) == (first, steady, calls)
    assert len(taken.starts) == calls


def test_the_garbage_collector_rests_meanwhile():
    seen = []
    sampling.measure(lambda: seen.append(gc.isenabled()), clock=lambda: 0.0, warmup=1, samples=1, max_seconds=1)
    assert seen == [False] * 3 and gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        sampling.measure(lambda: 1 / 0, clock=lambda: 0.0, warmup=1, samples=1, max_seconds=1)
    assert gc.isenabled()


def test_short_calls_are_looped_until_a_sample_is_long_against_the_clock():
    clock = Clock([0.25] * 100)
    taken = sampling.measure(clock.work, clock=clock, warmup=1, samples=3, max_seconds=100, tick_s=0.001)
    assert taken.loops == 4 and clock.calls == 1 + 1 + 3 * 4
    assert taken.steady_s == [0.25] * 3 and taken.warmup_s == [0.25]
    assert (
        sampling.choose_loops(1.0, 0.001) == 1
        and sampling.choose_loops(0.0, 0.001) == 1000
        and sampling.choose_loops(1, 0) == 1
    )


def test_the_tick_of_a_clock():
    steps = iter([0, 0, 5, 5, 7, 7, 7, 10])
    assert sampling.measure_tick(lambda: next(steps), reads=7) == 2
    assert sampling.measure_tick(lambda: 3.0) == 0


def test_one_call_after_a_pause_comes_last_even_beyond_the_deadline():
    clock, slept = Clock([1, 1, 1, 8]), []
    taken = sampling.measure(
        clock.work,
        clock=clock,
        warmup=1,
        samples=5,
        max_seconds=3,
        idle_s=2,
        sleep=lambda s: slept.append((s, clock.calls)),
    )
    assert (len(taken.steady_s), taken.after_idle_s, taken.idle_s) == (1, 8, 2) and slept == [(2, 3)]


def test_the_runtimes_own_figure_is_asked_after_each_steady_call():
    clock, said = Clock([1] * 9), iter([3.0, None, 5.0])
    taken = sampling.measure(clock.work, clock=clock, warmup=2, samples=3, max_seconds=99, native=lambda: next(said))
    assert taken.native_s == [0.003, 0.005]


def verdicts(*steady: float) -> list[str]:
    return [note.split(":")[0] for note in stability.list_notes(Samples(1, [], list(steady)))]


FASTER, SLOWER = "the samples were still getting faster", "the samples were getting slower"
FAR = "far outliers among the samples"


@pytest.mark.parametrize(
    ("steady", "expected"),
    [
        ([1, 1.01, 0.99, 1, 1.02, 0.98, 1, 1.01, 1], []),
        ([2, 1.9, 1.8, 1.5, 1.4, 1.3, 1.1, 1.05, 1], [FASTER]),
        ([1, 1.05, 1.1, 1.3, 1.4, 1.5, 1.8, 1.9, 2], [SLOWER]),
        ([1, 1.01, 0.99, 1, 1.02, 9, 0.98, 1, 1.01], [FAR]),
        ([1, 9], []),  # too few to say anything
        ([1] * 9, []),
    ],
)
def test_verdicts(steady, expected):
    assert verdicts(*steady) == expected
