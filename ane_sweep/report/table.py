"""The table of a sweep: its columns and the lines above it; screen.py prints it.

One row per cell. Columns: the model, every other varying axis, the headline latency (results/headline.py), the shares of the
ops and of the cost on the Neural Engine, PSNR, package size (and bits per weight, if precision varies), status. Settings
that all rows share are above the table.
"""

import json
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from ane_sweep.bridge import metrics
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.metrics import RANKED, MetricSpec
from ane_sweep.bridge.record import Record, Status, as_typed, flat_cell, has_random_weights, varying_axes
from ane_sweep.bridge.runtimes import traits
from ane_sweep.placement.types import Kind, Placement
from ane_sweep.planner import help
from ane_sweep.report.columns import CHECK, MINOR, OTHER_CHIPS, Column, some_column, unit_columns
from ane_sweep.results.headline import (
    HEADLINE,
    answers_by_timing,
    estimate,
    estimated_chips,
    headline,
    is_check,
    is_timed,
    measured_ms,
    name_chip,
    shipped_chip,
)
from ane_sweep.terminal import count

_HEADS = {"compute_units": "units"}
VERDICT, CHECK_HEAD = "ran where asked", "runs here ms"
_NESTED = ("model_options.", "precision_options.", "limits.")  # follow from the option, or from the stage
REASON_LIMIT = 60


def list_columns(records: list[Record], estimates: bool = False) -> list[Column]:
    """Return the table as columns, the same for every output format; with `estimates`, also those that have no part in
    the answer: the estimates and shares of the other chips, and the time of a check on this host.
    """
    axes = varying_axes(records)
    found = [Column("model", _model_names(records, axes), narrow="model")]
    found += [_axis_column(records, axis) for axis in axes if axis != "model"]
    if len(_list_runtimes(records)) > 1 and "runtime" not in axes:
        ran = [str(record.realised.get("runtime") or "-") for record in records]
        found.append(Column("ran on", ran, narrow="ran on", drop_order=MINOR))
    found += [*latency_columns(records), *share_columns(records)]
    varying = [s for s in metrics.shown_in("table") if any(axis.startswith(s.varying) for axis in ["", *axes])]
    found += metric_columns(records, [spec for spec in varying if spec.name != HEADLINE])
    if any(record.realised.get("verdict") for record in records):
        found.append(Column(VERDICT, [verdict_text(record) for record in records], narrow=VERDICT))
    found += [*unit_columns(records), *(further_columns(records) if estimates else ())]
    found.append(Column("status", [status_text(record) for record in records]))
    return found


def _axis_column(records: list[Record], axis: str) -> Column:
    """Return the column of an axis; for `chunks=auto` with the number that the chunker chose: `auto (2)`."""
    values = [flat_cell(record).get(axis) for record in records]
    if axis == "chunks":
        chosen = [record.realised.get("chunks") for record in records]
        values = [f"auto ({n})" if value == "auto" and n is not None else value for value, n in zip(values, chosen)]
    head = _HEADS.get(axis, as_typed(axis))
    return Column(head, [axis_text(v) for v in values], all(isinstance(v, (int, float)) for v in values), narrow=head)


def latency_columns(records: Sequence[Record]) -> list[Column]:
    """Return a column for each kind of headline latency, measured and estimated for a chip, and one for times of a
    CPU runtime that the user asked for without naming the runtime.
    """
    answers = [measured_text(record) if answers_by_timing(record) else "-" for record in records]
    others = [record if is_timed(record) and not answers_by_timing(record) else None for record in records]
    asked = [measured_text(record) if record and not is_check(record) else "-" for record in others]
    chips = dict.fromkeys(latency.chip for latency in map(headline, records) if latency and latency.chip)
    return [
        *some_column(metrics.METRICS[HEADLINE].column, answers),
        *(_estimate_column(records, chip) for chip in chips),
        *some_column("this host ms", asked, "this\nhost ms"),
    ]


