"""The table of a sweep: its columns, as Markdown for a README, as JSON for scripts; screen.py has it for terminals.

One row a cell. Columns: the model, every other axis that varies, latency, PSNR, package size (and bits a weight, where
precision varies), status. What is equal in all rows is said once above the table, what deserves doubt below it.
"""

import json
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ane_sweep import outward
from ane_sweep.bridge.figures import TASK_FIGURES, Placement
from ane_sweep.bridge.key import worded
from ane_sweep.bridge.record import Record, Status, as_typed, flat_cell, has_random_weights, varying_axes, worst_psnr
from ane_sweep.bridge.runtimes import traits
from ane_sweep.planner import help
from ane_sweep.report import blocks
from ane_sweep.report.doubts import doubts
from ane_sweep.terminal import count

_HEADS = {"compute_units": "units"}
LATENCY, PACKAGE, BITS, PREDICTED = "latency ms", "package MB", "bits a weight", "ANE ops % (predicted)"
VERDICT = "ran where asked"
_NESTED = ("model_options.", "precision_options.", "limits.")  # follow from the option, or from the stage
REASON_LIMIT = 60


@dataclass
class Column:
    """One column as text; `cells` has an entry per record."""

    head: str
    cells: list[str]
    numeric: bool = False

    def width(self) -> int:
        return max(len(text) for text in (self.head, *self.cells))


def columns(records: list[Record]) -> list[Column]:
    """The table as columns, the same for every output format."""
    axes = varying_axes(records)
    found = [Column("model", _models(records, axes))]
    for axis in axes:
        if axis != "model":
            values = [_asked(record, axis) for record in records]
            numeric = all(isinstance(value, (int, float)) for value in values)
            found.append(Column(_HEADS.get(axis, axis), [axis_text(v) for v in values], numeric))
    if len(_runtimes(records)) > 1 and "runtime" not in axes:
        found.append(Column("ran on", [str(record.realised.get("runtime") or "-") for record in records]))
    found.append(Column(LATENCY, [latency_text(record) for record in records], True))
    if any(record.value("throughput_per_s") is not None for record in records):
        found.append(Column("inputs/s", [_number(record.value("throughput_per_s"), 1) for record in records], True))
    found.append(Column("PSNR dB", [_number(record.value("psnr_db"), 1) for record in records], True))
    found += _worst_psnr_column(records)
    found += task_columns(records)
    found.append(Column(PACKAGE, [_megabytes(record.value("package_bytes")) for record in records], True))
    bits = [record.value("bits_per_weight") for record in records]
    if any(bits) and any(axis.startswith("precision") for axis in axes):
        found.append(Column(BITS, [_number(value, 2) for value in bits], True))
    if any(_predicted(record) for record in records):
        found.append(Column(PREDICTED, [_predicted(record) or "-" for record in records], True))
    if any(record.realised.get("verdict") for record in records):
        found.append(Column(VERDICT, [verdict_text(record) for record in records]))
    found.append(Column("status", [status_text(record) for record in records]))
    return found


def _worst_psnr_column(records: list[Record]) -> list[Column]:
    """Return a column of the worst output's PSNR, if that is another one than that of all outputs in any row."""
    worst = [_number(worst_psnr(record), 1) for record in records]
    differs = worst != [_number(record.value("psnr_db"), 1) for record in records]
    return [Column("PSNR dB, worst output", worst, True)] if differs else []


_TASKS = {  # what a score is about first, and what fp32 torch says there
    "perplexity": "perplexity_torch", "accuracy": "accuracy_torch", "label_agreement": None, "task_top1_agreement": None,
    "embedding_rank_agreement": None,
}  # fmt: skip


def task_columns(records: list[Record]) -> list[Column]:
    """Of each score that cells have (score=...) its main figure; of one that torch has too, both: `1.83 (1.82)`."""
    found = []
    for name, torchs in _TASKS.items():
        if any(record.value(name) is not None for record in records):
            head = name.removeprefix("task_").replace("_", " ") + (" (torch)" if torchs else "")
            found.append(Column(head, [_task_text(record, name, torchs) for record in records], True))
    return found


def _task_text(record: Record, name: str, torchs: str | None) -> str:
    digits, own, theirs = TASK_FIGURES[name], record.value(name), record.value(torchs) if torchs else None
    return _number(own, digits) + ("" if theirs is None else f" ({_number(theirs, digits)})")


