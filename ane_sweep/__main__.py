"""The main path: load, settle weights, plan, check, run, record, track, report."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ane_sweep import __version__
from ane_sweep.errors import AneSweepError, ConfigError, RunNotFound, StoreError, TrackingError

OK, NOT_ALL_OK, BAD_CONFIGURATION, INTERRUPTED = 0, 1, 2, 130


def cli() -> None:
    sys.exit(main(sys.argv[1:]))


def main(args: Sequence[str]) -> int:
    """Run one command; returns its exit code (README, "Exit codes")."""
    args = ["version"] if list(args) == ["--version"] else list(args)
    verb, rest = (args[0], args[1:]) if args and args[0] in VERBS else ("sweep", args)
    try:
        return VERBS[verb](rest)
    except ConfigError as error:
        say("error:", *(f"  {problem}" for problem in error.problems), "nothing was run")
        return BAD_CONFIGURATION
    except (StoreError, RunNotFound, TrackingError) as error:
        say(f"error: {error}")
        return NOT_ALL_OK if isinstance(error, TrackingError) else BAD_CONFIGURATION
    except KeyboardInterrupt:
        say("interrupted; the same command goes on where it stopped")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def sweep(args: list[str]) -> int:
    """Run the matrix."""
    if any(arg in ("--help", "-h") for arg in args):
        from ane_sweep import help

        print(help.text(args))
        return OK
    reject_unknown_verb(args)
    from ane_sweep import config

    if config.pass_to_hydra(args):
        return OK
    request = config.load(args)
    out = outputs_folder(request.settings["out"])
    if request.settings["nightly"]["enabled"]:
        from ane_sweep.nightly import night

        return night.night(request, out, args)
    with open_store(out) as store:
        store.sweep_tmp()
        plan = plan_for(request, store, out)
        return run_plan(plan, request.settings, store, out, args)


def run_plan(plan: Any, settings: dict[str, Any], store: Any, out: Path, args: list[str]) -> int:
    """Run what a plan holds and leave records, a table, a report and a link."""
    run, records, fresh = perform(plan, settings, store, out, args)
    code = show(run.folder, records)
    if fresh:
        write_report(run.folder, records, store)
        if settings["tracking"]["enabled"]:
            track(run.folder, settings["tracking"])
    return code


def perform(plan: Any, settings: dict[str, Any], store: Any, out: Path, args: list[str]) -> tuple[Any, list[Any], bool]:
    """(run, its records, whether anything was run just now): a finished run that was asked for is only read."""
    from ane_sweep import assemble, display, files, host, overview, record, runner, runs

    if not plan.chains:
        raise ConfigError([f"{reason}" for reason in dict.fromkeys(plan.refused.values())])
    run = runs.open_run(out, plan, args, settings)
    if run.finished:
        return run, record.read_records(run.folder), False
    say(overview.describe(plan, lambda task: store.lookup(task.stage, task.key) is not None, free_bytes(out)))
    if run.lock is not None and (run.folder / "tasks").exists():
        say(f"going on with {run.stamp}, which was interrupted")
    view = display.make(plan)
    try:
        outcomes = runner.execute(plan, run, store, settings, view, memory_budget(settings["memory_gib"]))
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


def show(folder: Path, records: list[Any]) -> int:
    """Print the final table and where the records are; the exit code follows from their statuses."""
    from rich.console import Console

    from ane_sweep import record
    from ane_sweep.report import table

    console = Console()
    if console.is_terminal:
        console.print(table.as_table(records, console.width))
    else:
        print(table.as_text(records, width=160))
    print(f"records: {os.path.relpath(folder / record.FILE_NAME)}")
    return OK if all(r.status == record.Status.OK for r in records) else NOT_ALL_OK


def write_report(folder: Path, records: list[Any], store: Any) -> None:
    """Leave report.html and report.md beside the records; what stands in their way is a doubt and costs no sweep."""
    from ane_sweep.report import page, verb

    try:
        verb.look_where_called_for(folder, records, store)
        print(f"report: {os.path.relpath(page.write(folder))}")
    except (AneSweepError, OSError) as error:
        say(f"doubt: no report was written: {error}")


def track(folder: Path, settings: dict[str, Any]) -> None:
    """Log a sweep's records; a tracker out of reach is a doubt, the records stay and can be logged later."""
    from ane_sweep import tracking

    try:
        logged = tracking.log_sweep(folder, uri=settings["uri"], experiment=settings["experiment"])
    except TrackingError as error:
        say(f"doubt: {error}")
        return
    show_links(logged, settings["ui"])