def _estimate_column(records: Sequence[Record], chip: str, drop_order: int = 0) -> Column:
    texts = ["-" if estimate(record, chip) is None else estimate_text(record, chip) for record in records]
    texts = [text.split(" ")[0] for text in texts] if drop_order else texts
    return Column(estimate_head(chip), texts, True, estimate_head(chip).replace(" (", "\n("), drop_order)


def share_columns(records: Sequence[Record]) -> list[Column]:
    """Return the shares of the ops and of the cost on the Neural Engine: those that Core ML planned for this machine, and
    those predicted for the chip that the user ships for.
    """
    plans = [_share_texts(records, "planned", share) for share in _SHARES.values()]
    drop_order = OTHER_CHIPS if any(set(texts) - {"-"} for texts in plans) else 0
    found = []
    for word, texts in zip(_SHARES, plans):
        found += some_column(f"ANE {word} % (planned)", texts, f"ANE\n{word} %\n(planned)")
    for word, share in _SHARES.items():
        texts = _share_texts(records, "predicted", share)
        found += some_column(f"ANE {word} % (predicted)", texts, f"ANE\n{word} %", drop_order)
    return found


_SHARES: dict[str, Callable[[Placement], float]] = {
    "ops": lambda entry: entry.ops.share("ane"),
    "cost": lambda entry: entry.cost_share.ane,
}


def _share_texts(
    records: Sequence[Record], kind: Kind, share: Callable[[Placement], float], chip: str | None = None
) -> list[str]:
    """Return each cell's share in percent, planned or predicted for a chip; None: for the chip that the user ships for."""
    found = []
    for record in records:
        on = None if kind == "planned" else chip or shipped_chip(record)
        entries = (entry for entry in record.placed(kind) if entry.ops.total and on in (None, entry.chip))
        found.append(next((f"{100 * share(entry):.0f}" for entry in entries), "-"))
    return found


def further_columns(records: Sequence[Record]) -> list[Column]:
    """Return the estimates for the other chips, their shares where they differ, and the time of a check on this host."""
    shown = {column.head for column in latency_columns(records)}
    known = estimated_chips(*records)
    chips = dict.fromkeys(str(entry.chip) for record in records for entry in record.placed("predicted"))
    estimates = [_estimate_column(records, chip, OTHER_CHIPS) for chip in chips if chip in known]
    found = [column for column in estimates if column.head not in shown]
    for word, share in _SHARES.items():
        first = _share_texts(records, "predicted", share)
        for chip, name in ((chip, name_chip(chip)) for chip in chips):
            texts = _share_texts(records, "predicted", share, chip)
            if texts != first:
                head, narrow = f"{name} ANE {word} % (predicted)", f"{name}\nANE\n{word} %"
                found += some_column(head, texts, narrow, OTHER_CHIPS)
    checks = [measured_text(record).split(" ")[0] if is_check(record) else "-" for record in records]
    return found + some_column(CHECK_HEAD, checks, "runs\nhere ms", CHECK)


def metric_columns(records: Sequence[Record], specs: Iterable[MetricSpec]) -> list[Column]:
    """Return a column for each of these metrics that some record has with a value different from its fallback; RANKED
    metrics always have one. A cell is `1.83 (1.82)` if fp32 torch has a figure too.
    """
    found = []
    for spec in specs:
        if spec.name == HEADLINE:
            found += latency_columns(records)
            continue
        cells = [spec.text(metrics.value(record, spec)) for record in records]
        without, torch = (
            [spec.text(record.read(name, spec.kind) if name else None) for record in records]
            for name in (spec.fallback, spec.torch)
        )
        if spec.name not in RANKED and all(text in ("-", other) for text, other in zip(cells, without)):
            continue
        if spec.torch:
            cells = [text if other == "-" else f"{text} ({other})" for text, other in zip(cells, torch)]
        head = spec.column + (" (torch)" if spec.torch else "")
        found.append(Column(head, cells, True, spec.narrow, spec.drop_order and MINOR + spec.drop_order))
    return found