def _predicted(record: Record) -> str:
    """`98`, or `m1 0, m4 98` where chips differ: the share of ops predicted to run on the ANE."""
    return by_chip(record, lambda entry: entry.ops.share("ane"))


def by_chip(record: Record, share: Callable[[Placement], float]) -> str:
    """A share of each prediction in percent, once where all chips agree; "" where nothing is predicted."""
    entries = [entry for entry in record.placed("predicted") if entry.ops.total]
    shares = {entry.chip: f"{100 * share(entry):.0f}" for entry in entries}
    if len(set(shares.values())) <= 1:
        return next(iter(shares.values()), "")
    return ", ".join(f"{chip} {percent}" for chip, percent in shares.items())


def _asked(record: Record, axis: str) -> Any:
    """The request's value; where it leaves the choice to the chunker, with what that came to: `auto (2)`."""
    value = flat_cell(record).get(axis)
    settled = record.realised.get("chunks")
    return f"auto ({settled})" if (axis, value) == ("chunks", "auto") and settled is not None else value


def _models(records: list[Record], axes: list[str]) -> list[str]:
    """Model names; a label stands beside its own row, unless all rows share it or an axis column says it already."""
    labels = [row_labels(record) for record in records]
    if len({tuple(label) for label in labels}) == 1:
        labels = [[] for _ in records]
    names = []
    for record, label in zip(records, labels):
        said = [f"{axis}={record.cell.get(axis)}" for axis in axes]
        names.append(" ".join([str(record.cell.get("model", "-")), *(f"[{w}]" for w in label if w not in said)]))
    return names


def head_lines(records: list[Record]) -> list[str]:
    """What holds for the whole table: counts, the settings that are not the default ones, what was timed on what, labels."""
    counts = Counter(record.status.value for record in records)
    lines = [
        f"sweep {records[0].sweep}: {count(len(records), 'cell')}, " + ", ".join(f"{n} {s}" for s, n in counts.items())
    ]
    if changed := settings(records)[0]:
        lines.append(f"all cells: {said(changed)}; else the defaults")
    runtimes = _runtimes(records)
    if runtimes:
        words = (
            "latency: measured, median ± IQR, "
            + _processes(records)
            + " or ".join(_ran_on(name, records) for name in runtimes)
        )
        if any(r.realised and r.realised.get("compute_units") is None for r in records):
            mixed = any(traits(name).coreml for name in runtimes)
            words += "; units not applicable" + (" where it is not Core ML" if mixed else "")
        lines.append(words)
    chips = dict.fromkeys(str(entry.chip) for record in records for entry in record.placed("predicted"))
    if chips:
        lines.append(f"placement: predicted for {', '.join(chips)}; each record's `placement` has the reasons")
    lines += not_estimated(records)
    labels = Counter(word for record in records for word in row_labels(record))
    if labels:
        some = (word if n == len(records) else f"{word} in {n} of {len(records)} cells" for word, n in labels.items())
        lines.append("note: " + ", ".join(some))
    return lines


def not_estimated(records: Sequence[Record]) -> list[str]:
    """A sentence a reason why cells have no estimated latency, with the chips that it is of and how many cells."""
    found: dict[str, dict[str, None]] = {}
    cells: dict[str, set[str]] = {}
    for record in records:
        for entry in record.placed("predicted"):
            reason = (entry.not_estimated or "").removeprefix(f"{entry.chip}: ")
            if reason:
                found.setdefault(reason, {})[str(entry.chip)] = None
                cells.setdefault(reason, set()).add(record.cell_key)
    return [
        f"not estimated for {', '.join(chips)}, {len(cells[reason])} of {len(records)} cells: {reason}"
        for reason, chips in found.items()
    ]


def settings(records: Sequence[Record]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what all cells share and no plain command would ask for, what they share and is as by default)."""
    flat, told = [flat_cell(record) for record in records], {"model", "family", "size", *varying_axes(list(records))}
    shared = {key: value for key, value in flat[0].items() if key not in told and not key.startswith(_NESTED)}
    shared = {key: value for key, value in shared.items() if all(cell.get(key) == value for cell in flat)}
    usual = help.defaults()
    plain = {key: value for key, value in shared.items() if key in usual and usual[key] == value}
    if all(record.weights.kind == "own" for record in records):
        shared.pop("weights", None)  # "pretrained" only means that no others were asked for
        plain.pop("weights", None)
    return {key: value for key, value in shared.items() if key not in plain}, plain


def said(settings: dict[str, Any]) -> str:
    """`key=value` of each, as it is typed."""
    return " ".join(f"{as_typed(key)}={axis_text(value)}" for key, value in settings.items())


def row_labels(record: Record) -> list[str]:
    """What makes a row's figures less than they seem, in the words one would type."""
    words = ["stand-in, no Mac"] if record.host.get("stand_in") else []
    if has_random_weights(record):
        words.append("weights=random" if record.weights.kind == "random" else "random weights")
    return words + (["texts=synthetic"] if record.realised.get("texts") == "synthetic" else [])


