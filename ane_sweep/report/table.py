"""The table of a sweep: its columns, as Markdown for a README, as JSON for scripts; screen.py has it for terminals.

One row per cell. Columns: the model, every other varying axis, latency, PSNR, package size (and bits per weight, if
precision varies), status. Settings that all rows share are above the table, warnings below it.
"""

import json
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ane_sweep import outward
from ane_sweep.bridge import metrics
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.metrics import RANKED, MetricSpec
from ane_sweep.bridge.record import Record, Status, as_typed, flat_cell, has_random_weights, varying_axes
from ane_sweep.bridge.runtimes import traits
from ane_sweep.placement.types import Placement
from ane_sweep.planner import help
from ane_sweep.report import blocks
from ane_sweep.report.doubts import doubts
from ane_sweep.results.headline import HEADLINE, estimate, estimated_chips, headline, is_timed
from ane_sweep.terminal import count

_HEADS = {"compute_units": "units"}
PREDICTED, COST = "ANE ops % (predicted)", "ANE planner cost % (predicted)"
VERDICT = "ran where asked"
_NESTED = ("model_options.", "precision_options.", "limits.")  # follow from the option, or from the stage
REASON_LIMIT = 60


@dataclass
class Column:
    """One column of text; `cells` has an entry per record."""

    head: str
    cells: list[str]
    numeric: bool = False

    def width(self) -> int:
        return max(len(text) for text in (self.head, *self.cells))


def list_columns(records: list[Record], estimates: bool = False) -> list[Column]:
    """Return the table as columns, the same for every output format; with `estimates`, also the share of the planner
    cost and a column per chip.
    """
    axes = varying_axes(records)
    found = [Column("model", _model_names(records, axes))]
    for axis in axes:
        if axis != "model":
            values = [flat_cell(record).get(axis) for record in records]
            if axis == "chunks":  # with what the chunker chose for `auto`: `auto (2)`
                chosen = [record.realised.get("chunks") for record in records]
                values = [
                    f"auto ({n})" if value == "auto" and n is not None else value for value, n in zip(values, chosen)
                ]
            numeric = all(isinstance(value, (int, float)) for value in values)
            found.append(Column(_HEADS.get(axis, axis), [axis_text(v) for v in values], numeric))
    if len(_list_runtimes(records)) > 1 and "runtime" not in axes:
        found.append(Column("ran on", [str(record.realised.get("runtime") or "-") for record in records]))
    varying = [s for s in metrics.shown_in("table") if any(axis.startswith(s.varying) for axis in ["", *axes])]
    found += metric_columns(records, varying)
    shares = [by_chip(record, lambda entry: entry.ops.share("ane")) or "-" for record in records]
    found += [Column(PREDICTED, shares, True)] if set(shares) - {"-"} else []
    if any(record.realised.get("verdict") for record in records):
        found.append(Column(VERDICT, [verdict_text(record) for record in records]))
    if estimates:
        costs = [by_chip(record, lambda entry: entry.cost_share.ane) or "-" for record in records]
        found += [Column(COST, costs, True)] if set(costs) - {"-"} else []
        for chip in estimated_chips(*records):
            texts = [estimate_text(record, chip).split(" (")[0] for record in records]
            found.append(Column(estimate_head(chip), texts, True))
    found.append(Column("status", [status_text(record) for record in records]))
    return found


def metric_columns(records: Sequence[Record], specs: Iterable[MetricSpec]) -> list[Column]:
    """Return a column for each of these metrics that some record has with a value different from its fallback; RANKED
    metrics always have one. A cell is `1.83 (1.82)` if fp32 torch has a figure too.
    """
    found = []
    for spec in specs:
        if spec.name == HEADLINE:
            found.append(Column(spec.column, [latency_text(record) for record in records], True))
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
        found.append(Column(spec.column + (" (torch)" if spec.torch else ""), cells, True))
    return found


def estimate_head(chip: str) -> str:
    return f"{chip} ms (estimated)"


def estimate_text(record: Record, chip: str) -> str:
    """Return an estimate as `1.35 (0.81 to 3.8)`, `not estimated` if the record gives a reason, or `-`."""
    known = estimate(record, chip)
    if known is None:
        entries = [entry for entry in record.placed("predicted") if entry.chip == chip]
        return "not estimated" if any(entry.not_estimated for entry in entries) else "-"
    at, low, high = known
    return f"{at:.3g}" + (f" ({low:.2g} to {high:.2g})" if low is not None and high is not None else "")


