"""The choice of a cell's headline latency: every table, plot, ranking, comparison and tracker takes it from this module.

It is the first of these that the cell has: the timing under Core ML, or by a runtime that the user asked for by name; else
the estimate for the chip that the user ships for, which is the first of `chips`. The time of the runtime that
`runtime=auto` chose on a host without Core ML is only a check that the program runs: it is never the headline.
"""

from typing import NamedTuple

from ane_sweep.bridge.plan import DONE
from ane_sweep.bridge.record import Record
from ane_sweep.bridge.runtimes import traits
from ane_sweep.placement.types import Kind, Placement
from ane_sweep.stats.samples import quantile

HEADLINE = "headline_ms"  # its row in the registry of metrics; no record has a metric of this name
MEASURED = "latency_median_ms"  # the metric of a timing


class Latency(NamedTuple):
    """A latency in ms with its kind.

    iqr        interquartile range of a measured one (None: not known)
    chip       the chip of an estimate
    low, high  the band of an estimate (None: not known)
    """

    ms: float
    iqr: float | None = None
    kind: Kind = "measured"
    chip: str | None = None
    low: float | None = None
    high: float | None = None

    @property
    def span(self) -> tuple[float, float]:
        """Return the ends of the interquartile range, or of the band of an estimate."""
        half = (self.iqr or 0.0) / 2
        return (self.ms - half if self.low is None else self.low), (self.ms + half if self.high is None else self.high)


def headline(record: Record) -> Latency | None:
    """Return the headline latency of a cell, or None if it has none (see `explain_missing`)."""
    if answers_by_timing(record):
        return Latency(measured_ms(record) or 0.0, record.value("latency_iqr_ms"))
    chip = shipped_chip(record)
    return estimate(record, chip) if chip else None


def headline_ms(record: Record) -> float | None:
    """Return the headline latency of a cell in ms, or None."""
    found = headline(record)
    return found and found.ms


def explain_missing(record: Record) -> str | None:
    """Return why a cell has no headline latency, or None if it has one or if no reason is recorded."""
    if headline(record) is not None:
        return None
    entry = shipped_placement(record)
    return entry.not_estimated.removeprefix(f"{entry.chip}: ") if entry and entry.not_estimated else None


def answers_by_timing(record: Record) -> bool:
    """Return True if the cell's timing is its headline: Core ML ran it, or the user asked for its runtime by name."""
    on_coreml = traits(record.realised.get("runtime")).coreml
    return is_timed(record) and (on_coreml or record.cell.get("runtime", "auto") != "auto")


def is_check(record: Record) -> bool:
    """Return True if the cell's timing only checks that the program runs here: the user asked for no CPU time."""
    return is_timed(record) and not answers_by_timing(record) and _repeats(record) == "auto"


def is_only_scored(record: Record) -> bool:
    """Return True if nothing was called to check that the program runs here, as its score shows it (planner/tasks.py)."""
    ended = {one.stage: one.status for one in record.stages}
    return ended.get("score") in DONE and "latency" not in ended and _repeats(record) == "auto"


def _repeats(record: Record) -> object:
    policy = record.cell.get("latency")
    return policy.get("repeats", "auto") if isinstance(policy, dict) else "auto"


def shipped_chip(record: Record) -> str | None:
    """Return the chip that the user ships for, which is the first of `chips`, or None if nothing was predicted."""
    entry = shipped_placement(record)
    return entry.chip if entry else None


def name_chip(chip: str) -> str:
    """Return a chip's name as people write it: `M4`, `A17 Pro`."""
    return chip.replace("_", " ").title()


def shipped_placement(record: Record) -> Placement | None:
    """Return the prediction for the chip that the user ships for, or None if nothing was predicted."""
    return next(iter(record.placed("predicted")), None)


def measured_ms(record: Record) -> float | None:
    """Return the median of the timing on this host, or None if nothing was timed."""
    return record.value(MEASURED)


def is_timed(record: Record) -> bool:
    return measured_ms(record) is not None


def spread(record: Record) -> tuple[float, float]:
    """Return the band of a headline that is an estimate; else the middle half of all samples of all processes, or without
    samples the interquartile range of the headline latency.
    """
    latency = headline(record) or Latency(0.0)
    samples = [sample for timing in record.timings for sample in timing.samples_ms if latency.kind == "measured"]
    low, high = (quantile(samples, q) for q in (0.25, 0.75)) if samples else latency.span
    return max(0.0, min(low, latency.ms)), max(high, latency.ms)


def estimate(record: Record, chip: str) -> Latency | None:
    """Return the estimated latency on a chip with its band, or None."""
    at, low, high = (record.value(f"latency{end}_ms", "estimated", chip) for end in ("", "_low", "_high"))
    return None if at is None else Latency(at, None, "estimated", chip, low, high)


def estimated_chips(*records: Record) -> list[str]:
    """Return the chips that any of the records has an estimate for, in the order of the request."""
    found = (m.chip for record in records for m in record.metrics if (m.name, m.kind) == ("latency_ms", "estimated"))
    return list(dict.fromkeys(chip for chip in found if chip))
