"""The verdict on whether a program ran on the requested units, from the request, Core ML's plan and evidence. Without
side effects.

Evidence, and the conclusions from each piece:

    latency   against CPU_ONLY and CPU_AND_GPU of the same program. Two medians are *the same* when the interval of their
              ratio lies within 1/1.1 .. 1.1, *different* when it lies wholly outside 1/1.25 .. 1.25, else undecided. The
              interval joins two 97.5 % intervals of the medians (order statistics: no distribution assumed), so it holds
              with at least 95 %. It covers the scatter within one process only: the margins allow for differences
              between processes, and the wider one applies to the answer "not the CPU", the worse error.
    power     of the Neural Engine or the GPU: a median above 10 mW and above twice all idle samples shows that it
              worked (single calls drew 29 mW of the Neural Engine, a loop 1,300 and more, idle 0:
              experiments-coreml-ane-distilbert). Low power proves nothing: some chips report 0 under load
              (machine/powermetrics.py).
    log       lines of our own process by which Core ML says that the Neural Engine's compiler, memory or runtime refused
              the program. Lines of the daemons may concern another program: they are shown but decide nothing.

A known limit: if the CPU runs at another speed when the Neural Engine is allowed, it is taken for the Neural Engine,
unless power or log contradict that.

The plan is no evidence: it was seen to say CPU for what ran on a GPU (FluidAudio, ANE_Profiler). It gives the expected
unit. If less than a quarter of its cost is off the CPU, latency cannot show a fall back to the CPU and is not used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ane_sweep.bridge.cell import BASELINES
from ane_sweep.stats.samples import least_samples, median_interval

SAME, DIFFERENT = 0.10, 0.25
CONFIDENCE = 0.975  # of each median's interval; two of them: 95 % together
LEAST_SHARE = 0.25  # of the planned cost that must lie off the CPU before "as slow as the CPU" means a fall
LEAST_MILLIWATTS = 10.0

Answer = Literal["agrees", "disagrees", "unavailable"]
NAMES = {"ane": "the Neural Engine", "gpu": "the GPU", "cpu": "the CPU"}
ASKED = {"cpu_only": "cpu", "cpu_and_gpu": "gpu", "cpu_and_ne": "ane", "all": None}
MAY_USE_ANE = ("cpu_and_ne", "all")


@dataclass(frozen=True)
class Evidence:
    """The evidence about the unit that one cell ran on.

    compute_units  the requested ones
    planned        share of Core ML's planned cost on "cpu", "gpu", "ane"; None without a plan
    samples        steady seconds per call: "own", and those of the same program under "cpu_only", "cpu_and_gpu", if
                   timed
    power          engine -> {"milliwatts", "median", "idle_max"}, if the power channel reports it
    findings       known lines of the log (machine/syslog.py), each with `says`, `ours`, `explanation`
    missing        the reasons why a source has no figures, one sentence each
    """

    compute_units: str
    planned: Mapping[str, float] | None = None
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)
    power: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    findings: Sequence[Mapping[str, Any]] = ()
    missing: Sequence[str] = ()


@dataclass(frozen=True)
class Verdict:
    """The answer: `observed` is cpu, gpu, ane or None (not known); `fell`: the cell ran on another unit than requested."""

    verdict: Answer
    observed: str | None
    fell: bool
    reasons: list[str]


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict with its reasons, each a sentence for the user."""
    units, planned = evidence.compute_units, evidence.planned or {}
    reasons: list[str] = []
    if units not in MAY_USE_ANE and (worked := power_says("ane", evidence.power)):
        reasons.append(f"{worked}: by another program, as this one was not allowed it")
    if units == "cpu_only":
        return Verdict("agrees", "cpu", False, ["Core ML was allowed the CPU alone", *reasons])
    asked = ASKED[units]  # with `all`, the unit that the plan gives most of the cost is expected
    expected = asked or (max(planned, key=lambda unit: planned[unit]) if any(planned.values()) else None)
    observed = _observed(evidence, expected, reasons)
    if expected is None:
        reasons.append("without a plan, compute_units=all asks for no unit")
        return Verdict("unavailable", observed, False, [*reasons, *evidence.missing])
    shares = ", ".join(f"{planned[unit]:.0%} {unit}" for unit in ("ane", "gpu", "cpu") if unit in planned)
    plan = [f"planned cost: {shares}"] if evidence.planned is not None else []
    if observed is None:
        nothing = f"no evidence tells whether {NAMES[expected]} was used"
        return Verdict("unavailable", None, False, [nothing, *reasons, *plan, *evidence.missing])
    if observed != expected:
        who = f"compute_units={units} asks for" if asked else "Core ML planned mainly for"
        why = f"{who} {NAMES[expected]}, but it ran on {NAMES[observed]}"
        return Verdict("disagrees", observed, observed == "cpu" or asked is not None, [why, *reasons, *plan])
    if plan and not planned.get(expected):
        why = f"it ran on {NAMES[observed]}, where Core ML's plan has no op: the plan does not tell what happened"
        return Verdict("disagrees", observed, False, [why, *reasons, *plan])
    return Verdict("agrees", observed, False, reasons)


