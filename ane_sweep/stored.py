"""Verbs over what sweeps left: log, export, import, prune."""

from ane_sweep.command import NOT_ALL_OK, OK, Parser, amount, open_store, shown, user_path
from ane_sweep.errors import ConfigError

RUN = "a run's name, or last (default: last)"


def log(args: list[str]) -> int:
    """Send a sweep's stored records to a tracking server."""
    parser = Parser(
        "log",
        "[RUN] [uri=URI] [experiment=NAME] [out=PATH]",
        "Send a sweep's stored records to a tracking server, or again to the one it was logged to; nothing is doubled.",
        "ane-sweep log last uri=http://127.0.0.1:5000",
        {NOT_ALL_OK: "the tracking server cannot be reached; the records stay"},
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help=RUN)
    parser.key("uri", "URI", "any MLflow tracking URI (default: the sweep's own)")
    parser.key("experiment", "NAME", "the MLflow experiment (default: the sweep's own)")
    parser.outputs()
    given = parser.read(args)
    from ane_sweep import runs, sweep, tracking

    run = runs.find_run(given.out, given.run)
    own = run.info["tracking"]  # where the sweep itself was to be logged
    uri = given.uri if given.uri is not None else tracking.reopened(own["uri"], run.stamp)
    experiment = own["experiment"] if given.experiment is None else given.experiment
    logged = tracking.log_sweep(run.folder, uri=uri, experiment=experiment)
    sweep.show_links(logged, own["ui"])
    return OK


def export(args: list[str]) -> int:
    """Write a finished sweep as one portable file."""
    parser = Parser(
        "export",
        "[RUN] FILE [out=PATH]",
        "Write a finished sweep as one file that merges into another store once, however often it is imported: records, "
        "command and checksums, without artifacts, logs, host names or paths.",
        "ane-sweep export last sweep.zip",
    )
    parser.add_argument("words", nargs="*", metavar="[RUN] FILE", help=f"{RUN}; and the file to write")
    parser.outputs()
    given = parser.read(args)
    words = given.words
    if len(words) not in (1, 2):
        raise ConfigError("export takes a run (the last one, if it is left out) and a file: ane-sweep export RUN FILE")
    from ane_sweep import bundle, runs

    run = runs.find_run(given.out, words[0] if len(words) == 2 else None)
    count = bundle.export(run.folder, user_path(words[-1]), given.out)
    print(f"{words[-1]}: {count} records of {run.stamp}")
    return OK


def import_bundle(args: list[str]) -> int:
    """Take an exported sweep in; one that is known already is merged."""
    parser = Parser(
        "import",
        "FILE [out=PATH]",
        "Take an exported sweep in. One that is known already is merged: the same sweep is there once.",
        "ane-sweep import sweep.zip",
    )
    parser.add_argument("words", nargs="*", metavar="FILE", help="what `ane-sweep export` wrote")
    parser.outputs()
    given = parser.read(args)
    if len(given.words) != 1:
        raise ConfigError("import takes one file: ane-sweep import FILE")
    from ane_sweep import bundle, merge
    from ane_sweep.report import page

    merged = merge.take_in(bundle.read(user_path(given.words[0])), given.out)
    print(f"{merged.folder.name}: {merged.new} new, {merged.replaced} replaced, {merged.known} known already")
    print(f"report: {shown(merged.folder / page.HTML_NAME)}")
    return OK


def prune(args: list[str]) -> int:
    """Delete cached artifacts: older-than-days=N, or the least recently used until max-gb=N remain."""
    parser = Parser(
        "prune",
        "older-than-days=N | max-gb=N [out=PATH]",
        "Delete cached artifacts by last use. Records, reports and runs stay, and what is needed again is made again.",
        "ane-sweep prune older-than-days=30",
    )
    parser.key("older-than-days", "N", "those not used for so many days (no default)", amount)
    parser.key("max-gb", "N", "the least recently used, until so many GB remain (no default)", amount)
    parser.outputs()
    given = parser.read(args)
    from ane_sweep import runs

    days, gigabytes = given.older_than_days, given.max_gb
    if days is None and gigabytes is None:
        raise ConfigError("prune needs older-than-days=N or max-gb=N")
    with open_store(given.out, writes=False) as store:
        store.sweep_tmp()
        runs.tidy(given.out)
        removed = store.prune(None if gigabytes is None else int(gigabytes * 1e9), days)
    print(f"removed {len(removed)} artifacts")
    return OK