def latency_text(record: Record) -> str:
    """`40.55 ± 0.81`: median and interquartile range in milliseconds with the decimals that the median bears; `70 [IQR 398]`
    where the range is more than the value."""
    median, spread = record.value("latency_median_ms"), record.value("latency_iqr_ms")
    if median is None:
        return "-"
    decimals = 1 if median >= 100 else 2 if median >= 1 else 3
    if (
        spread is not None and spread > median
    ):  # then its decimals mean nothing, and nothing lies symmetrically about it
        return " [IQR ".join(f"{value:.0f}" if value >= 10 else f"{value:.2g}" for value in (median, spread)) + "]"
    return _number(median, decimals) + ("" if spread is None else f" ± {_number(spread, decimals)}")


def status_text(record: Record) -> str:
    """The status and, unless ok, the beginning of the reason; the whole reason stands below the table."""
    if record.status is Status.OK or not record.reason:
        return record.status.value
    return f"{record.status.value}: {textwrap.shorten(record.reason, REASON_LIMIT, placeholder=' ...')}"


def verdict_text(record: Record) -> str:
    """`agrees (ane)`, `disagrees (cpu)`, `unavailable`; nothing where Core ML took no part."""
    observed = record.realised.get("observed")
    return str(record.realised.get("verdict") or "-") + (f" ({observed})" if observed else "")


def as_markdown(records: list[Record], notes: bool = True) -> str:
    """The same table as Markdown; with `notes`, what stands above and below it too."""
    if not records:
        return "no records\n"
    parts = columns(records)
    rows = [[part.cells[index] for part in parts] for index in range(len(records))]
    table = blocks.markdown(blocks.Grid([part.head for part in parts], rows, [part.numeric for part in parts]))[:-1]
    if not notes:
        return table
    above = "  \n".join(map(outward.markdown, head_lines(records)))
    below = "".join(f"{number}. {outward.markdown(line)}\n" for number, line in enumerate(doubts(records), 1))
    return f"{above}\n\n{table}" + (f"\n{below}" if below else "")


def as_json(records: list[Record]) -> str:
    """One JSON array of whole records; in ASCII, so that a terminal obeys none of it."""
    return json.dumps([record.to_dict() for record in records], indent=1, allow_nan=False) + "\n"


def _runtimes(records: list[Record]) -> list[str]:
    timed = [r for r in records if r.value("latency_median_ms") is not None]
    return list(dict.fromkeys(str(r.realised["runtime"]) for r in timed if r.realised.get("runtime")))


def _processes(records: list[Record]) -> str:
    """How many processes timed a cell, where it was more than one: then figures are medians over them."""
    counts = sorted({int(record.value("latency_processes") or 1) for record in records if record.timings})
    if not counts or counts[-1] == 1:
        return ""
    span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"of {span} processes a cell, "


def _ran_on(runtime: str, records: list[Record]) -> str:
    measured = traits(runtime).measured or f"{runtime} on this host"
    chips = dict.fromkeys(r.host.get("chip") or "this machine" for r in records if r.realised.get("runtime") == runtime)
    return measured.replace("{chip}", " and ".join(chips) or "this machine")


def axis_text(value: Any) -> str:
    return "-" if value is None else worded(value) if isinstance(value, (str, int, float, list)) else json.dumps(value)


def _number(value: Any, decimals: int) -> str:
    if not isinstance(value, (int, float)):
        return "-"
    return f"{value:.{decimals}f}"


def _megabytes(value: Any) -> str:
    """Bytes as decimal megabytes with three figures that count."""
    if not isinstance(value, (int, float)):
        return "-"
    millions = value / 1e6
    return f"{millions:.0f}" if millions >= 1000 else f"{millions:.1f}" if millions >= 1 else f"{millions:.3f}"
