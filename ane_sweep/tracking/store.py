"""The connection to MLflow, and the logging of a sweep, never twice.

mlflow is imported here and in writers.py, nowhere else, and only inside functions: the import takes 1.5 to 3 s. A new
database takes 2 s more, once, for MLflow's migrations (measured).
"""

import hashlib
import logging
import os
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ane_sweep import outward
from ane_sweep.bridge import disk
from ane_sweep.bridge.record import FILE_NAME, Record, map_record_texts, read_records, varying_axes
from ane_sweep.bridge.settings import TrackingSettings
from ane_sweep.errors import TrackingError
from ane_sweep.tracking import describe, layout, naming
from ane_sweep.tracking.address import DATABASE, artifact_folder, check_uri, is_odd, own_database, sqlite_path
from ane_sweep.tracking.describe import RunText
from ane_sweep.tracking.figures import headline_key
from ane_sweep.tracking.writers import Bulk, OneByOne, Unsupported

if TYPE_CHECKING:
    from mlflow.entities import Run as MlflowRun
    from mlflow.tracking import MlflowClient

_CHATTER = ("mlflow.store.db.utils", "mlflow.tracking.fluent", "alembic")  # the first one prints tracebacks as well
# While a server is first spoken to: no silent minutes when nobody is there (MLflow's own: 7 retries of up to 120 s).
_PROBE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "5", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
_LOGGING = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


@dataclass
class Logged:
    """The place that a sweep was logged to, for links and the last lines on the terminal.

    runs   cell_key -> run id, in the order of the records
    timed  run ids of cells with a headline latency
    order  the metric that orders the cells in the charts, and True if less of it is better
    view   key of the charts laid out for this sweep, None if the tracker refused them
    within the folder that a relative `uri` starts from, None for any other `uri`
    """

    uri: str
    experiment: str
    experiment_id: str
    sweep: str
    parent: str
    runs: dict[str, str] = field(default_factory=dict)
    timed: list[str] = field(default_factory=list)
    order: tuple[str, bool] = ("", True)
    view: str | None = None
    within: Path | None = None
    created: int = 0
    unchanged: int = 0
    replaced: int = 0
    seconds: float = 0.0


def log_sweep(run_folder: Path, *, uri: str | None, experiment: str) -> Logged:
    """Log the records of one sweep: a parent run, and a child run per cell. Logging it again changes nothing.

    A cell whose record changed since gets a new run and the old one moves to MLflow's trash.
    uri: any MLflow tracking URI; None for mlflow.db and mlartifacts/ in the outputs folder two above `run_folder`.
    Raises TrackingError if the tracker is not available within about 10 s, or fails later; the records stay unchanged.
    """
    started = time.monotonic()
    folder = Path(run_folder).resolve()
    records = read_records(folder)
    out = folder.parent.parent
    try:
        with nullcontext(uri) if uri else own_database(out) as target:
            logged = _logged(target, experiment, folder, records)
    except Exception as error:
        # No cause: a traceback of it would show the address as it is.
        raise TrackingError(_failure(uri or str(out / DATABASE), folder, error)) from None
    logged.within = out if not uri and is_odd(out) else None
    logged.uri = outward.mask_credentials(uri or f"sqlite:///{DATABASE if logged.within else out / DATABASE}")
    logged.experiment = experiment
    logged.seconds = time.monotonic() - started
    return logged


def make_ready(settings: TrackingSettings, out: Path) -> None:
    """Load MLflow and make an outputs folder's database if it is missing: 2 to 3 s that a sweep then need not wait for
    at its end.

    An error here is ignored, as it occurs and is shown again when the sweep is logged.
    """
    if settings.enabled and not settings.uri:
        with suppress(Exception), own_database(out.resolve()) as target, _quiet():
            _connect(target)


def _logged(target: str, experiment: str, folder: Path, records: list[Record]) -> Logged:
    check_uri(target)
    with _quiet(), _environment(_PROBE):
        client = _connect(target)
        experiment_id = _experiment(client, experiment, artifact_folder(target, folder.parent.parent))
    with _quiet(), _environment(_LOGGING):
        try:
            return _log(client, Bulk(client, experiment_id), folder, records)
        except Unsupported:
            return _log(client, OneByOne(client, experiment_id), folder, records)


