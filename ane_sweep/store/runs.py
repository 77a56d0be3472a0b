"""Run folders, outputs/runs/<stamp>/, one per sweep, and the choice of the run that a command continues.

run.json      {schema, stamp, plan_key, command, axes, cells, started, order, finished, published, tracking, nightly,
              source, store}; order is when the run began, or just after the latest existing run if the clock is behind
              it; source is the git commit of the folder it was started in
tasks/        one folder a task: task.json, result.json, stdout.txt, stderr.txt, the files of a timing; digests.json,
              written last, has the digest of each file: without it, the result is not used again
records.jsonl the sweep's records (record.py)
"""

import contextlib
import itertools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ane_sweep import outward
from ane_sweep.bridge import disk, kept, record
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.settings import RunSettings
from ane_sweep.bridge.task import Task, TaskResult
from ane_sweep.errors import RunNotFound
from ane_sweep.machine import host
from ane_sweep.store import files, locks

SCHEMA = 1
LOCK = "lock"
STUDY = "study.journal"  # what a search asked for
_LEFT_OUT = (
    "its run is left out; its figures are in records.jsonl there, the sweep's command makes a new run from the cache, and "
    "without the folder this line is gone"
)
STALE_HOURS = 12  # a nightly does not go on with what was interrupted longer ago


@dataclass
class Tracking:
    uri: str | None
    experiment: str
    ui: str | None


@dataclass
class Info:
    """The fields of run.json that are checked."""

    schema: int
    plan_key: str
    command: list[str] | None
    started: str
    finished: str | None
    tracking: Tracking | None = None
    nightly: bool = False
    published: bool = False
    imported: dict[str, object] | None = None
    source: dict[str, object] | None = None


@dataclass
class Run:
    """A run's folder, locked while this process works on it."""

    folder: Path
    info: dict[str, Any]
    lock: locks.Lock | None = None

    @property
    def stamp(self) -> str:
        return self.folder.name

    @property
    def finished(self) -> bool:
        """Return True if every cell has its record."""
        return self.info["finished"] is not None

    @property
    def published(self) -> bool:
        """Return True if the run was also reported and logged: only then the same command begins a new run."""
        return self.finished and self.info.get("published", True)

    def task_folder(self, task: Task) -> Path:
        return self.folder / "tasks" / f"{task.stage}-{task.key[:12]}"

    def make_task_folder(self, task: Task) -> Path:
        """Make a task's folder, without files of an earlier attempt, and return it."""
        disk.make_folder(self.folder, "tasks")
        folder = self.task_folder(task)
        disk.remove_tree(folder)
        folder.mkdir()
        return folder

    def seal(self, task: Task) -> None:
        """Record the digests of all files of a task. On a full disk they are missing, and the task runs again later."""
        with contextlib.suppress(OSError):
            files.note_digests(self.task_folder(task))

    def earlier_result(self, task: Task) -> TaskResult | None:
        """Return the result of a task from an earlier, interrupted part of this run; None without one.

        If a file of the task is damaged, there is a warning and no result.
        """
        folder = self.task_folder(task)
        if folder.parent.is_symlink() or folder.is_symlink() or not (folder / files.RESULT).exists():
            return None
        result = TaskResult.read(folder / files.RESULT)
        fault = f"{files.RESULT} is damaged" if result is None else files.check_digests(folder)
        if fault is not None:
            kept.tell(f"{folder}: {fault}; the task is run again")
            return None
        return result if result and result.key == task.key else None

    @property
    def order(self) -> datetime:
        """Return the time by which runs are sorted; for a run made elsewhere, when it began. A malformed date comes first."""
        moment = _moment(self.info.get("order") or self.info.get("started"))
        return datetime.min.replace(tzinfo=UTC) if moment is None else moment

    @property
    def began(self) -> datetime | None:
        """Return the time at which the run began, or None if run.json lacks it."""
        return _moment(self.info.get("started"))

    @property
    def seconds(self) -> float | None:
        """Return the duration of the run, or None if it has not ended or run.json lacks a time."""
        ended = _moment(self.info.get("finished"))
        return None if ended is None or self.began is None else (ended - self.began).total_seconds()

    def note(self, **facts: object) -> None:
        """Note facts in run.json: `store`, the traffic with a store that machines share; `machines`, each one's share."""
        self.info |= facts
        disk.write_json(self.folder / "run.json", self.info)

    def finish(self) -> None:
        """Record that the records are written but not yet reported and logged."""
        self.note(finished=_text(_now()), published=False)

    def publish(self) -> None:
        """Record that the run was reported and logged."""
        self.note(published=True)
        self.release()

    def release(self) -> None:
        """Release the run's lock and delete its file."""
        if self.lock is not None:
            self.lock.close(delete=True)
            self.lock = None


