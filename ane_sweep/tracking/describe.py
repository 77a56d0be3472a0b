"""The description of a sweep for a tracker: run names, params, tags, metrics and artifacts, from records alone.

Every axis of the request is a param of every run, varying or not, so that any two runs of any two sweeps can be
compared; which axes varied is the tag `ane_sweep.axes`. MLflow's compare page opens its parallel coordinates plot with
the first three params, by name, that differ between the runs: so values that an axis determines (family, size) are
tags. The whole request, limits and the options of model and precision included, is request.json.
"""

import getpass
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ane_sweep import outward
from ane_sweep.bridge import autopsy
from ane_sweep.bridge.cell import AXES
from ane_sweep.bridge.figures import Artifact
from ane_sweep.bridge.record import Record, Status, flat_cell, has_random_weights
from ane_sweep.placement.types import Placement
from ane_sweep.results import timeline
from ane_sweep.tracking.figures import cell_metrics, latency_series
from ane_sweep.tracking.naming import cell_name, key, sweep_name, text

# MLflow draws a green tick for these, and a red cross for any other status
FINISHED = (Status.OK, Status.DEGRADED, Status.SKIPPED)
FAILED = "FAILED"
HARMLESS = (Status.OK, Status.DEGRADED, Status.REFUSED, Status.SKIPPED)  # to a sweep: it came to its end
PARAM_LIMIT, TAG_LIMIT = 6000, 8000  # MLflow refuses longer ones
FORM = 5  # of what is told: a run that was logged in an earlier form is logged again


@dataclass(frozen=True)
class Dataset:
    """The fields of mlflow.entities.Dataset; source, schema and profile are JSON."""

    name: str
    digest: str
    source: str
    profile: str
    source_type: str = "code"  # the sweep's reference makes them, of texts in the package or of a seed


@dataclass
class RunText:
    """One run as the tracker will show it; `metrics` are (key, value, step) in the order to log them."""

    name: str
    status: str = "FINISHED"
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[tuple[str, float, int]] = field(default_factory=list)
    artifacts: dict[str, str] = field(default_factory=dict)
    dataset: Dataset | None = None


def describe_cell(
    record: Record,
    axes: list[str],
    run_folder: Path,
    files: Sequence[Artifact] | None = None,
    widths: dict[str, int] | None = None,
) -> RunText:
    """Return the child run of one cell. `axes` are the varying ones; request.json has the other options.

    files    paths of the record's artifacts, if the record no longer has them
    widths   the widths of numbers, from naming.digits
    """
    cell = flat_cell(record)
    params = param_names(cell, axes)
    tags: dict[str, object] = {
        "ane_sweep.axes": json.dumps({axis: cell.get(axis) for axis in axes}),
        "ane_sweep.sweep": record.sweep,
        "ane_sweep.cell_key": record.cell_key,
        "ane_sweep.status": record.status,
        "ane_sweep.reason": record.reason,
        "ane_sweep.doubt": record.reason if record.status is Status.DEGRADED else None,
        "mlflow.note.content": cell_note(record),
    }
    for group, values in (
        ("cell", {name: cell.get(name) for name in ("family", "size")}),
        ("weights", vars(record.weights)),
        ("realised", record.realised),
        ("host", record.host),
        ("toolchain", record.toolchain),
    ):
        tags |= {f"{group}.{name}": value for name, value in values.items()}
    if record.weights.kind == "own":  # "pretrained" was asked for by nobody, and its code may bring anything
        cell["weights"] = record.weights.kind
    return RunText(
        name=cell_name(record, axes, widths),
        status="FINISHED" if record.status in FINISHED else FAILED,
        params={key(name): text(cell.get(name), PARAM_LIMIT) for name in params},
        tags=clean_tags(tags),
        metrics=cell_metrics(record),
        artifacts=cell_artifacts(record, run_folder, record.artifacts if files is None else files),
        dataset=scored_inputs(record),
    )


def scored_inputs(record: Record) -> Dataset | None:
    """Return the inputs that a cell was scored on, or None if it was not scored, or by a release that did not record them."""
    facts = record.realised
    if not (digest := facts.get("texts_digest")):
        return None
    kind, count = facts.get("texts"), facts.get("texts_count")
    source = {"model": record.cell.get("model"), "seed": record.cell.get("seed"), "texts": kind}
    made_up = kind is None  # pictures and sounds are made up, and named
    own = {"inputs": facts.get("inputs")} if made_up else {"tokens_per_row": record.cell.get("seq_len")}
    name = "made-up inputs" if made_up else f"{kind} texts"
    return Dataset(name, digest, json.dumps(source), json.dumps({"num_rows": count, **own}))


def source_tags(info: Mapping[str, object]) -> dict[str, str | None]:
    """Return the user who logs a sweep and the code that started it, as MLflow's tags.

    `info` is run.json, whose `source` has the commit of the folder that the sweep was started in. The user name, which
    no record contains, is LOGNAME or the account's, as in MLflow's own clients.
    """
    found = info.get("source")
    commit = found if isinstance(found, dict) else {}
    user = None
    with suppress(OSError, KeyError):  # a container's number without a name
        user = getpass.getuser()
    return {
        "mlflow.user": user,
        "mlflow.source.name": "ane-sweep",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": commit.get("commit"),
        "mlflow.source.git.dirty": "true" if commit.get("dirty") else None,
    }


def param_names(cell: Mapping[str, object], axes: list[str]) -> list[str]:
    """Return the names of a run's params: all axes, the options of timing, and the other varying options of its sweep."""
    plain = (name for name in cell if "." not in name or name.startswith("latency."))
    return [name for name in dict.fromkeys([*AXES, *plain, *axes]) if name not in ("family", "size")]