def estimate_head(chip: str) -> str:
    return f"{name_chip(chip)} ms (est.)"


def estimate_text(record: Record, chip: str) -> str:
    """Return an estimate as `1.35 (0.81 to 3.8)`, `not estimated` if the record gives a reason, or `-`."""
    known = estimate(record, chip)
    if known is None:
        entries = [entry for entry in record.placed("predicted") if entry.chip == chip]
        return "not estimated" if any(entry.not_estimated for entry in entries) else "-"
    at, low, high = known.ms, known.low, known.high
    return f"{at:.3g}" + (f" ({low:.2g} to {high:.2g})" if low is not None and high is not None else "")


def _model_names(records: list[Record], axes: list[str]) -> list[str]:
    """Return the model names, with a row's label added unless all rows share it or a column has it."""
    labels = [list_row_labels(record) for record in records]
    differ = len(set(map(tuple, labels))) > 1
    names = []
    for record, label in zip(records, labels):
        shown = [f"{axis}={record.cell.get(axis)}" for axis in axes]
        marks = [f"[{word}]" for word in label if differ and word not in shown]
        names.append(" ".join([str(record.cell.get("model", "-")), *marks]))
    return names


def list_head_lines(records: list[Record]) -> list[str]:
    """Return the lines above the table: counts, settings that differ from the defaults, the timing, labels."""
    statuses = ", ".join(f"{n} {status}" for status, n in Counter(record.status.value for record in records).items())
    lines = [f"sweep {records[0].sweep}: {count(len(records), 'cell')}, {statuses}"]
    if changed := split_settings(records)[0]:
        lines.append(f"all cells: {setting_words(changed)}; else the defaults")
    lines += _list_kinds(records)
    if labels := Counter(word for record in records for word in list_row_labels(record)):
        some = (word if n == len(records) else f"{word} in {n} of {len(records)} cells" for word, n in labels.items())
        lines.append("note: " + ", ".join(some))
    return lines


def _list_kinds(records: list[Record]) -> list[str]:
    """Return a line for each kind of latency that the table has: where it was measured, or for which chip it is estimated."""
    asked = [record for record in records if is_timed(record) and not is_check(record)]
    lines, places = [], []
    for name in _list_runtimes(asked):
        ran = [record for record in asked if record.realised.get("runtime") == name]
        hosts = dict.fromkeys(record.host.get("chip") or "this machine" for record in ran)
        places.append((traits(name).measured or f"{name} on this host").replace("{chip}", " and ".join(hosts)))
    if places:
        name = "latency" if any(map(answers_by_timing, asked)) else "this host ms"
        words = f"{name}: measured, median ± IQR, {_processes_text(asked)}{' or '.join(places)}"
        without = any(record.realised.get("compute_units") is None for record in asked)
        varied = without and "compute_units" in varying_axes(records)
        lines.append(words + ("; compute_units changes only what runs under Core ML" if varied else ""))
    if chips := " and ".join(dict.fromkeys(name_chip(chip) for chip in map(shipped_chip, records) if chip)):
        estimated = any(latency and latency.kind == "estimated" for latency in map(headline, records))
        words = f"latency: estimated for {chips}; " if estimated else ""
        lines.append(f"{words}ANE shares: predicted for {chips} (`ane-sweep help kinds`)")
    return lines