def by_chip(record: Record, share: Callable[[Placement], float]) -> str:
    """Return a share in each prediction in percent, once if all chips agree; "" if there is no prediction."""
    entries = [entry for entry in record.placed("predicted") if entry.ops.total]
    shares = {entry.chip: f"{100 * share(entry):.0f}" for entry in entries}
    if len(set(shares.values())) <= 1:
        return next(iter(shares.values()), "")
    return ", ".join(f"{chip} {percent}" for chip, percent in shares.items())


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
    counts = Counter(record.status.value for record in records)
    statuses = ", ".join(f"{n} {s}" for s, n in counts.items())
    lines = [f"sweep {records[0].sweep}: {count(len(records), 'cell')}, {statuses}"]
    if changed := split_settings(records)[0]:
        lines.append(f"all cells: {setting_words(changed)}; else the defaults")
    runtimes = _list_runtimes(records)
    if runtimes:
        places = []
        for name in runtimes:
            chips = dict.fromkeys(
                r.host.get("chip") or "this machine" for r in records if r.realised.get("runtime") == name
            )
            places.append((traits(name).measured or f"{name} on this host").replace("{chip}", " and ".join(chips)))
        words = f"latency: measured, median ± IQR, {_processes_text(records)}{' or '.join(places)}"
        if any(r.realised and r.realised.get("compute_units") is None for r in records):
            mixed = any(traits(name).coreml for name in runtimes)
            words += "; units not applicable" + (" where it is not Core ML" if mixed else "")
        lines.append(words)
    predicted = dict.fromkeys(str(entry.chip) for record in records for entry in record.placed("predicted"))
    if predicted:
        lines.append(f"placement: predicted for {', '.join(predicted)}; each record's `placement` has the reasons")
    lines += list_not_estimated(records)
    labels = Counter(word for record in records for word in list_row_labels(record))
    if labels:
        some = (word if n == len(records) else f"{word} in {n} of {len(records)} cells" for word, n in labels.items())
        lines.append("note: " + ", ".join(some))
    return lines


def list_not_estimated(records: Sequence[Record]) -> list[str]:
    """Return a sentence for each reason why cells have no estimated latency, with its chips and number of cells."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for record in records:
        for entry in record.placed("predicted"):
            if reason := (entry.not_estimated or "").removeprefix(f"{entry.chip}: "):
                found[reason].append((str(entry.chip), record.cell_key))
    return [
        f"not estimated for {', '.join(dict.fromkeys(chip for chip, _ in pairs))}, "
        f"{len({cell for _, cell in pairs})} of {len(records)} cells: {reason}"
        for reason, pairs in found.items()
    ]


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
    """Return the headline latency and its interquartile range in ms with meaningful decimals: `40.55 ± 0.81`.

    If the range exceeds the value, the text is `70 [IQR 398]`.
    """
    found = headline(record)
    if found is None:
        return "-"
    decimals = 1 if found.ms >= 100 else 2 if found.ms >= 1 else 3
    if found.iqr is None:
        return f"{found.ms:.{decimals}f}"
    if found.iqr > found.ms:  # then its decimals mean nothing, and nothing lies symmetrically about it
        ms, iqr = (f"{value:.0f}" if value >= 10 else f"{value:.2g}" for value in (found.ms, found.iqr))
        return f"{ms} [IQR {iqr}]"
    return f"{found.ms:.{decimals}f} ± {found.iqr:.{decimals}f}"


def status_text(record: Record) -> str:
    """Return the status and, unless ok, the beginning of the reason; the whole reason is below the table."""
    if record.status is Status.OK or not record.reason:
        return record.status.value
    return f"{record.status.value}: {textwrap.shorten(record.reason, REASON_LIMIT, placeholder=' ...')}"


def verdict_text(record: Record) -> str:
    """Return the verdict as `agrees (ane)`, `disagrees (cpu)`, `unavailable`; `-` without Core ML."""
    observed = record.realised.get("observed")
    return str(record.realised.get("verdict") or "-") + (f" ({observed})" if observed else "")


def as_markdown(records: list[Record], notes: bool = True) -> str:
    """Return the table as Markdown; with `notes`, also the lines above and below it."""
    if not records:
        return "no records\n"
    parts = list_columns(records)
    rows = [[part.cells[index] for part in parts] for index in range(len(records))]
    table = blocks.markdown(blocks.Grid([part.head for part in parts], rows, [part.numeric for part in parts]))[:-1]
    if not notes:
        return table
    above = "  \n".join(map(outward.markdown, list_head_lines(records)))
    below = "".join(f"{number}. {outward.markdown(line)}\n" for number, line in enumerate(doubts(records), 1))
    return f"{above}\n\n{table}" + (f"\n{below}" if below else "")


def as_json(records: list[Record]) -> str:
    """Return one JSON array of whole records, in ASCII, so that no control character reaches a terminal."""
    return json.dumps([record.to_dict() for record in records], indent=1, allow_nan=False) + "\n"


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
