"""The main path of a sweep: plan, run, record, show, report and track."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Protocol

from rich.console import Console

from ane_sweep import installed, memory_limits, tracking
from ane_sweep.bridge import disk, record
from ane_sweep.bridge.plan import Outcome, Plan
from ane_sweep.bridge.record import Record, Status
from ane_sweep.bridge.settings import RunSettings, TrackingSettings
from ane_sweep.errors import AneSweepError, ConfigError, Unfinished
from ane_sweep.machine import host, memory
from ane_sweep.native_errors import explain
from ane_sweep.outward import escape_controls
from ane_sweep.planner import inherited, overview
from ane_sweep.planner.matrix import Request
from ane_sweep.planner.settle import plan_for
from ane_sweep.report import drift, machines, page, screen
from ane_sweep.results import assemble, timeline
from ane_sweep.runner import display, executors
from ane_sweep.runner.task_runner import Display, QuietDisplay
from ane_sweep.store import files, leftovers, runs
from ane_sweep.store.cache import Store, open_store
from ane_sweep.terminal import IN_DOUBT, NOT_ALL_OK, OK, columns, format_path, say


class View(Display, Protocol):
    """The interface of a display of a running plan."""

    def close(self) -> None: ...


class QuietView(QuietDisplay):
    """A display without progress; status lines between two tasks go to `tell`."""

    def __init__(self, tell: Callable[[str], None]):
        self.tell = tell

    def say(self, line: str) -> None:
        self.tell(line)

    def close(self) -> None: ...


class Terminal:
    """The command line's display of a sweep's progress and results."""

    def tell(self, line: str) -> None:
        """Show one line of progress or a warning."""
        say(line)

    def result(self, line: str) -> None:
        print(line)

    def links(self, pages: dict[str, str]) -> None:
        print(format_links(pages))

    def records(self, folder: Path, records: list[Record]) -> None:
        show(folder, records)

    def watch(self, plan: Plan) -> View:
        return display.make(plan)


TERMINAL = Terminal()


def sweep(request: Request, out: Path, args: list[str], audience: Terminal = TERMINAL) -> tuple[Path, list[Record]]:
    """Plan and run a request, write records and a report, log them, and return (the run's folder, its records)."""
    with open_store(out) as store:
        store.sweep_tmp()
        plan = plan_for(request, store, out)
        run, records, fresh = perform(plan, request.settings, store, out, args, audience)
        publish(run, records, fresh, request.settings, store, audience)
    return run.folder, records


@contextmanager
def report_full_disk() -> Iterator[None]:
    """Raise `Unfinished` for an error of the system such as a full disk: the request is right, and the sweep can continue."""
    try:
        yield
    except OSError as error:
        raise Unfinished(f"{explain(error)}; the same command goes on where it stopped") from error


@contextmanager
def release_on_error(run: runs.Run) -> Iterator[None]:
    """Release a run if the block raises an error, so that this process may continue the run later."""
    try:
        yield
    except BaseException:
        run.release()
        raise


@report_full_disk()
def perform(
    plan: Plan,
    settings: RunSettings,
    store: Store,
    out: Path,
    args: list[str],
    audience: Terminal = TERMINAL,
    execute: Callable[..., list[Record]] | None = None,
) -> tuple[runs.Run, list[Record], bool]:
    """Run a plan and return (run, its records, True if they must still be published). A finished run is only read.

    execute   the function that runs the plan, such as `run_and_record`
    """
    if not plan.chains:
        raise ConfigError(list(dict.fromkeys(plan.refused.values())))
    if settings.tracking.enabled and (uri := settings.tracking.uri):
        tracking.check_scheme(uri)
    if settings.resume is None:
        installed.need_worker("a sweep")
    run = runs.open_run(out, plan, args, settings)
    with release_on_error(run):
        if gone := leftovers.tidy(out):
            audience.tell(f"deleted, interrupted more than {leftovers.ABANDONED_DAYS} days ago: {', '.join(gone)}")
        if run.finished and (records := record.kept_records(run.folder)) is not None:
            if not run.published:
                audience.tell(f"going on with {run.stamp}: its cells are done, its report and log were interrupted")
            return run, records, not run.published
        installed.need_worker("a sweep")
        most = memory.memory_budget(settings.memory_gib), memory_limits.host_bytes()
        audience.tell(overview.describe(plan, store.has, files.free_bytes(out), most))
        if run.lock is not None and (run.folder / "tasks").exists():
            audience.tell(f"going on with {run.stamp}, which was interrupted")
        records = (execute or run_and_record)(plan, run, settings, store, audience)
        record.write_records(run.folder, records)
        run.finish()
        return run, records, True


def run_remaining(
    plan: Plan,
    run: runs.Run,
    settings: RunSettings,
    store: Store,
    audience: Terminal,
    outcomes: dict[str, Outcome] | None = None,
) -> dict[str, Outcome]:
    """Run the remaining tasks under a progress display and add their outcomes to `outcomes`. Raises KeyboardInterrupt."""
    done = outcomes or {}
    view = audience.watch(replace(plan, tasks={key: task for key, task in plan.tasks.items() if key not in done}))
    try:
        runner = executors.make_runner(plan, run, store, settings, view, outcomes)

        def meanwhile() -> None:
            tracking.make_ready(settings.tracking, run.folder.parent.parent)
            with suppress(Exception):  # the report shows the error
                import_module("matplotlib.figure")

        return executors.load_execute(settings.executor.name)(runner, settings, meanwhile)
    finally:
        view.close()


def run_and_record(plan: Plan, run: runs.Run, settings: RunSettings, store: Store, audience: Terminal) -> list[Record]:
    outcomes, machine, tools = run_remaining(plan, run, settings, store, audience), host.fingerprint(), host.toolchain()
    return assemble.make_records(
        plan, outcomes, sweep=run.stamp, host=machine, toolchain=tools, files=files.artifact_files
    )


@report_full_disk()
def publish(
    run: runs.Run,
    records: list[Record],
    fresh: bool,
    settings: RunSettings,
    store: Store,
    audience: Terminal = TERMINAL,
) -> None:
    """Show the records; if they are new, also write the report and log them."""
    with release_on_error(run):
        audience.records(run.folder, records)
        if fresh:
            write_report(run.folder, records, store, audience)
            if settings.tracking.enabled:
                track(run.folder, settings.tracking, audience)
            run.publish()


def exit_code(records: list[Record]) -> int:
    """Return the exit code of a sweep's records. A refused cell counts only if no other cell ran."""
    found = {record.status for record in records} - {Status.OK, Status.REFUSED}
    if found - {Status.DEGRADED, Status.SKIPPED}:
        return NOT_ALL_OK
    return IN_DOUBT if found else OK


def show(folder: Path, records: list[Record], answered: bool = True) -> None:
    """Print the final table, with the answer if `answered`, and the path of the records."""
    console, width, within = Console(), columns(), format_path(folder.parent)
    if console.is_terminal:
        console.print(screen.as_table(records, width, within, answered), width=width)
        for line in screen.list_commands(records, within) if answered else ():
            print(line)
    else:
        print(screen.as_text(records, width, within, answered), end="")
    for line in machines.lines(records, disk.read_json(folder / "run.json") or {}):
        console.print(escape_controls(line), soft_wrap=True, markup=False, highlight=False)
    print(f"records: {format_path(folder / record.FILE_NAME)}")


def write_report(folder: Path, records: list[Record], store: Store, audience: Terminal) -> None:
    """Write report.html and report.md to the records' folder."""
    looked = "nobody looked where the worst cell loses accuracy"
    with in_doubt(looked, f"ane-sweep report {folder.name} --drift", audience):
        drift.look_where_called_for(folder, records, store)
    with in_doubt("no timelines were written", f"ane-sweep report {folder.name}", audience):
        timeline.write(folder, records)
    with in_doubt("no report was written", f"ane-sweep report {folder.name} --html FILE", audience):
        audience.result(f"report: {format_path(page.write(folder))}")


@contextmanager
def in_doubt(what: str, again: str, audience: Terminal) -> Iterator[None]:
    """Turn any error of a step after the records into a warning, so that the records and later steps survive."""
    try:
        yield
    except (AneSweepError, OSError) as error:
        audience.tell(f"doubt: {what}: {explain(error) if isinstance(error, OSError) else error}")
    except Exception as error:
        audience.tell(f"doubt: {what}: {type(error).__name__}: {error}. Next: {again}")


def track(folder: Path, settings: TrackingSettings, audience: Terminal) -> None:
    """Log a sweep's records. An unreachable tracker costs a warning; the records stay and can be logged later."""
    experiment = settings.experiment or inherited.OWN_EXPERIMENT
    with in_doubt("not logged", f"ane-sweep log {folder.name}", audience):
        logged = tracking.log_sweep(folder, uri=settings.uri, experiment=experiment)
        audience.links(links(logged, settings.ui))


def links(logged: tracking.Logged, ui: str | None) -> dict[str, str]:
    """Return the ways to view a logged sweep: the command that starts MLflow's UI (a server needs none), and its pages."""
    command = tracking.ui_command(logged, ui)
    pages = {"charts": tracking.experiment_link(logged, ui=ui), "compare": tracking.compare_link(logged, ui=ui)}
    return {"MLflow": command, **pages} if command else pages


def format_links(pages: dict[str, str]) -> str:
    """Return a line for each address, on a narrow terminal too: a broken address can neither be copied nor opened."""
    return "\n".join(f"{name}: {address}" for name, address in pages.items())