def list_not_estimated(records: Sequence[Record]) -> list[str]:
    """Return a sentence for each reason why cells have no estimated latency, with its chips and number of cells."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for record in records:
        for entry in record.placed("predicted"):
            reason = (entry.not_estimated or "").removeprefix(f"{entry.chip}: ")
            if reason:
                found[reason].append((str(entry.chip), record.cell_key))
    return [
        f"not estimated for {', '.join(dict.fromkeys(name_chip(chip) for chip, _ in pairs))}, "
        f"{_count_of({cell for _, cell in pairs}, records)}: {reason}"
        for reason, pairs in found.items()
    ]


def _count_of(cells: Collection[str], records: Sequence[Record]) -> str:
    return "all cells" if len(cells) == len(records) > 1 else f"{len(cells)} of {count(len(records), 'cell')}"


def split_settings(records: Sequence[Record]) -> tuple[dict[str, object], dict[str, object]]:
    """Return (shared settings that differ from the defaults, other shared settings)."""
    shown = {"model", "family", "size", *varying_axes(list(records))}
    if all(record.weights.kind == "own" for record in records):
        shown.add("weights")  # "pretrained" only means that no others were asked for
    first, *others = [flat_cell(record) for record in records]
    shared = {key: value for key, value in first.items() if key not in shown and not key.startswith(_NESTED)}
    shared = {key: value for key, value in shared.items() if all(cell.get(key) == value for cell in others)}
    usual = help.defaults()
    default = {key: value for key, value in shared.items() if key in usual and usual[key] == value}
    return {key: value for key, value in shared.items() if key not in default}, default


def setting_words(settings: dict[str, object]) -> str:
    """Return each setting as `key=value`, as a user would type it."""
    return " ".join(f"{as_typed(key)}={axis_text(value)}" for key, value in settings.items())


def list_row_labels(record: Record) -> list[str]:
    """Return the caveats of a row's figures, as short labels."""
    words = ["stand-in, no Mac"] if record.host.get("stand_in") else []
    if has_random_weights(record):
        words.append("weights=random" if record.weights.kind == "random" else "random weights")
    return words + (["texts=synthetic"] if record.realised.get("texts") == "synthetic" else [])


def latency_text(record: Record) -> str:
    """Return the headline latency in ms: measured as `measured_text` has it, estimated with its band; `-` without one."""
    found = headline(record)
    if found is None:
        return "-"
    return measured_text(record) if found.kind == "measured" else estimate_text(record, str(found.chip))


def measured_text(record: Record) -> str:
    """Return the time measured on this host and its interquartile range in ms with meaningful decimals: `40.55 ± 0.81`.

    If the range exceeds the value, the text is `70 [IQR 398]`.
    """
    at, iqr = measured_ms(record), record.value("latency_iqr_ms")
    if at is None:
        return "-"
    decimals = 1 if at >= 100 else 2 if at >= 1 else 3
    if iqr is None:
        return f"{at:.{decimals}f}"
    if iqr > at:  # then its decimals mean nothing, and nothing lies symmetrically about it
        at_text, iqr_text = (f"{value:.0f}" if value >= 10 else f"{value:.2g}" for value in (at, iqr))
        return f"{at_text} [IQR {iqr_text}]"
    return f"{at:.{decimals}f} ± {iqr:.{decimals}f}"


def status_text(record: Record) -> str:
    """Return the status and, unless ok, the beginning of the reason; the whole reason is below the table."""
    if record.status is Status.OK or not record.reason:
        return record.status.value
    return f"{record.status.value}: {textwrap.shorten(record.reason, REASON_LIMIT, placeholder=' ...')}"


def verdict_text(record: Record) -> str:
    """Return the verdict as `agrees (ane)`, `disagrees (cpu)`, `unavailable`; `-` without Core ML."""
    observed = record.realised.get("observed")
    return str(record.realised.get("verdict") or "-") + (f" ({observed})" if observed else "")


def _list_runtimes(records: list[Record]) -> list[str]:
    return list(dict.fromkeys(str(r.realised["runtime"]) for r in records if is_timed(r) and r.realised.get("runtime")))


def _processes_text(records: list[Record]) -> str:
    """Return the number of processes that timed a cell if it is more than one: then figures are medians over them."""
    counts = sorted({int(record.value("latency_processes") or 1) for record in records if record.timings})
    span = " to ".join(dict.fromkeys(map(str, (counts[0], counts[-1])))) if counts else "1"
    return "" if span == "1" else f"of {span} processes a cell, "


def axis_text(value: object) -> str:
    if isinstance(value, (str, int, float, list)):
        return format_value(value)
    return "-" if value is None else json.dumps(value)
