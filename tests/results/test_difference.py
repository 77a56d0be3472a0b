"""The one place that calls two timings different: exact values of the statistics, false alarms, and what it refuses."""

import math
import random

import pytest

from ane_sweep.bridge.figures import Timing
from ane_sweep.results.difference import compare_rounds, compare_timings, figures_by_round
from ane_sweep.stats.student import t_quantile, t_tail


def side(*medians: float) -> dict[int, float]:
    return dict(enumerate(medians, 1))


def test_welch_against_a_worked_example():
    """Logs with means 0 and 0.1, both with standard deviation 0.02 over 4: t = 0.1 / (0.02 / sqrt(2)) at 6 degrees."""
    spread = [0.02 * math.sqrt(0.75) * sign for sign in (1, -1, 1, -1)]
    a, b = (side(*(math.exp(mean + s) for s in spread)) for mean in (0.0, 0.1))
    found = compare_rounds(a, b)
    assert found.ratio == pytest.approx(math.exp(0.1)) and found.percent == pytest.approx(10.517, abs=1e-3)
    assert found.p == pytest.approx(t_tail(0.1 / (0.02 / math.sqrt(2)), 6), rel=1e-9)
    assert found.verdict == "slower" and found.processes == (4, 4)
    reach = t_quantile(0.99, 6) * 0.02 / math.sqrt(2)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((0.1 - reach, 0.1 + reach))
    assert compare_rounds(b, a).verdict == "faster"


def test_a_process_that_met_a_busy_machine_does_not_blind_the_test():
    calm = [1, 1.01, 0.99, 1.02, 0.98, 1.01, 0.99]
    found = compare_rounds(side(*calm, 1.6), side(*(1.1 * value for value in calm), 1.1))
    assert found.verdict == "slower" and found.ratio == pytest.approx(1.1, abs=0.01)


def test_drift_that_hits_both_alike_cancels_only_in_pairs():
    drift = [1, 1.5, 2.2, 1.1, 3.0, 1.7]
    a, b = side(*drift), side(*(1.05 * d * wobble for d, wobble in zip(drift, (1, 1.01, 0.99, 1, 1.01, 0.99))))
    assert compare_rounds(a, b).verdict == "same"
    assert compare_rounds(a, b, paired=True).verdict == "slower"


@pytest.mark.slow
def test_three_processes_a_side_raise_no_more_false_alarms_and_find_half_as_much_again():
    """The default. Log-normal processes of 3.5 % scatter; in rounds of one sweep the machine shifts both alike by 5 %."""
    drawn = random.Random(1)
    for paired in (False, True):
        alarms, found = 0, 0
        for _ in range(1000):
            drift = [drawn.gauss(0, 0.05 if paired else 0) for _ in range(3)]
            a, b = ([process_of(d + drawn.gauss(0, 0.035)) for d in drift] for _ in range(2))
            alarms += compare_timings(timings(*a), timings(*b), paired=paired).verdict != "same"
            if not paired:
                slow = [[1.5 * sample for sample in samples] for samples in b]
                found += compare_timings(timings(*a), timings(*slow)).verdict == "slower"
        assert alarms <= 18, paired  # 10 expected at most
        assert paired or found >= 900


def test_few_processes_prove_nothing_and_the_answer_says_what_would():
    for sizes in ((1, 1), (1, 9), (2, 2)):
        found = compare_rounds(side(*[1.0] * sizes[0]), side(*[9.0] * sizes[1]))
        assert (found.verdict, found.p, found.low) == ("untested", None, None) and "latency.repeats=8" in found.why
    assert compare_rounds(side(1, 1), side(9, 9), paired=True).verdict == "untested"
    with pytest.raises(ValueError, match="without a process"):
        compare_rounds({}, side(1))


def test_equal_medians_are_no_proof_of_no_scatter():
    """Three processes that agree to the last digit: the clock's resolution still stands for their scatter."""
    found = compare_rounds(side(1, 1, 1), side(1.001, 1.001, 1.001))
    assert found.verdict == "same" and found.low < 1 < found.high
    assert compare_rounds(side(1, 1, 1), side(1, 1, 1)).p == 1


@pytest.mark.parametrize("paired", [False, True])
def test_false_alarms_and_power_of_the_test_itself(paired):
    """Log-normal processes of 2.5 % scatter, eight a side, each round shifted by the machine where rounds are shared."""
    drawn, alarms, found = random.Random(0), 0, 0
    for _ in range(200):
        drift = [drawn.gauss(0, 0.2 if paired else 0) for _ in range(8)]
        a, b = (side(*(math.exp(d + drawn.gauss(0, 0.025)) for d in drift)) for _ in range(2))
        alarms += compare_rounds(a, b, paired=paired).verdict != "same"
        found += compare_rounds(a, {r: 1.1 * m for r, m in b.items()}, paired=paired).verdict == "slower"
    assert alarms <= 7 and found >= 180


def process_of(log):
    """The samples of a process, which agree."""
    return [10 * math.exp(log)] * 3


def timings(*processes):
    """One entry a process, from its samples."""
    return [Timing(n, sorted(s)[len(s) // 2], samples_ms=s) for n, s in enumerate(processes, 1)]


def process(drawn, *, by=1.0, disturbed=0.0, slow_share=0.0):
    """Nine calls around 10 ms: `disturbed` of them 10 to 60 % slower by chance, the last `slow_share` by half for sure."""
    calls = [10 * by * math.exp(drawn.gauss(0, 0.01)) for _ in range(9)]
    calls = [call * (1 + drawn.uniform(0.1, 0.6) * (drawn.random() < disturbed)) for call in calls]
    return [call * (1.5 if i >= 9 * (1 - slow_share) else 1) for i, call in enumerate(calls)]


def test_on_a_busy_machine_lower_quartiles_decide():
    drawn = random.Random(5)
    a, b = ([process(drawn, by=by, disturbed=0.4) for _ in range(8)] for by in (1, 1.1))
    found = compare_timings(timings(*a), timings(*b))
    assert (found.verdict, found.of) == ("slower", "lower quartiles") and found.low < 1.1 < found.high
    assert (
        compare_rounds(figures_by_round(timings(*a), "median_ms"), figures_by_round(timings(*b), "median_ms")).verdict
        == "same"
    )


def test_where_most_calls_take_a_slow_path_medians_decide():
    drawn = random.Random(6)
    a, b = ([process(drawn, slow_share=share) for _ in range(8)] for share in (0, 0.6))
    found = compare_timings(timings(*a), timings(*b))
    assert (found.verdict, found.of) == ("slower", "medians")


def test_two_tests_of_one_timing_keep_the_level():
    drawn, alarms = random.Random(7), 0
    for _ in range(300):
        a, b = (timings(*(process(drawn, disturbed=0.3) for _ in range(5))) for _ in range(2))
        alarms += compare_timings(a, b, level=0.05).verdict != "same"
    assert alarms <= 24  # 15 expected at most
    one = compare_timings(timings([1.0]), timings([2.0]))
    assert (one.verdict, one.p, one.ratio) == ("untested", None, 2.0)
