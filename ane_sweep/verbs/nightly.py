"""`ane-sweep nightly [accept [RUN] | write KIND FOLDER]`: what the nights did; a new level; files that start them"""

from pathlib import Path

from ane_sweep.bridge.record import read_records
from ane_sweep.compare import sides
from ane_sweep.errors import ConfigError
from ane_sweep.folders import user_path
from ane_sweep.nightly import files
from ane_sweep.nightly.rotation import Rotation
from ane_sweep.stats.student import FEWEST
from ane_sweep.store import runs
from ane_sweep.terminal import format_path, print_result
from ane_sweep.words import Parser

AT = "02:30"


def nightly(args: list[str]) -> int:
    """Show the nights, accept a run as baseline, or write the files of a job. Raises ConfigError, RunNotFound."""
    parser = Parser(
        "nightly [accept [RUN] | write KIND FOLDER [at=HH:MM]] [--json] [out=PATH] [-- OVERRIDES]",
        "What the nights did; accept: a run becomes the level that later nights are compared with; write: files that start "
        "a night every day, or the command after -- (default: +sweep=nightly).",
        "ane-sweep nightly write systemd ~/files at=02:30 -- +sweep=nightly budget_minutes=120",
    )
    parser.add("words WORD", f"KIND: {', '.join(files.KINDS)}; RUN: last, or a name (default: last)", nargs="*")
    parser.add("at=HH:MM", "when a night begins, in local time", default=AT)
    parser.json("good, measured, again, latest; accept: good, cells; write: files, next", "lines of text")
    parser.outputs()
    overrides = args[args.index("--") + 1 :] if "--" in args else []
    given = parser.read(args[: args.index("--")] if "--" in args else args)
    out = given.out
    match given.words:
        case []:
            return _show(out, given.json)
        case ["accept", *name] if len(name) < 2:
            return _accept(out, runs.find_run(out, name[0] if name else None), given.json)
        case ["write", kind, folder]:
            _check(overrides)
            written = files.write(kind, user_path(folder), files.job(out, given.at, overrides))
            then = files.next_step(kind, user_path(folder))
            text = "\n".join([*map(format_path, written), then])
            return print_result(given.json, text, files=list(map(str, written)), next=then)
    raise ConfigError(
        f"nightly {' '.join(given.words)}: expected nothing, accept [RUN], or write KIND FOLDER with KIND one of "
        f"{', '.join(files.KINDS)}"
    )


def _accept(out: Path, run: runs.Run, as_json: bool) -> int:
    """Make a run the baseline of its cells. Raises ConfigError if none of its cells can be a baseline."""
    records = read_records(run.folder)
    fit = [one for one in records if sides.is_level(one)]
    if not fit:
        raise ConfigError(f"nightly accept {run.stamp}: none of its cells ran well, so it can be the level of none")
    others = sides.newest(sides.good_nights(out, without=[run.folder.resolve()]))
    better = {one.cell_key for one in others if sides.is_testable(one)}
    fine = [one.cell_key for one in fit if sides.is_testable(one) or one.cell_key not in better]
    if not fine:
        raise ConfigError(
            f"nightly accept {run.stamp}: fewer than {FEWEST} processes timed each of its cells, so no later night could be "
            "tested against them; time them again with latency.repeats=8"
        )
    sides.tag_good(out, run.stamp)
    rotation = Rotation.read(out)
    rotation.again = [key for key in rotation.again if key not in fine]
    rotation.write()
    which = "its cells" if len(fine) == len(records) else f"{len(fine)} of its {len(records)} cells"
    text = f"{run.stamp} is good: {which} are what later nights are compared with"
    return print_result(as_json, text, good=run.stamp, cells=fine)


def _check(overrides: list[str]) -> None:
    """Refuse a command that would only fail at night. Raises ConfigError."""
    from ane_sweep.planner import config

    if overrides and not config.load(overrides).settings.nightly.enabled:
        raise ConfigError("these overrides are no nightly: add +sweep=nightly, or nightly.enabled=true")


def _show(out: Path, as_json: bool) -> int:
    good, rotation, latest = sides.good_runs(out), Rotation.read(out), out / "nightly" / "latest.md"
    text = latest.read_text(encoding="utf-8") if latest.is_file() else None
    lines = [
        f"good nights: {', '.join(good[:5]) or 'none yet'}",
        f"cells measured so far: {len(rotation.measured)}; to be looked at again: {len(rotation.again)}",
        f"no night yet under {out}: ane-sweep +sweep=nightly" if text is None else text,
    ]
    return print_result(
        as_json, "\n".join(lines), good=good, measured=len(rotation.measured), again=rotation.again, latest=text
    )
