"""Verbs over what sweeps left: log, export, import, prune."""

import os
from pathlib import Path

from ane_sweep.command import OK, number, open_store, outputs_folder, split
from ane_sweep.errors import ConfigError


def log(args: list[str]) -> int:
    """Send a sweep's stored records to a tracking server."""
    from ane_sweep import runs, sweep

    options, words = split(args, keys=("uri", "experiment"))
    run = runs.find_run(outputs_folder(options.get("out")), words[0] if words else None)
    from ane_sweep import tracking

    own = run.info["tracking"]  # where the sweep itself was to be logged
    uri = options["uri"] if "uri" in options else tracking.reopened(own["uri"], run.stamp)
    logged = tracking.log_sweep(run.folder, uri=uri, experiment=options.get("experiment", own["experiment"]))
    sweep.show_links(logged, own["ui"])
    return OK


def export(args: list[str]) -> int:
    """Write a finished sweep as one portable file."""
    from ane_sweep import bundle, runs

    options, words = split(args)
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

    options, words = split(args)
    if len(words) != 1:
        raise ConfigError("import takes one file: ane-sweep import FILE")
    merged = merge.take_in(bundle.read(Path(words[0]).expanduser()), outputs_folder(options.get("out")))
    print(f"{merged.folder.name}: {merged.new} new, {merged.replaced} replaced, {merged.known} known already")
    print(f"report: {os.path.relpath(merged.folder / page.HTML_NAME)}")
    return OK


def prune(args: list[str]) -> int:
    """Delete cached artifacts: older-than-days=N, or the least recently used until max-gb=N remain."""
    from ane_sweep import runs

    options, words = split(args, keys=("older-than-days", "max-gb"))
    if words or not options.keys() & {"older-than-days", "max-gb"}:
        raise ConfigError("prune needs older-than-days=N or max-gb=N")
    days, gigabytes = (number(options, key) for key in ("older-than-days", "max-gb"))
    out = outputs_folder(options.get("out"))
    with open_store(out) as store:
        store.sweep_tmp()
        runs.tidy(out)
        removed = store.prune(None if gigabytes is None else int(gigabytes * 1e9), days)
    print(f"removed {len(removed)} artifacts")
    return OK