def plan(args: list[str]) -> int:
    """Show what would run, and what it would cost; runs nothing."""
    from ane_sweep import config, overview

    request = config.load(args)
    out = outputs_folder(request.settings["out"])
    with open_store(out) as store:
        made = plan_for(request, store, out)
        print(overview.describe(made, lambda task: store.lookup(task.stage, task.key) is not None, free_bytes(out)))
    return OK if made.chains else BAD_CONFIGURATION


def plan_for(request: Any, store: Any, out: Path) -> Any:
    """Settle every model's weights, then plan. Raises ConfigError with every problem of every model."""
    from ane_sweep import checkpoints, host, schema
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
    return planning.make_plan(
        request.cells,
        request.axes,
        {cell.key: settled[settled_once(cell)] for cell in request.cells},
        host=host.digest(),
        toolchain=host.toolchain(),
        predict_for=request.settings["chips"],
        history={stage: store.past(stage)[-500:] for stage in schema.STAGES},
        notes=request.notes,
    )


def settled_once(cell: Any) -> tuple[Any, ...]:
    """Cells alike in this have the same weights; an axis may reach into the architecture."""
    from ane_sweep.cell import canonical_json

    options = {name: value for name, value in cell.model_options.items() if name != "texts"}
    return cell.weights, cell.seed, cell.allow_pickle, canonical_json(options)


def report(args: list[str]) -> int:
    """Print a sweep's table, or write it down: --json, --markdown [FILE], --html FILE; --drift looks into the worst cell."""
    from ane_sweep.report import verb

    return verb.report(args)


def compare(args: list[str]) -> int:
    """What changed between two sweeps; exit 0 no regression, 1 regression, 2 not comparable."""
    from ane_sweep.compare import verb

    return verb.compare(args)


def history(args: list[str]) -> int:
    """Latency over the last runs, cell by cell: steps, and whether the last run stands out; exit 1 where slower."""
    from ane_sweep.compare import history

    return history.history(args)


def nightly(args: list[str]) -> int:
    """What the nights did and what comes next; `accept` tags a run as good, `write` makes files for a scheduler."""
    from ane_sweep.nightly import verb

    return verb.nightly(args)


def log(args: list[str]) -> int:
    """Send a sweep's stored records to a tracking server."""
    from ane_sweep import runs

    options, words = split(args, known=set())
    run = runs.find_run(outputs_folder(options.get("out")), words[0] if words else None)
    from ane_sweep import tracking

    own = run.info["tracking"]  # where the sweep itself was to be logged
    logged = tracking.log_sweep(
        run.folder, uri=options.get("uri", own["uri"]), experiment=options.get("experiment", own["experiment"])
    )
    show_links(logged, own["ui"])
    return OK


def export(args: list[str]) -> int:
    """Write a finished sweep as one portable file."""
    from ane_sweep import bundle, runs

    options, words = split(args, known=set(), keys=set())
    if len(words) not in (1, 2):
        raise ConfigError("export takes a run (the last one, if it is left out) and a file: ane-sweep export RUN FILE")
    out = outputs_folder(options.get("out"))
    run = runs.find_run(out, words[0] if len(words) == 2 else None)
    count = bundle.export(run.folder, Path(words[-1]).expanduser(), out)
    print(f"{words[-1]}: {count} records of {run.stamp}")
    return OK


def import_bundle(args: list[str]) -> int:
    """Take an exported sweep in; one that is known already is merged."""
    from ane_sweep import bundle, merge
    from ane_sweep.report import page

    options, words = split(args, known=set(), keys=set())
    if len(words) != 1:
        raise ConfigError("import takes one file: ane-sweep import FILE")
    merged = merge.merge(bundle.read(Path(words[0]).expanduser()), outputs_folder(options.get("out")))
    print(f"{merged.folder.name}: {merged.new} new, {merged.replaced} replaced, {merged.known} known already")
    print(f"report: {os.path.relpath(page.write(merged.folder))}")
    return OK


def show_links(logged: Any, ui: str | None) -> None:
    """How to look at a logged sweep: the command that starts MLflow's UI (a server is its own), its pages."""
    from ane_sweep import tracking

    if command := tracking.ui_command(logged.uri, ui):
        print(f"MLflow: {command}")
    print(f"charts: {tracking.experiment_link(logged, ui=ui)}")
    print(f"compare: {tracking.compare_link(logged, ui=ui)}")