def _observed(evidence: Evidence, expected: str | None, reasons: list[str]) -> str | None:
    """Return the unit that the cell ran on by the strongest evidence, and add that evidence to `reasons`."""
    refused = [f for f in evidence.findings if f["ours"] and f["says"] in ("ane_failed", "memory", "limit")]
    wants_ane = evidence.compute_units in MAY_USE_ANE and expected in ("ane", None)
    worked = power_says("ane", evidence.power) if evidence.compute_units in MAY_USE_ANE else None
    if refused and wants_ane:
        reasons += dict.fromkeys(f"Core ML said: {f['explanation']} (`{f['line']}`)" for f in refused)
        if worked:
            reasons.append(f"a part ran on the Neural Engine all the same: {worked}")
        return "gpu" if evidence.compute_units == "all" and _by_latency(evidence, reasons) == "gpu" else "cpu"
    if worked:
        reasons.append(worked)
        return "ane"
    if evidence.compute_units == "cpu_and_gpu" and (worked := power_says("gpu", evidence.power)):
        reasons.append(worked)
        return "gpu"
    return _by_latency(evidence, reasons)


def power_says(engine: str, power: Mapping[str, Mapping[str, float]]) -> str | None:
    """Return a sentence if the power figures show that an engine worked, else None, which proves nothing."""
    seen = power.get(engine)
    if seen is None or seen["median"] <= max(2 * seen["idle_max"], LEAST_MILLIWATTS):
        return None
    return f"{NAMES[engine]} drew {seen['median']:.0f} mW under load, at most {seen['idle_max']:.0f} mW before"


def _by_latency(evidence: Evidence, reasons: list[str]) -> str | None:
    """Return the unit that the timings point to, or None."""
    own, units = evidence.samples.get("own", ()), evidence.compute_units
    against = {name: ratio(own, evidence.samples[name], name) for name in BASELINES if name in evidence.samples}
    reasons += [text for name, (_, text) in against.items() if name != units]
    cpu = against.get("cpu_only", ("missing", ""))[0]
    gpu = against.get("cpu_and_gpu", ("missing", ""))[0]
    if units == "all" and gpu == "same":
        return "gpu" if cpu == "different" else None
    if cpu == "same":
        return _cpu_or_unknown(evidence, reasons)
    if cpu != "different":
        return None
    return "ane" if units == "all" and gpu == "different" else ASKED[units]


def _cpu_or_unknown(evidence: Evidence, reasons: list[str]) -> str | None:
    """Return `cpu` for a program as fast as on the CPU alone, unless the plan keeps most of the cost there anyway."""
    away = sum(share for unit, share in (evidence.planned or {}).items() if unit != "cpu")
    if 0 < away < LEAST_SHARE:
        reasons.append(f"but only {away:.0%} of the planned cost is off the CPU: latency cannot tell a fall")
        return None
    if evidence.compute_units in MAY_USE_ANE and "ane" not in evidence.power:
        reasons.append(
            "a Neural Engine that is merely no faster would look the same; its power would tell, and there is none"
        )
    return "cpu"


def ratio(own: Sequence[float], other: Sequence[float], name: str) -> tuple[str, str]:
    """Return ("same" | "different" | "undecided" | "few", a sentence) for two lists of timings, the other one called `name`."""
    mine, theirs = (median_interval(samples, CONFIDENCE) for samples in (own, other))
    if mine is None or theirs is None:
        count, least = min(len(own), len(other)), least_samples(CONFIDENCE)
        return "few", f"{count} samples are too few to compare latency with {name}: latency.samples={least} or more"
    low, high = mine[0] / theirs[1], mine[1] / theirs[0]
    said = f"latency is {low:.2f} to {high:.2f} times that of {name}"
    if low >= 1 / (1 + SAME) and high <= 1 + SAME:
        return "same", f"{said} (the same within {SAME:.0%})"
    if high < 1 / (1 + DIFFERENT) or low > 1 + DIFFERENT:
        return "different", said
    return "undecided", f"{said} (not decided: neither within {SAME:.0%} nor beyond {DIFFERENT:.0%})"
