"""What the records of the probes say: rates and costs of this chip, as rows that estimates read.

Times are medians. With d what a call costs, R products a second and W bytes of weights a second on the Neural Engine:

    products   t = d + F / R      R from the difference to `dispatch`, whose net needs F of its own
    weights    t = d + B / W      F is small there
    dispatch   t = d + max(F / R, B / W)

so the three are gone through until they agree. A figure that comes out as no positive number is left out, with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ane_sweep.bridge.record import Record
from ane_sweep.calibration.probes import listed
from ane_sweep.placement.here import Row

_ROUNDS = 50
_UNITS = {
    "dispatch_ms": "ms",
    "fp16_tflops": "TFLOP/s",
    "weight_gbs": "GB/s",
    "palette4_gbs": "GB/s of fp16",
    "chunk_ms": "ms",
}
_RAN = ("ok", "degraded")


@dataclass(frozen=True)
class Rates:
    """ms a call, FLOP a ms, bytes a ms; None where they cannot be told."""

    dispatch: float
    flop: float | None
    weights: float | None


@dataclass
class Found:
    rows: list[Row] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # sentences: which figure there is not, and why


def found(records: Sequence[Record], chip: str, source: str) -> Found:
    """The figures of one run of the probes, in their order."""
    by_name = {probe.name: record for probe, record in zip(listed(), records)}
    made = Found()
    taker = _Taker(by_name, chip, source, made)
    _neural_engine(taker)
    for unit, units in (("cpu", "cpu_only"), ("gpu", "cpu_and_gpu")):
        _other_unit(taker, unit, units)
    _ratios(taker)
    _placed(taker)
    return made


@dataclass
class _Taker:
    records: Mapping[str, Record]
    chip: str
    source: str
    made: Found

    def ms(self, probe: str, *names: str) -> float | None:
        """The median of a probe; None, and a sentence for what needs it, where it did not run where it was asked to."""
        record = self.records.get(probe)
        if record is None or record.status.value not in _RAN:
            why = "is not in that run" if record is None else f"{record.status.value}: {record.reason}"
            self.made.missing += [f"{name}: probe {probe} {why}" for name in names]
            return None
        value = record.value("latency_median_ms")
        return float(value) if value else None

    def add(
        self,
        quantity: str,
        value: float | None,
        units: str,
        probe: str,
        kind: str = "measured",
        unit: str | None = None,
    ) -> None:
        if value is None or value < 0 or (value == 0 and kind == "measured"):
            self.made.missing.append(f"{quantity} ({units}): the time of probe {probe} beside the others gives none")
            return
        record = self.records[probe]
        build, taken = str(record.host.get("os_build") or ""), _day(record)
        self.made.rows.append(
            Row(
                self.chip,
                units,
                quantity,
                round(value, 6),
                unit or _UNITS.get(quantity, "1"),
                kind,
                self.source,
                probe,
                build,
                taken,
            )
        )


def _day(record: Record) -> str:
    try:
        return datetime.strptime(record.sweep[:8], "%Y%m%d").date().isoformat()
    except ValueError:
        return ""


def flop(record: Record) -> float:
    """Of one call: two for each parameter and token, of nets that are linear layers alone."""
    return 2.0 * parameters(record) * int(record.cell["seq_len"])


def parameters(record: Record) -> int:
    options = record.cell.get("model_options") or {}
    return int(options.get("parameters") or 0)


def _neural_engine(taker: _Taker) -> None:
    names = ("dispatch_ms", "fp16_tflops", "weight_gbs")
    small, large, read = (taker.ms(probe, *names) for probe in ("dispatch", "products", "weights"))
    if small is None or large is None or read is None:
        return
    records = taker.records
    rates = solved(
        small, large, read, flop(records["dispatch"]), flop(records["products"]),
        2.0 * parameters(records["dispatch"]), 2.0 * parameters(records["weights"]),
    )  # fmt: skip
    taker.add("dispatch_ms", rates.dispatch, "cpu_and_ne", "dispatch")
    taker.add("fp16_tflops", _rate(rates.flop, 1e-9), "cpu_and_ne", "products")
    taker.add("weight_gbs", _rate(rates.weights, 1e-6), "cpu_and_ne", "weights")
    if (packed := taker.ms("palettes", "palette4_gbs")) is not None:
        bytes_there = 2.0 * parameters(records["palettes"])
        taker.add("palette4_gbs", _rate(_over(bytes_there, packed - rates.dispatch), 1e-6), "cpu_and_ne", "palettes")
    if (cut := taker.ms("chunks", "chunk_ms")) is not None:
        more = int(records["chunks"].cell["chunks"]) - 1
        taker.add("chunk_ms", (cut - large) / more if more else None, "cpu_and_ne", "chunks")


def solved(
    small: float, large: float, read: float, small_flop: float, large_flop: float, small_bytes: float, read_bytes: float
) -> Rates:
    """The three figures of the Neural Engine from three times in ms."""
    dispatch, flops, weights = small, None, None
    for _ in range(_ROUNDS):
        flops, weights = _over(large_flop, large - dispatch), _over(read_bytes, read - dispatch)
        needed = [amount / rate for amount, rate in ((small_flop, flops), (small_bytes, weights)) if rate]
        dispatch = max(small - max(needed, default=0.0), 0.0)
    return Rates(dispatch, flops, weights)


def _over(amount: float, ms: float) -> float | None:
    return amount / ms if ms > 0 else None


def _rate(per_ms: float | None, scale: float) -> float | None:
    return None if per_ms is None else per_ms * scale


def _other_unit(taker: _Taker, unit: str, units: str) -> None:
    names = (f"{unit} dispatch_ms", f"{unit} fp16_tflops")
    small, large = taker.ms(f"{unit}_small", *names), taker.ms(f"{unit}_products", *names)
    if small is None or large is None:
        return
    less, more = flop(taker.records[f"{unit}_small"]), flop(taker.records[f"{unit}_products"])
    rate = _over(more - less, large - small)
    taker.add("fp16_tflops", _rate(rate, 1e-9), units, f"{unit}_products")
    taker.add("dispatch_ms", None if rate is None else small - less / rate, units, f"{unit}_small")


def _ratios(taker: _Taker) -> None:
    """How many times longer one form of a net takes than another."""
    for quantity, slow, fast in (
        ("linear_over_conv", "linear_layers", "dispatch"),
        ("original_over_split_einsum", "encoder_original", "encoder_split"),
    ):
        one, other = taker.ms(slow, quantity), taker.ms(fast, quantity)
        if one is not None and other is not None:
            taker.add(quantity, _over(one, other), "cpu_and_ne", slow)


def _placed(taker: _Taker) -> None:
    """The share of ops that Core ML planned for each unit, where that is the question."""
    for probe in ("choice_small", "choice_products", "small_encoder", "sum_16384", "sum_16640"):
        record = taker.records.get(probe)
        if record is None or (entry := next(record.placed("planned"), None)) is None or not entry.ops.total:
            taker.made.missing.append(f"{probe}: Core ML's plan is not in its record")
            continue
        units = str(record.cell["compute_units"])
        for name, count in (("cpu", entry.ops.cpu), ("gpu", entry.ops.gpu), ("ane", entry.ops.ane)):
            taker.add(f"{probe}_{name}_share", count / entry.ops.total, units, probe, "planned")