def describe_sweep(records: list[Record], axes: list[str], info: Mapping[str, object]) -> RunText:
    """Return the parent run: varying axes as params with all their values, counts by status, and measured latency over
    chunks, a metric per series.

    info: facts of the sweep from run.json (stamp, command, started, finished), or {}.
    """
    counts = Counter(str(record.status) for record in records)
    command, imported = info.get("command"), info.get("imported")
    command = " ".join(map(str, command)) if isinstance(command, list) else command
    cells = [flat_cell(record) | ({"weights": "own"} if record.weights.kind == "own" else {}) for record in records]
    summary = ", ".join(f"{n} {status}" for status, n in counts.most_common())
    values = {axis: sorted({text(cell.get(axis), 80) for cell in cells}) for axis in axes}
    params = {  # the value that all cells share, or all values: `1, 2, 4`
        name: ", ".join(dict.fromkeys(text(cell.get(name), PARAM_LIMIT) for cell in cells))
        for name in param_names(cells[0] if cells else {}, axes)
    }
    tags = {
        "ane_sweep.sweep": records[0].sweep if records else info.get("stamp"),
        "ane_sweep.words": command,
        "ane_sweep.axes": json.dumps(values),
        "ane_sweep.weights": ", ".join(sorted({r.weights.kind or "unknown" for r in records})),
        "ane_sweep.texts": ", ".join(sorted({str(r.realised["texts"]) for r in records if "texts" in r.realised})),
        **_shared(records, "host"),
        **_shared(records, "toolchain"),
        "ane_sweep.imported": imported.get("identity") if isinstance(imported, dict) else None,
        "mlflow.note.content": f"{len(records)} cells: {summary}." + (f"\n\n    {command}" if command else ""),
    }
    return RunText(
        name=sweep_name(records, axes, info.get("started")),
        status="FINISHED" if {record.status for record in records} <= set(HARMLESS) else FAILED,
        params={key(name): text(joined, PARAM_LIMIT) for name, joined in params.items()},
        tags=clean_tags(tags),
        metrics=[("cells", float(len(records)), 0)]
        + [(f"cells.{status}", float(n), 0) for status, n in counts.items()]
        + latency_series(records, axes),
    )


def cell_note(record: Record) -> str | None:
    """Return the run's description in Markdown with its failures and warnings, or None if it has none."""
    lines = [] if record.status is Status.OK else [f"**{record.status}**: {record.reason or 'no reason recorded'}"]
    further = [stage for stage in record.stages if stage.reason and stage.reason != record.reason]
    lines += [f"- {stage.stage} {stage.status}: {stage.reason}" for stage in further]
    if script := record.host.get("stand_in"):
        lines.append(f"- nothing of this was measured on a Mac: what Core ML would say came from the script {script}")
    if has_random_weights(record):
        lines.append("- weights are random: PSNR says nothing about the trained model, and latency may differ from it")
    if record.realised.get("texts") == "synthetic":
        lines.append("- inputs are seeded token ids, not text")
    return "\n".join(lines) or None


def cell_artifacts(record: Record, run_folder: Path, files: Sequence[Artifact]) -> dict[str, str]:
    """Return {relative path: text}: the record, its request alone, placement as a table, the tail of each stage's stderr."""
    whole = {"record.json": record.to_dict(), "request.json": record.cell}
    texts = {name: json.dumps(value, indent=1, ensure_ascii=False) + "\n" for name, value in whole.items()}
    if record.placement:
        texts["placement.json"] = json.dumps(placement_table(record.placement), indent=1)
    for artifact in files:  # one row an op: placement.<kind>.<chip>.json
        if artifact.name.startswith("placement.") and Path(artifact.path).is_file():
            texts[artifact.name] = outward.mask_private(Path(artifact.path).read_text(encoding="utf-8"))
    if found := timeline.trace(record, Path(run_folder)):
        texts["timeline.json"] = json.dumps(found)
    for stage in record.stages:
        path = Path(run_folder) / "tasks" / f"{stage.stage}-{(stage.key or '')[:12]}" / "stderr.txt"
        if stage.key and (tail := autopsy.read_tail(path)):
            texts[f"stderr/{stage.stage}.txt"] = outward.mask_private(tail)
    return texts


def placement_table(placement: list[Placement]) -> dict[str, list[Any]]:
    """Return {columns, data}, which MLflow's artifact viewer shows as a table; record.json is complete."""
    columns = ["kind", "chip", "compute_units", "cpu", "gpu", "ane", "total", "transitions"]
    said = ({**vars(entry), **vars(entry.ops)} for entry in placement)
    return {"columns": columns, "data": [[values[column] for column in columns] for values in said]}


def digest(record: Record, axes: list[str]) -> str:
    """Return a digest that changes with the record, the axes of its sweep and FORM: then a logged run is out of date."""
    return hashlib.sha256(f"{FORM}{record.to_json()}{axes}".encode()).hexdigest()[:16]


def clean_tags(tags: Mapping[str, object]) -> dict[str, str]:
    """Return tags as MLflow accepts them: no nulls, legal keys, values cut to its limit."""
    return {key(name): text(value, TAG_LIMIT) for name, value in tags.items() if value not in (None, "", [], {})}


def _shared(records: list[Record], group: str) -> dict[str, object]:
    """Return the entries of host or toolchain that all cells share, as tags."""
    each = [getattr(record, group) for record in records]
    return {
        f"{group}.{name}": value
        for name, value in (each[0] if each else {}).items()
        if all(e.get(name) == value for e in each)
    }