def _failure(target: str, folder: Path, error: Exception) -> str:
    return outward.mask_credentials(
        f"the tracker at {target} could not be used: {_cause(error, target)}\n"
        f"The results are kept in {folder / FILE_NAME}; log them later with: ane-sweep log {folder.name}"
    )


def _cause(error: BaseException, target: str) -> str:
    """Return one line on an error, preferably the operating system's message, which is the clearest."""
    if isinstance(error, TrackingError):
        return outward.without_secrets(str(error), target)
    deepest, seen = error, error.__cause__ or error.__context__
    while seen is not None:
        deepest = seen if isinstance(seen, OSError) else deepest
        seen = seen.__cause__ or seen.__context__
    text = outward.without_secrets(str(deepest), target)  # before it is cut: half an address is none
    first = (text.strip().splitlines() or [""])[0]
    return f"{type(deepest).__name__}: {first[:300]}".rstrip(": ")


def _log(client: "MlflowClient", writer: Bulk | OneByOne, folder: Path, records: list[Record]) -> Logged:
    """Log one sweep: new runs first; then the runs that they replace are deleted."""
    if not records:
        raise TrackingError("the sweep has no records yet")
    info, axes = disk.read_json(folder / "run.json") or {}, varying_axes(records)
    public = map_record_texts(records)
    begin = _millis(info.get("started")) or int((folder / FILE_NAME).stat().st_mtime * 1000)
    logged = Logged(client.tracking_uri, "", str(writer.experiment_id), records[0].sweep, "")
    known = _known_runs(client, logged.experiment_id, logged.sweep)
    by_whom = describe.clean_tags(describe.source_tags(info))
    fresh: list[tuple[str, str, dict[str, str]]] = []
    obsolete: list[MlflowRun] = []

    def put(text: RunText, digest: str, key: str, end: int) -> tuple[str, str]:
        """Return (run id, fate): an equal old run that is finished stays."""
        old = known.get(key)
        if old is not None and old.data.tags.get("ane_sweep.digest") == digest and old.info.status != "RUNNING":
            return old.info.run_id, "unchanged"
        text.tags |= {"ane_sweep.digest": digest, **by_whom}
        run_id, place = writer.create(text, begin, end)
        fresh.append((run_id, place, text.artifacts))
        if old is None:
            return run_id, "created"
        obsolete.append(old)
        return run_id, "replaced"

    digests = [describe.digest(record, axes) for record in records]
    text = describe.describe_sweep(public, axes, outward.map_texts(info))
    text.artifacts = _sweep_artifacts(folder, public)
    whole = hashlib.sha256("".join([*digests, text.artifacts.get("drift.json", "")]).encode()).hexdigest()[:16]
    logged.parent, parent_fate = put(text, whole, "", _millis(info.get("finished")) or begin)
    fates = Counter[str]()
    orphans = []
    widths = naming.digits(records, axes)
    for record, shown, digest in zip(records, public, digests):
        text = describe.describe_cell(shown, axes, folder, record.artifacts, widths)
        text.tags["mlflow.parentRunId"] = logged.parent
        spent = sum(stage.seconds or 0.0 for stage in record.stages if stage.status != "cached")
        run_id, fate = put(text, digest, record.cell_key, begin + int(spent * 1000))
        fates[fate] += 1
        if fate == "unchanged" and parent_fate != "unchanged":
            orphans.append(run_id)
        logged.runs[record.cell_key] = run_id
        if headline_key(record) is not None:
            logged.timed.append(run_id)
    writer.flush()
    # once all runs are there: artifacts of the new ones, then the new parent, and the replaced ones go
    for run_id, place, texts in fresh:
        _artifacts(client, run_id, place, texts)
    for run_id in orphans:
        client.set_tag(run_id, "mlflow.parentRunId", logged.parent)
    for run in obsolete:
        client.delete_run(run.info.run_id)
    logged.view, logged.order = _lay_out(client, logged, records, axes), layout.order_of(records)
    logged.created, logged.unchanged, logged.replaced = fates["created"], fates["unchanged"], fates["replaced"]
    return logged


