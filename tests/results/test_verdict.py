"""The verdict: every branch by scripted evidence (constructed), and the words that a user reads."""

import random

import pytest

from ane_sweep.results.verdict import Evidence, judge, power_says, ratio
from ane_sweep.stats.samples import least_samples, median_interval

ANE, CPU, GPU, MOSTLY_CPU = (
    {"ane": a, "gpu": g, "cpu": c} for a, g, c in ((0.9, 0, 0.1), (0, 0, 1), (0, 1, 0), (0.2, 0, 0.8))
)


def around(milliseconds: float, spread: float = 0.02, count: int = 20, seed: int = 0) -> list[float]:
    rng = random.Random(seed)
    return [milliseconds / 1000 * (1 + rng.uniform(-spread, spread)) for _ in range(count)]


def times(own, cpu=None, gpu=None):
    found = {"own": around(own, seed=1)}
    found |= {"cpu_only": around(cpu, seed=2)} if cpu else {}
    return found | ({"cpu_and_gpu": around(gpu, seed=3)} if gpu else {})


LOADED = {"ane": {"milliwatts": 1500, "median": 1460, "idle_max": 8}}  # figures of experiments-coreml-ane-distilbert
REFUSED = {
    "says": "ane_failed", "ours": True, "explanation": "the compiler refused it", "line": "ANECCompile() FAILED",
}  # fmt: skip