def open_run(out: Path, plan: Plan, command: Sequence[str], settings: RunSettings) -> Run:
    """Return the run to work on: the requested one, an unfinished one of the same plan, or a new one. Raises RunNotFound."""
    resume, every = settings.resume, list_runs(out)
    mine = [run for run in every if run.info["plan_key"] == plan.key and not run.folder.is_symlink()]
    if resume is None:
        for run in mine:
            if not run.published and not _stale(run, settings) and hold(run):
                return run
        return _new(out, plan, command, settings)
    for run in mine:
        if resume in ("last", run.stamp):
            if run.published or hold(run):
                return run
            raise RunNotFound(f"resume={resume}: {run.stamp} is being run by another process just now")
    for run in every:
        if run.stamp == resume:
            raise RunNotFound(
                f"resume={resume}: that run is of another matrix, host or version of the tools than this command. "
                f"Its own command was: {shlex.join(['ane-sweep', *run.info['command']])}; its records: ane-sweep report {resume}"
            )
    known = ", ".join(run.stamp for run in every[:8]) or "none"
    raise RunNotFound(f"resume={resume}: no earlier run of this matrix under {out / 'runs'}; runs there: {known}")


def list_runs(out: Path) -> list[Run]:
    """Return every run in an outputs folder, the latest first."""
    found = []
    for folder in sorted((out / "runs").glob("*"), reverse=True):
        path = folder / "run.json"
        info = disk.read_json(path) or {}
        if isinstance(info.get("schema"), int) and info["schema"] != SCHEMA:
            kept.tell(f"{path} is of another version (schema {info['schema']}, here {SCHEMA}): its run is left out")
            continue
        if kept.read(path, Info, _LEFT_OUT) is not None:
            found.append(Run(folder, info))
    return sorted(found, key=lambda run: run.order, reverse=True)


def find_run(out: Path, name: str | None) -> Run:
    """Return the named run, or the newest that has records. Raises RunNotFound with the existing names."""
    runs = [run for run in list_runs(out) if (run.folder / record.FILE_NAME).is_file()]
    chosen = next((run for run in runs if name in (None, "last", run.stamp)), None)
    if chosen is None:
        names = ", ".join(run.stamp for run in runs[:8]) or "none yet; `ane-sweep model=minilm` makes one"
        raise RunNotFound(
            f"no sweep {name or ''} with records under {out / 'runs'}; there are: {names}".replace("  ", " ")
        )
    return chosen


def _stale(run: Run, settings: RunSettings) -> bool:
    """Return True if an unfinished run belongs to another night: timings of two nights are not one sample."""
    if not settings.nightly.enabled:
        return False
    if run.began is None:
        kept.tell(f"{run.folder / 'run.json'} is damaged: `started` is no date; a new run begins")
        return True
    return abs(_now() - run.began) > timedelta(hours=STALE_HOURS)


def _new(out: Path, plan: Plan, command: Sequence[str], settings: RunSettings) -> Run:
    now = _now()
    order = max([now, *(run.order + timedelta(milliseconds=1) for run in list_runs(out)[:1])])
    stamp = now.strftime("%Y%m%d-%H%M%S")
    (out / "runs").mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        folder = out / "runs" / (stamp if number == 1 else f"{stamp}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            break
    run = Run(folder, {"schema": SCHEMA, "stamp": folder.name})
    hold(run)
    run.note(
        plan_key=plan.key, axes=plan.axes, cells=len(plan.cells), started=_text(now), order=_text(order), finished=None,
        command=outward.map_texts(list(command), outward.mask_private),
        tracking=outward.map_texts(vars(settings.tracking), outward.mask_credentials),
        nightly=settings.nightly.enabled,
        source=host.checkout(Path.cwd()),
    )  # fmt: skip
    return run


def hold(run: Run) -> bool:
    """Take the run's lock, which the kernel releases when this process dies; return False if another process holds it."""
    run.lock = locks.tried(run.folder / LOCK)
    return run.lock is not None


def delete(run: Run) -> bool:
    """Delete a run's folder; return False for one behind a link, which is outside the outputs folder and stays."""
    with disk.open_folder(run.folder.parents[1], "runs") as folder:
        if folder is None or run.folder.is_symlink():
            return False
        disk.remove_entry(folder, run.stamp)
        return True


def _moment(text: object) -> datetime | None:
    """Return a date of run.json, or None if it is malformed or impossible."""
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC) if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None
    return moment if moment is not None and moment.year < datetime.max.year else None


def _now() -> datetime:
    return datetime.now().astimezone()


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