def _sweep_artifacts(folder: Path, public: list[Record]) -> dict[str, str]:
    """Return {name: text} of the sweep's own artifacts: its records, its report, the report's plots."""
    texts = {FILE_NAME: "".join(record.to_json() + "\n" for record in public)}
    for name in ("report.html", "report.md", "drift.json", "figures/*.svg"):
        for path in sorted(folder.glob(name)):
            texts[path.relative_to(folder).as_posix()] = outward.mask_private(path.read_text(encoding="utf-8"))
    return texts


def _lay_out(client: "MlflowClient", logged: Logged, records: list[Record], axes: list[str]) -> str | None:
    """Store the charts of this sweep with its experiment; if the tracker refuses them, only the charts are missing."""
    text = layout.shared_view(records, axes)
    if text is None:
        return None
    key = "ane" + hashlib.sha256(logged.sweep.encode()).hexdigest()[:16]  # of letters and digits only
    with suppress(Exception):
        client.set_experiment_tag(logged.experiment_id, layout.TAG + key, text)
        return key
    return None


def _artifacts(client: "MlflowClient", run_id: str, uri: str, texts: dict[str, str]) -> None:
    """Write artifacts into a local folder directly, or send them through the tracker."""
    place = urlsplit(uri)
    local = place.scheme in ("", "file")
    with tempfile.TemporaryDirectory() if not local else nullcontext(unquote(place.path)) as root:
        for name, text in texts.items():
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if not local and texts:
            client.log_artifacts(run_id, root)


def _known_runs(client: "MlflowClient", experiment_id: str, sweep: str) -> "dict[str, MlflowRun]":
    """Return {cell_key: run} of the sweep's runs that the experiment has already; the parent has the empty key."""
    wanted, token = "tags.`ane_sweep.sweep` = '{}'".format(sweep.replace("'", "")), None
    found: dict[str, MlflowRun] = {}
    while True:
        page = client.search_runs([experiment_id], wanted, max_results=1000, page_token=token)
        for run in page:
            found.setdefault(run.data.tags.get("ane_sweep.cell_key", ""), run)
        token = page.token
        if not token:
            return found


def _connect(target: str) -> "MlflowClient":
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nobody asked for a sweep to phone home
    from mlflow.tracking import MlflowClient

    if target.startswith("sqlite") and not sqlite_path(target).exists():
        _create_database(target)
    return MlflowClient(tracking_uri=target)


def _create_database(target: str) -> None:
    """Let MLflow make its tables in another file, then link that file into place in one step.

    Its 40 migrations are not one transaction: two sweeps that begin at once, or a kill in between, leave a database
    that MLflow never opens again (3.17, "table latest_metrics already exists").
    """
    from mlflow.tracking import MlflowClient

    path = sqlite_path(target)
    aside = path.with_name(f".{path.name}-{uuid.uuid4().hex}.part")
    try:
        aside.touch()  # fails at once in a folder that takes no file; MLflow would try for minutes
        beside = f"{target.partition('?')[0].rpartition('/')[0]}/{aside.name}"  # written as the target is
        MlflowClient(tracking_uri=beside)._tracking_client.store.engine.dispose()
        with suppress(FileExistsError):  # another sweep was quicker: its database is as good
            os.link(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _experiment(client: "MlflowClient", name: str, artifacts: Path | None) -> str:
    """Return the id of the experiment, which the first use makes. This is the first request to the tracker."""
    if (found := client.get_experiment_by_name(name)) is None:
        try:
            return client.create_experiment(name, artifact_location=artifacts.resolve().as_uri() if artifacts else None)
        except Exception:
            if (found := client.get_experiment_by_name(name)) is None:  # else another sweep has made it in the meantime
                raise
    if found.lifecycle_stage != "active":
        raise TrackingError(f"experiment {name!r} was deleted in MLflow: restore it there, or name another")
    return found.experiment_id


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables that the user has not set, while the block runs."""
    added = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep MLflow's messages about tables, 40 migrations, and errors that it also raises, off the terminal."""
    before = {name: logging.getLogger(name).level for name in _CHATTER}
    for name in _CHATTER:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _millis(moment: object) -> int | None:
    """Convert seconds or an ISO text to milliseconds since the epoch; None for anything else."""
    if isinstance(moment, (int, float)):
        return int(moment * 1000)
    try:
        return int(datetime.fromisoformat(str(moment)).timestamp() * 1000)
    except ValueError:
        return None
