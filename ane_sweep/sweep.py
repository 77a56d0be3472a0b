"""The main path: load, settle weights, plan, check, run, record, report, track; and the verb that stops after the plan."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ane_sweep.bridge.stages import STAGES
from ane_sweep.command import (
    BAD_CONFIGURATION,
    IN_DOUBT,
    NOT_ALL_OK,
    OK,
    asks_help,
    explained,
    memory_budget,
    open_store,
    outputs_folder,
    say,
    shown,
)
from ane_sweep.errors import AneSweepError, ConfigError, Unfinished


def sweep(args: list[str]) -> int:
    """Run the matrix."""
    request = requested(args, "sweep")
    if request is None:
        return OK
    out = outputs_folder(request.settings["out"])
    if request.settings["nightly"]["enabled"]:
        from ane_sweep.nightly import night

        return night.night(request, out, args)
    with open_store(out) as store:
        store.sweep_tmp()
        plan = plan_for(request, store, out)
        return run_plan(plan, request.settings, store, out, args)


def plan(args: list[str]) -> int:
    """Show what would run, and what it would cost; runs nothing."""
    from ane_sweep import files, overview

    request = requested(args, "plan")
    if request is None:
        return OK
    out = outputs_folder(request.settings["out"])
    with open_store(out) as store:
        made = plan_for(request, store, out)
        print(overview.describe(made, store.has, files.free_bytes(out), memory(request.settings)))
    return OK if made.chains else BAD_CONFIGURATION


def requested(args: list[str], verb: str) -> Any:
    """The request that the words make; None where they only asked for help, or for what Hydra shows of itself."""
    from ane_sweep import help

    if asks_help(args):
        print(help.text(args, verb))
        return None
    from ane_sweep import config

    return None if config.pass_to_hydra(args) else config.load(args)


def plan_for(request: Any, store: Any, out: Path) -> Any:
    """Settle every model's weights, then plan. Raises ConfigError with every problem of every model."""
    from ane_sweep import checkpoints, host
    from ane_sweep import plan as planning

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
    from ane_sweep.cell import canonical_json

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
    from ane_sweep import assemble, display, files, host, installed, overview, record, runner, runs

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
        outcomes = runner.execute(plan, run, store, settings, view, memory(settings)[0])
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
    from ane_sweep.record import Status

    found = {record.status for record in records} - {Status.OK, Status.REFUSED}
    if found - {Status.DEGRADED, Status.SKIPPED}:
        return NOT_ALL_OK
    return IN_DOUBT if found else OK


def show(folder: Path, records: list[Any]) -> None:
    """Print the final table and where the records are."""
    from rich.console import Console

    from ane_sweep import record
    from ane_sweep.report import table

    console = Console()
    if console.is_terminal:
        console.print(table.as_table(records, console.width))
    else:
        print(table.as_text(records, width=160))
    print(f"records: {shown(folder / record.FILE_NAME)}")


def write_report(folder: Path, records: list[Any], store: Any) -> None:
    """Leave report.html and report.md beside the records."""
    from ane_sweep.report import page, verb

    with in_doubt("nobody looked where the worst cell loses accuracy", f"ane-sweep report {folder.name} --drift"):
        verb.look_where_called_for(folder, records, store)
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
