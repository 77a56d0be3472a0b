"""What a tracker is told about a sweep: run names, params, tags, metrics and artifacts, from records alone.

Every axis of the request is a param of every run, whatever varied in its sweep, so that any two runs of any two sweeps
compare; which axes varied is the tag `ane_sweep.bridge.axes`. MLflow's compare page opens its parallel coordinates plot with the
first three params, by name, that differ between the runs, and with the first metric, in logged order, that all of them
have (v3.17, ParallelCoordinatesPlotPanel): so what follows from an axis (family, size, the options of a model) is a tag,
and the median latency is the first metric of every run that has one.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ane_sweep import outward
from ane_sweep.bridge import autopsy
from ane_sweep.bridge.cell import AXES
from ane_sweep.bridge.figures import Artifact, Metric, Placement
from ane_sweep.bridge.record import Record, Status, flat_cell

FIRST_METRIC = "measured.latency_median_ms"
FINISHED = (Status.OK, Status.DEGRADED)
PARAM_LIMIT, TAG_LIMIT, KEY_LIMIT = 6000, 8000, 250  # MLflow refuses longer ones
FORM = 2  # of what is told: a run that was logged in an earlier form is logged again


@dataclass
class RunText:
    """One run as the tracker will show it; `metrics` are (key, value, step) in the order to log them."""

    name: str
    finished: bool
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[tuple[str, float, int]] = field(default_factory=list)
    artifacts: dict[str, str] = field(default_factory=dict)


def describe_cell(
    record: Record, axes: list[str], run_folder: Path, files: Sequence[Artifact] | None = None
) -> RunText:
    """The child run of one cell. `axes` are the varying ones; what is no axis of the request becomes a tag.

    files   the record's artifacts where they lie, if the record itself no longer says so
    """
    cell = flat_cell(record)
    params = param_names(cell, axes)
    tags = {
        "ane_sweep.bridge.axes": json.dumps({axis: cell.get(axis) for axis in axes}),
        "ane_sweep.sweep": record.sweep,
        "ane_sweep.cell_key": record.cell_key,
        "ane_sweep.status": record.status,
        "ane_sweep.reason": record.reason,
        "ane_sweep.texts": record.realised.get("texts"),
        "ane_sweep.runtime": record.realised.get("runtime"),
        "ane_sweep.metrics": _metric_notes(record),
        "mlflow.note.content": cell_note(record),
    }
    for group, values in (
        ("cell", {key: value for key, value in cell.items() if key not in params}),
        ("weights", vars(record.weights)),
        ("realised", record.realised),
        ("host", record.host),
        ("toolchain", record.toolchain),
    ):
        tags |= {f"{group}.{key}": value for key, value in values.items()}
    return RunText(
        name=cell_name(record, axes)[:KEY_LIMIT],
        finished=record.status in FINISHED,
        params={_key(name): _text(cell.get(name), PARAM_LIMIT) for name in params},
        tags=clean_tags(tags),
        metrics=cell_metrics(record),
        artifacts=cell_artifacts(record, run_folder, record.artifacts if files is None else files),
    )


def param_names(cell: dict[str, Any], axes: list[str]) -> list[str]:
    """The axes, also those that this request does not know, how it is timed, and whatever else varies in its sweep."""
    plain = (name for name in cell if "." not in name or name.startswith("latency."))
    return [name for name in dict.fromkeys([*AXES, *plain, *axes]) if name not in ("family", "size")]


def describe_sweep(records: list[Record], axes: list[str], info: dict[str, Any]) -> RunText:
    """The parent run: the axes as params, all values where they vary; counts by status; latency against chunks, a metric
    per series.

    info: what run.json holds of the sweep (stamp, command, started, finished), or {}.
    """
    counts = Counter(str(record.status) for record in records)
    command = info.get("command")
    command = " ".join(map(str, command)) if isinstance(command, list) else command
    cells = [flat_cell(record) for record in records]
    summary = ", ".join(f"{n} {status}" for status, n in counts.most_common())
    values = {axis: sorted({_text(cell.get(axis), 80) for cell in cells}) for axis in axes}
    params = param_names(cells[0] if cells else {}, axes)
    tags = {
        "ane_sweep.sweep": records[0].sweep if records else info.get("stamp"),
        "ane_sweep.words": command,
        "ane_sweep.bridge.axes": json.dumps(values),
        "ane_sweep.weights": ", ".join(sorted({r.weights.kind or "unknown" for r in records})),
        "ane_sweep.texts": ", ".join(sorted({str(r.realised["texts"]) for r in records if "texts" in r.realised})),
        **_shared(records, "host"),
        **_shared(records, "toolchain"),
        "ane_sweep.imported": (info.get("imported") or {}).get("identity"),
        "mlflow.note.content": f"{len(records)} cells: {summary}." + (f"\n\n    {command}" if command else ""),
    }
    return RunText(
        name=f"sweep {tags['ane_sweep.sweep']}" + _labels(records),
        finished=True,
        params={_key(name): _text(_all(cell.get(name) for cell in cells), PARAM_LIMIT) for name in params},
        tags=clean_tags(tags),
        metrics=[("cells", float(len(records)), 0)]
        + [(f"cells.{status}", float(n), 0) for status, n in counts.items()]
        + latency_series(records, axes),
        artifacts={},
    )


def cell_name(record: Record, axes: list[str]) -> str:
    """`minilm split_einsum chunks=2`, with what makes its figures less than they seem: [weights=random]."""
    cell = flat_cell(record)
    words = [str(cell.get("model", "cell"))]
    for axis in axes:
        value = cell.get(axis)
        if axis != "model" and value is not None:
            words.append(value if isinstance(value, str) else f"{axis}={_text(value, 40)}")
    return " ".join(words) + _labels([record])


def _labels(records: list[Record]) -> str:
    random = any(r.weights.kind == "random" for r in records)
    synthetic = any(r.realised.get("texts") == "synthetic" for r in records)
    scripted = any(r.host.get("stand_in") for r in records)
    return " [stand-in]" * scripted + " [weights=random]" * random + " [texts=synthetic]" * synthetic


def cell_note(record: Record) -> str | None:
    """The run's description in Markdown: why it failed or deserves doubt; None when there is nothing to say."""
    lines = [] if record.status is Status.OK else [f"**{record.status}**: {record.reason or 'no reason recorded'}"]
    for stage in record.stages:
        if stage.reason and stage.reason != record.reason:
            lines.append(f"- {stage.stage} {stage.status}: {stage.reason}")
    if script := record.host.get("stand_in"):
        lines.append(f"- nothing of this was measured on a Mac: what Core ML would say came from the script {script}")
    if record.weights.kind == "random":
        lines.append("- weights are random: PSNR says nothing about the trained model, and latency may differ from it")
    if record.realised.get("texts") == "synthetic":
        lines.append("- inputs are seeded token ids, not text")
    return "\n".join(lines) or None


