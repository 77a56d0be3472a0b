"""Rates and costs of this chip, derived from the records of the probes as rows that estimates read.

Times are medians. With d the cost of a call, R products a second and W bytes of weights a second on the Neural Engine:

    products   t = d + F / R      R from the difference to `dispatch`, whose net needs F of its own
    weights    t = d + B / W      F is small there
    dispatch   t = d + max(F / R, B / W)

so the three equations are solved by iteration. A figure that is not positive is left out, with the reason.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from ane_sweep.bridge.record import Record
from ane_sweep.calibration.probes import list_probes
from ane_sweep.machine.calibrated import Row

_ROUNDS = 50
_UNITS = {
    "dispatch_ms": "ms", "fp16_tflops": "TFLOP/s", "weight_gbs": "GB/s", "palette4_gbs": "GB/s of fp16", "chunk_ms": "ms",
}  # fmt: skip
_RAN = ("ok", "degraded")


@dataclass(frozen=True)
class Rates:
    """Rates of the Neural Engine: ms per call, FLOP per ms, bytes per ms; None for a rate that the times do not determine."""

    dispatch: float
    flop: float | None
    weights: float | None


@dataclass
class CalibrationRows:
    rows: list[Row] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # a sentence for each figure that could not be derived


def derive_rows(records: Sequence[Record], chip: str, source: str) -> CalibrationRows:
    """Return the figures from one run of the probes, in their order."""
    by_name = {probe.name: record for probe, record in zip(list_probes(), records)}
    taker = _RowCollector(records=by_name, chip=chip, source=source)
    _neural_engine(taker)
    for unit, units in (("cpu", "cpu_only"), ("gpu", "cpu_and_gpu")):
        _other_unit(taker, unit, units)
    _form_ratios(taker)
    _planned_shares(taker)
    return CalibrationRows(taker.rows, taker.missing)


@dataclass(kw_only=True)
class _RowCollector(CalibrationRows):
    records: Mapping[str, Record]
    chip: str
    source: str

    def ms(self, probe: str, *names: str) -> float | None:
        """Return the median of a probe in ms, or None if it did not run; then a sentence is noted for each figure that needs it."""
        record = self.records.get(probe)
        if record is None or record.status.value not in _RAN:
            why = "is not in that run" if record is None else f"{record.status.value}: {record.reason}"
            self.missing += [f"{name}: probe {probe} {why}" for name in names]
            return None
        value = record.value("latency_median_ms")
        return float(value) if value else None

    def add(self, quantity: str, value: float | None, units: str, probe: str, kind: str = "measured") -> None:
        if value is None or value < 0 or (value == 0 and kind == "measured"):
            self.missing.append(f"{quantity} ({units}): the time of probe {probe} beside the others gives none")
            return
        record, taken = self.records[probe], ""
        with suppress(ValueError):
            taken = datetime.strptime(record.sweep[:8], "%Y%m%d").date().isoformat()
        build, unit = str(record.host.get("os_build") or ""), _UNITS.get(quantity, "1")
        row = Row(self.chip, units, quantity, round(value, 6), unit, kind, self.source, probe, build, taken)
        self.rows.append(row)


def flop_per_call(record: Record) -> float:
    """Return the FLOP of one call: two for each parameter and token, as the nets consist of linear layers."""
    return 2.0 * count_parameters(record) * int(record.cell["seq_len"])


def count_parameters(record: Record) -> int:
    options = record.cell.get("model_options") or {}
    return int(options.get("parameters") or 0)


def _neural_engine(taker: _RowCollector) -> None:
    names = ("dispatch_ms", "fp16_tflops", "weight_gbs")
    small, large, read = (taker.ms(probe, *names) for probe in ("dispatch", "products", "weights"))
    if small is None or large is None or read is None:
        return
    records = taker.records
    rates = solve_rates(
        small, large, read, flop_per_call(records["dispatch"]), flop_per_call(records["products"]),
        2.0 * count_parameters(records["dispatch"]), 2.0 * count_parameters(records["weights"]),
    )  # fmt: skip
    taker.add("dispatch_ms", rates.dispatch, "cpu_and_ne", "dispatch")
    taker.add("fp16_tflops", _scale(rates.flop, 1e-9), "cpu_and_ne", "products")
    taker.add("weight_gbs", _scale(rates.weights, 1e-6), "cpu_and_ne", "weights")
    if (packed := taker.ms("palettes", "palette4_gbs")) is not None:
        rate = _divide(2.0 * count_parameters(records["palettes"]), packed - rates.dispatch)
        taker.add("palette4_gbs", _scale(rate, 1e-6), "cpu_and_ne", "palettes")
    if (cut := taker.ms("chunks", "chunk_ms")) is not None:
        more = int(records["chunks"].cell["chunks"]) - 1
        taker.add("chunk_ms", (cut - large) / more if more else None, "cpu_and_ne", "chunks")


def solve_rates(
    small: float, large: float, read: float, small_flop: float, large_flop: float, small_bytes: float, read_bytes: float
) -> Rates:
    """Solve for the Neural Engine's three rates from three times in ms."""
    dispatch, flops, weights = small, None, None
    for _ in range(_ROUNDS):
        flops, weights = _divide(large_flop, large - dispatch), _divide(read_bytes, read - dispatch)
        needed = [amount / rate for amount, rate in ((small_flop, flops), (small_bytes, weights)) if rate]
        dispatch = max(small - max(needed, default=0.0), 0.0)
    return Rates(dispatch, flops, weights)


def _divide(amount: float, ms: float) -> float | None:
    return amount / ms if ms > 0 else None


def _scale(per_ms: float | None, scale: float) -> float | None:
    return None if per_ms is None else per_ms * scale


def _other_unit(taker: _RowCollector, unit: str, units: str) -> None:
    names = (f"{unit} dispatch_ms", f"{unit} fp16_tflops")
    small, large = taker.ms(f"{unit}_small", *names), taker.ms(f"{unit}_products", *names)
    if small is None or large is None:
        return
    less, more = flop_per_call(taker.records[f"{unit}_small"]), flop_per_call(taker.records[f"{unit}_products"])
    rate = _divide(more - less, large - small)
    taker.add("fp16_tflops", _scale(rate, 1e-9), units, f"{unit}_products")
    taker.add("dispatch_ms", None if rate is None else small - less / rate, units, f"{unit}_small")


def _form_ratios(taker: _RowCollector) -> None:
    """Add the ratios of times between the two layouts of a net."""
    for quantity, slow, fast in (
        ("linear_over_conv", "linear_layers", "dispatch"),
        ("original_over_split_einsum", "encoder_original", "encoder_split"),
    ):
        one, other = taker.ms(slow, quantity), taker.ms(fast, quantity)
        if one is not None and other is not None:
            taker.add(quantity, _divide(one, other), "cpu_and_ne", slow)


def _planned_shares(taker: _RowCollector) -> None:
    """Add the share of ops that Core ML planned for each unit, for the probes that request it."""
    for probe in ("choice_small", "choice_products", "small_encoder", "sum_16384", "sum_16640"):
        record = taker.records.get(probe)
        if record is None or (entry := next(record.placed("planned"), None)) is None or not entry.ops.total:
            taker.missing.append(f"{probe}: Core ML's plan is not in its record")
            continue
        units = str(record.cell["compute_units"])
        for name, count in (("cpu", entry.ops.cpu), ("gpu", entry.ops.gpu), ("ane", entry.ops.ane)):
            taker.add(f"{probe}_{name}_share", count / entry.ops.total, units, probe, "planned")