def prune(args: list[str]) -> int:
    """Delete cached artifacts: older-than-days=N, or the least recently used until max-gb=N remain."""
    options, words = split(args, known=set(), keys={"older-than-days", "max-gb"})
    if words or not options.keys() & {"older-than-days", "max-gb"}:
        raise ConfigError("prune needs older-than-days=N or max-gb=N")
    days, gigabytes = (number(options, key) for key in ("older-than-days", "max-gb"))
    with open_store(outputs_folder(options.get("out"))) as store:
        removed = store.prune(None if gigabytes is None else int(gigabytes * 1e9), days)
    print(f"removed {len(removed)} artifacts")
    return OK


def number(options: dict[str, str], key: str) -> float | None:
    try:
        return float(options[key]) if key in options else None
    except ValueError:
        raise ConfigError(f"{key}={options[key]}: expected a number") from None


def split(
    args: list[str],
    known: set[str],
    keys: set[str] = frozenset(("uri", "experiment")),  # type: ignore[assignment]
) -> tuple[dict[str, str], list[str]]:
    """A verb's words: flags, key=value pairs (`out=` everywhere), and the rest. Raises ConfigError."""
    options: dict[str, str] = {}
    words: list[str] = []
    for arg in args:
        key, equals, value = arg.partition("=")
        if arg in known:
            options[arg] = ""
        elif equals and key in {"out", *keys}:
            options[key] = value
        elif arg.startswith("-") or (equals and ":" not in key):  # RUN:axis=value names cells of a run
            raise ConfigError(
                f"{arg}: unknown here; known: {', '.join(sorted({*known, 'out=PATH', *(f'{k}=' for k in keys)}))}"
            )
        else:
            words.append(arg)
    return options, words


def reject_unknown_verb(args: list[str]) -> None:
    from ane_sweep.schema import suggestion

    first = args[0] if args else ""
    if first and "=" not in first and first[0] not in "-+~":
        raise ConfigError(
            f"{first}: unknown word{suggestion(first, VERBS)}; verbs: {', '.join(VERBS)}; a sweep is asked for with key=value"
        )


def outputs_folder(asked: str | None) -> Path:
    return Path(asked or os.environ.get("ANE_SWEEP_OUT") or "outputs").expanduser().absolute()


def open_store(out: Path) -> Any:
    from ane_sweep.store import Store

    return Store(out / "cache")


def free_bytes(out: Path) -> int:
    from ane_sweep.store import free_bytes as free

    return free(out)


def memory_budget(gib: float | None) -> int:
    """Bytes that all lanes may use together: what was asked for, or 85 % of the host's memory."""
    import psutil

    return int(gib * 2**30) if gib is not None else int(psutil.virtual_memory().total * 0.85)


def say(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr, flush=True)


def lint(args: list[str]) -> int:
    """Predict where the ops of any packages would run; exit 0 verdict holds, 1 not, 2 unreadable."""
    from ane_sweep.lint import lint

    return lint(args)


def run(args: list[str]) -> int:
    """Execute any ML Program package in the reference runtime."""
    from ane_sweep.run import run

    return run(args)


def diff(args: list[str]) -> int:
    """Compare two packages: their outputs, and the drift of each op."""
    from ane_sweep.diff import diff

    return diff(args)


def devices(args: list[str]) -> int:
    """The chips that placement is predicted for, with sources."""
    from ane_sweep.devices import devices

    return devices(args)


def doctor(args: list[str]) -> int:
    """What this host can and cannot do, each line a probe that ran; exit 0 when it can run sweeps, else 1."""
    from ane_sweep.doctor import doctor

    return doctor(args)


def version(args: list[str]) -> int:
    """Print the version."""
    print(f"ane-sweep {__version__}")
    return OK


VERBS: dict[str, Callable[[list[str]], int]] = {
    "sweep": sweep,
    "plan": plan,
    "report": report,
    "compare": compare,
    "history": history,
    "nightly": nightly,
    "log": log,
    "export": export,
    "import": import_bundle,
    "prune": prune,
    "lint": lint,
    "devices": devices,
    "doctor": doctor,
    "run": run,
    "diff": diff,
    "version": version,
}

if __name__ == "__main__":
    cli()
