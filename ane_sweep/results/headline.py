"""The choice of a cell's headline latency: every table, plot, ranking, comparison and tracker takes it from this module."""

from typing import NamedTuple

from ane_sweep.bridge.record import Record
from ane_sweep.placement.types import Kind
from ane_sweep.stats.samples import quantile

HEADLINE = "latency_median_ms"  # its row in the registry of metrics


class Latency(NamedTuple):
    """A latency in ms, its kind, and its interquartile range (None: not known)."""

    ms: float
    iqr: float | None = None
    kind: Kind = "measured"

    @property
    def span(self) -> tuple[float, float]:
        """Return the ends of the interquartile range."""
        half = (self.iqr or 0.0) / 2
        return self.ms - half, self.ms + half


class Estimate(NamedTuple):
    """An estimated latency in ms. Either end of its band may be unknown."""

    ms: float
    low: float | None
    high: float | None


def headline(record: Record) -> Latency | None:
    """Return the headline latency of a cell, which is the median of its timing on any runtime, or None if it was not timed."""
    ms = measured_ms(record)
    return None if ms is None else Latency(ms, record.value("latency_iqr_ms"))


def headline_ms(record: Record) -> float | None:
    """Return the headline latency of a cell in ms, or None."""
    found = headline(record)
    return found and found.ms


def measured_ms(record: Record) -> float | None:
    """Return the median of the timing on this host, or None if nothing was timed."""
    ms: float | None = record.value(HEADLINE)
    return ms


def is_timed(record: Record) -> bool:
    return measured_ms(record) is not None


def spread(record: Record) -> tuple[float, float]:
    """Return the middle half of all samples of all processes; without samples, the interquartile range of the headline latency."""
    latency = headline(record) or Latency(0.0)
    samples = [sample for timing in record.timings for sample in timing.samples_ms]
    low, high = (quantile(samples, q) for q in (0.25, 0.75)) if samples else latency.span
    return max(0.0, min(low, latency.ms)), max(high, latency.ms)


def estimate(record: Record, chip: str) -> Estimate | None:
    """Return the estimated latency on a chip, or None."""
    at, low, high = (record.value(f"latency{end}_ms", "estimated", chip) for end in ("", "_low", "_high"))
    return None if at is None else Estimate(at, low, high)


def estimated_chips(*records: Record) -> list[str]:
    """Return the chips that any of the records has an estimate for, in the order of the request."""
    found = (m.chip for record in records for m in record.metrics if (m.name, m.kind) == ("latency_ms", "estimated"))
    return list(dict.fromkeys(chip for chip in found if chip))