def metric_key(metric: Metric) -> str:
    """The figure's label as MLflow takes it."""
    return _key(metric.label)


def cell_metrics(record: Record) -> list[tuple[str, float, int]]:
    """(key, value, step 0) of every figure that is a finite number, median latency first."""
    found = {metric_key(metric): float(metric.value) for metric in record.metrics if metric.value is not None}
    ordered = sorted(found, key=lambda key: key != FIRST_METRIC)
    return [(key, found[key], 0) for key in ordered]


def latency_series(records: list[Record], axes: list[str]) -> list[tuple[str, float, int]]:
    """Median latency with step = chunks, a series per combination of the other varying axes."""
    points = []
    for record in records:
        value, chunks = record.value("latency_median_ms"), record.cell.get("chunks")
        chunks = record.realised.get("chunks") if chunks == "auto" else chunks
        if value is not None and isinstance(chunks, int):
            name = cell_name(record, [axis for axis in axes if axis != "chunks"])
            series = _key(name.replace("=", " ").replace("[", "").replace("]", ""))
            points.append((f"{FIRST_METRIC}/{series}"[:KEY_LIMIT], float(value), chunks))
    return points


def cell_artifacts(record: Record, run_folder: Path, files: Sequence[Artifact]) -> dict[str, str]:
    """Relative path -> text: record.json, placement.json as a table, the tail of each stage's stderr."""
    texts = {"record.json": json.dumps(record.to_dict(), indent=1, ensure_ascii=False) + "\n"}
    if record.placement:
        texts["placement.json"] = json.dumps(placement_table(record.placement), indent=1)
    for artifact in files:  # one row an op: placement.<kind>.<chip>.json
        if artifact.name.startswith("placement.") and Path(artifact.path).is_file():
            texts[artifact.name] = outward.redacted(Path(artifact.path).read_text(encoding="utf-8"))
    for stage in record.stages:
        path = Path(run_folder) / "tasks" / f"{stage.stage}-{(stage.key or '')[:12]}" / "stderr.txt"
        tail = autopsy.read_tail(path) if stage.key else ""
        if tail:
            texts[f"stderr/{stage.stage}.txt"] = outward.redacted(tail)
    return texts


def placement_table(placement: list[Placement]) -> dict[str, list]:
    """{columns, data}, the layout that MLflow's artifact viewer shows as a table; the whole is in record.json."""
    columns = ["kind", "chip", "compute_units", "cpu", "gpu", "ane", "total", "transitions"]
    said = ({**vars(entry), **vars(entry.ops)} for entry in placement)
    return {"columns": columns, "data": [[values[column] for column in columns] for values in said]}


def digest(record: Record, axes: list[str]) -> str:
    """Changes when the record, the axes of its sweep or FORM does: then a logged run is out of date."""
    return hashlib.sha256(f"{FORM}{record.to_json()}{axes}".encode()).hexdigest()[:16]


def clean_tags(tags: dict[str, Any]) -> dict[str, str]:
    """Tags as MLflow takes them: no nulls, legal keys, values cut to its limit."""
    return {_key(key): _text(value, TAG_LIMIT) for key, value in tags.items() if value not in (None, "", [], {})}


def _metric_notes(record: Record) -> str:
    notes = {
        metric_key(metric): " ".join(part for part in (metric.unit, metric.kind, metric.source) if part)
        for metric in record.metrics
    }
    return json.dumps(notes)


def _shared(records: list[Record], group: str) -> dict[str, Any]:
    """What all cells have in common of their host or toolchain, as tags."""
    each = [getattr(record, group) for record in records]
    return {
        f"{group}.{key}": value
        for key, value in (each[0] if each else {}).items()
        if all(e.get(key) == value for e in each)
    }


def _all(values: Iterable[Any]) -> str:
    """The value that all cells share, or each of them: `1, 2, 4`."""
    return ", ".join(dict.fromkeys(_text(value, PARAM_LIMIT) for value in values))


def _key(name: str) -> str:
    """A name MLflow takes. A slash is legal, but opens a section in its charts, and a stray one is refused."""
    return re.sub(r"[^\w.\-: ]", "_", name)[:KEY_LIMIT].strip(". ") or "_"


def _text(value: Any, limit: int) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[: limit - 4] + " ..."
