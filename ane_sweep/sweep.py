"""The main path: load, settle weights, plan, check, run, record, report, track; and the verb that stops after the plan."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.trouble import explained
from ane_sweep.errors import AneSweepError, ConfigError, Unfinished
from ane_sweep.machine.memory import memory_budget
from ane_sweep.report import drift
from ane_sweep.terminal import IN_DOUBT, NOT_ALL_OK, OK, say, shown


def plan_for(request: Any, store: Any, out: Path) -> Any:
    """Settle every model's weights, then plan. Raises ConfigError with every problem of every model."""
    from ane_sweep.machine import host
    from ane_sweep.planner import checkpoints
    from ane_sweep.planner import plan as planning

    settled: dict[Any, Any] = {}
    problems: list[str] = []
    for cell in request.cells:
        key = settled_once(cell)
        if key in settled:
            continue
        try:
            settled[key] = checkpoints.resolve(
                cell.model_options,
                cell.weights,
                seed=cell.seed,
                allow_pickle=cell.allow_pickle,
                digests=out / "cache" / "digests.json",
            )
        except ConfigError as error:
            settled[key] = None
            problems += error.problems
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    past = store.past()
    return planning.make_plan(
        request.cells,
        request.axes,
        {cell.key: settled[settled_once(cell)] for cell in request.cells},
        host=host.digest(),
        toolchain=host.toolchain(),
        predict_for=request.settings["chips"],
        history={stage: [entry for entry in past if entry.stage == stage][-500:] for stage in STAGES},
        notes=request.notes,
    )


def settled_once(cell: Any) -> tuple[Any, ...]:
    """Cells alike in this have the same weights; an axis may reach into the architecture."""
    from ane_sweep.bridge.cell import canonical_json

    options = {name: value for name, value in cell.model_options.items() if name != "texts"}
    return cell.weights, cell.seed, cell.allow_pickle, canonical_json(options)


def memory(settings: dict[str, Any]) -> tuple[int, int]:
    """Bytes that all lanes may use together, and what this host has."""
    import psutil

    return memory_budget(settings["memory_gib"]), int(psutil.virtual_memory().total)


def run_plan(plan: Any, settings: dict[str, Any], store: Any, out: Path, args: list[str]) -> int:
    """Run what a plan holds and leave records, a table, a report and a link."""
    run, records, fresh = perform(plan, settings, store, out, args)
    return publish(run, records, fresh, settings, store)


@contextmanager
def begun() -> Iterator[None]:
    """Around what a sweep does: a disk that fills up meanwhile leaves it unfinished, and that is no bad request."""
    try:
        yield
    except OSError as error:
        raise Unfinished(f"{explained(error)}; the same command goes on where it stopped") from error


@begun()
def perform(plan: Any, settings: dict[str, Any], store: Any, out: Path, args: list[str]) -> tuple[Any, list[Any], bool]:
    """(run, its records, whether they are still to be published): a finished run is only read."""
    from ane_sweep import installed
    from ane_sweep.bridge import record
    from ane_sweep.machine import host
    from ane_sweep.planner import overview
    from ane_sweep.results import assemble
    from ane_sweep.runner import display, walk
    from ane_sweep.store import files, runs

    if not plan.chains:
        raise ConfigError([f"{reason}" for reason in dict.fromkeys(plan.refused.values())])
    if settings["resume"] is None:
        installed.need_worker("a sweep")
    run = runs.open_run(out, plan, args, settings)
    if gone := runs.tidy(out):
        say(f"deleted, interrupted more than {runs.ABANDONED_DAYS} days ago: {', '.join(gone)}")
    if run.finished and (records := record.kept_records(run.folder)) is not None:
        if not run.published:
            say(f"going on with {run.stamp}: its cells are done, its report and log were interrupted")
        return run, records, not run.published
    installed.need_worker("a sweep")
    say(overview.describe(plan, store.has, files.free_bytes(out), memory(settings)))
    if run.lock is not None and (run.folder / "tasks").exists():
        say(f"going on with {run.stamp}, which was interrupted")
    view = display.make(plan)
    try:
        outcomes = walk.execute(plan, run, store, settings, view, memory(settings)[0])
    finally:
        view.close()
    records = assemble.make_records(
        plan,
        outcomes,
        sweep=run.stamp,
        host=host.fingerprint(),
        toolchain=host.toolchain(),
        files=files.artifact_files,
    )
    record.write_records(run.folder, records)
    run.finish()
    return run, records, True


@begun()
def publish(run: Any, records: list[Any], fresh: bool, settings: dict[str, Any], store: Any) -> int:
    """Show the records; what is new also gets its report and is logged. Returns the sweep's exit code."""
    show(run.folder, records)
    if fresh:
        write_report(run.folder, records, store)
        if settings["tracking"]["enabled"]:
            track(run.folder, settings["tracking"])
        run.publish()
    return exit_code(records)


def exit_code(records: list[Any]) -> int:
    """What the cells of a sweep amount to. A cell that is refused beside others that ran is told, and does not count."""
    from ane_sweep.bridge.record import Status

    found = {record.status for record in records} - {Status.OK, Status.REFUSED}
    if found - {Status.DEGRADED, Status.SKIPPED}:
        return NOT_ALL_OK
    return IN_DOUBT if found else OK


def show(folder: Path, records: list[Any]) -> None:
    """Print the final table and where the records are."""
    from rich.console import Console

    from ane_sweep.bridge import record
    from ane_sweep.report import table

    console = Console()
    if console.is_terminal:
        console.print(table.as_table(records, console.width))
    else:
        print(table.as_text(records, width=160))
    print(f"records: {shown(folder / record.FILE_NAME)}")


def write_report(folder: Path, records: list[Any], store: Any) -> None:
    """Leave report.html and report.md beside the records."""
    from ane_sweep.report import page

    with in_doubt("nobody looked where the worst cell loses accuracy", f"ane-sweep report {folder.name} --drift"):
        drift.look_where_called_for(folder, records, store)
    with in_doubt("no report was written", f"ane-sweep report {folder.name} --html FILE"):
        print(f"report: {shown(page.write(folder))}")


@contextmanager
def in_doubt(what: str, again: str) -> Iterator[None]:
    """What follows the records costs neither them nor what follows it, not even by a mistake of ours."""
    try:
        yield
    except AneSweepError as error:
        say(f"doubt: {what}: {error}")
    except OSError as error:
        say(f"doubt: {what}: {explained(error)}")
    except Exception as error:
        say(f"doubt: {what}: {type(error).__name__}: {error}. Next: {again}")


def track(folder: Path, settings: dict[str, Any]) -> None:
    """Log a sweep's records; a tracker out of reach is a doubt, the records stay and can be logged later."""
    from ane_sweep import tracking

    with in_doubt("not logged", f"ane-sweep log {folder.name}"):
        logged = tracking.log_sweep(folder, uri=settings["uri"], experiment=settings["experiment"])
        show_links(logged, settings["ui"])


def show_links(logged: Any, ui: str | None) -> None:
    """How to look at a logged sweep: the command that starts MLflow's UI (a server is its own), its pages."""
    from ane_sweep import tracking

    if command := tracking.ui_command(logged, ui):
        print(f"MLflow: {command}")
    print(f"charts: {tracking.experiment_link(logged, ui=ui)}")
    print(f"compare: {tracking.compare_link(logged, ui=ui)}")