CASES = {
    "on the engine, by latency": (("cpu_and_ne", ANE, times(2, cpu=9), {}, ()), ("agrees", "ane", False)),
    "on the engine, by power": (("cpu_and_ne", ANE, {}, LOADED, ()), ("agrees", "ane", False)),
    "power outweighs a coincidence of latency": (("cpu_and_ne", ANE, times(9, cpu=9), LOADED, ()), ("agrees", "ane", False)),
    "a silent fall to the CPU": (("cpu_and_ne", ANE, times(9, cpu=9), {}, ()), ("disagrees", "cpu", True)),
    "a fall that was planned": (("cpu_and_ne", CPU, times(9, cpu=9), {}, ()), ("disagrees", "cpu", True)),
    "a fall, no plan": (("cpu_and_ne", None, times(9, cpu=9), {}, ()), ("disagrees", "cpu", True)),
    "the compiler refused": (("cpu_and_ne", ANE, times(2, cpu=9), {}, (REFUSED,)), ("disagrees", "cpu", True)),
    "refused, a part ran": (("cpu_and_ne", ANE, times(2, cpu=9), LOADED, (REFUSED,)), ("disagrees", "cpu", True)),
    "refused, all units, GPU": (("all", ANE, times(3, 9, 3), {}, (REFUSED,)), ("disagrees", "gpu", False)),
    "refused, all units, CPU": (("all", ANE, times(9, 9, 3), {}, (REFUSED,)), ("disagrees", "cpu", True)),
    "another program's line": (
        ("cpu_and_ne", ANE, times(2, cpu=9), {}, ({**REFUSED, "ours": False},)), ("agrees", "ane", False)),
    "the plan is wrong": (("cpu_and_ne", CPU, times(2, cpu=9), {}, ()), ("disagrees", "ane", False)),
    "too little planned to tell": (("cpu_and_ne", MOSTLY_CPU, times(9, cpu=9), {}, ()), ("unavailable", None, False)),
    "between same and different": (("cpu_and_ne", ANE, times(8.2, cpu=9), {}, ()), ("unavailable", None, False)),
    "a fifth faster, which another process may be": (
        ("cpu_and_ne", ANE, times(7.5, cpu=9), {}, ()), ("unavailable", None, False)),
    "no evidence": (("cpu_and_ne", ANE, {}, {}, ()), ("unavailable", None, False)),
    "zero power says nothing": (
        ("cpu_and_ne", ANE, {}, {"ane": {"milliwatts": 0, "median": 0, "idle_max": 0}}, ()), ("unavailable", None, False)),
    "GPU asked, GPU used": (("cpu_and_gpu", GPU, times(3, cpu=9), {}, ()), ("agrees", "gpu", False)),
    "GPU asked, by power": (
        ("cpu_and_gpu", GPU, times(9, cpu=9), {"gpu": {"milliwatts": 900, "median": 950, "idle_max": 40}}, ()),
        ("agrees", "gpu", False)),
    "GPU asked, CPU used": (("cpu_and_gpu", GPU, times(9, cpu=9), {}, ()), ("disagrees", "cpu", True)),
    "CPU asked": (("cpu_only", CPU, {}, {}, ()), ("agrees", "cpu", False)),
    "CPU asked, another program's power": (("cpu_only", CPU, {}, LOADED, ()), ("agrees", "cpu", False)),
    "GPU asked, another program's power": (("cpu_and_gpu", GPU, times(9, cpu=9), LOADED, ()), ("disagrees", "cpu", True)),
    "all, engine planned and used": (("all", ANE, times(2, 9, 4), {}, ()), ("agrees", "ane", False)),
    "all, engine planned, GPU used": (("all", ANE, times(4, 9, 4), {}, ()), ("disagrees", "gpu", False)),
    "all, engine planned, CPU used": (("all", ANE, times(9, 9, 4), {}, ()), ("disagrees", "cpu", True)),
    "all, GPU planned and used": (("all", GPU, times(4, 9, 4), {}, ()), ("agrees", "gpu", False)),
    "all, CPU planned and used": (("all", CPU, times(9, 9, 4), {}, ()), ("agrees", "cpu", False)),
    "all, CPU and GPU alike": (("all", ANE, times(9, 9, 9), {}, ()), ("unavailable", None, False)),
    "all, no plan": (("all", None, times(2, 9, 4), {}, ()), ("unavailable", "ane", False)),
    "all, GPU not timed": (("all", ANE, times(2, cpu=9), {}, ()), ("unavailable", None, False)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_branch(name):
    (units, planned, samples, power, findings), expected = CASES[name]
    found = judge(Evidence(units, planned, samples, power, findings))
    assert (found.verdict, found.observed, found.fell) == expected, found
    assert found.reasons and all(reason == reason.strip() and "None" not in reason for reason in found.reasons)


def said(name: str) -> str:
    (units, planned, samples, power, findings), _ = CASES[name]
    return "; ".join(judge(Evidence(units, planned, samples, power, findings, missing=["no sudo"])).reasons)


def test_the_words_of_a_fall():
    text = said("a silent fall to the CPU")
    assert text.startswith("compute_units=cpu_and_ne asks for the Neural Engine, but it ran on the CPU; latency is ")
    assert "times that of cpu_only (the same within 10%)" in text and "planned cost: 90% ane, 0% gpu, 10% cpu" in text
    assert "a Neural Engine that is merely no faster would look the same" in text
    assert "1460 mW under load, at most 8 mW before: by another program" in said("CPU asked, another program's power")
    assert "Core ML planned mainly for the Neural Engine, but it ran on the GPU" in said(
        "all, engine planned, GPU used"
    )
    assert "Core ML said: the compiler refused it (`ANECCompile() FAILED`)" in said("the compiler refused")
    assert "a part ran on the Neural Engine all the same: the Neural Engine drew 1460 mW" in said("refused, a part ran")


def test_the_words_of_not_knowing():
    assert said("no evidence").startswith("no evidence tells whether the Neural Engine was used")
    assert said("no evidence").endswith("no sudo"), "a source that is missing says why"
    assert "only 20% of the planned cost is off the CPU" in said("too little planned to tell")
    assert "not decided: neither within 10% nor beyond 25%" in said("between same and different")
    few = judge(Evidence("cpu_and_ne", ANE, {"own": around(2, count=3), "cpu_only": around(9)}))
    assert few.verdict == "unavailable" and "latency.samples=7 or more" in "; ".join(few.reasons)


def test_the_interval_holds_the_median_as_often_as_it_says():
    """Skewed samples, as timings are; 2,000 draws each."""
    rng = random.Random(7)
    assert least_samples(0.975) == 7
    assert median_interval([1.0] * 6, 0.975) is None and median_interval([0.0] * 20, 0.975) is None
    for count in (7, 20, 51):
        draws = [[1 + rng.expovariate(1) for _ in range(count)] for _ in range(2000)]
        held = sum(low <= 1.6931 <= high for low, high in (median_interval(draw, 0.975) for draw in draws))
        assert held / 2000 >= 0.967, count


def test_same_and_different_are_rarely_confused():
    """The error that matters: a 30 % faster program called the same as the CPU, or an equal one called different."""
    wrong = {"equal": 0, "faster": 0}
    for seed in range(300):
        cpu = around(9, 0.05, seed=seed)
        wrong["equal"] += ratio(around(9, 0.05, seed=1000 + seed), cpu, "cpu_only")[0] == "different"
        wrong["faster"] += ratio(around(6.3, 0.05, seed=2000 + seed), cpu, "cpu_only")[0] == "same"
    assert wrong == {"equal": 0, "faster": 0}


def test_power_must_stand_out_of_what_others_use_meanwhile():
    assert power_says("ane", {"ane": {"median": 29, "idle_max": 0}})
    assert power_says("ane", {"ane": {"median": 60, "idle_max": 40}}) is None
    assert power_says("ane", {}) is None
