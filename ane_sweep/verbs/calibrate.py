"""`ane-sweep calibrate [plan|run|show [RUN]]`: single measurements that only this machine's chip can answer

A fixed list of probes measures the figures of a chip that are not published; on a Mac one command runs them all.
"""

import argparse
import contextlib
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from ane_sweep import tables
from ane_sweep.errors import ConfigError
from ane_sweep.terminal import AGAIN, SWEEP_EXITS, count, format_path, print_result, tell
from ane_sweep.words import Parser

if TYPE_CHECKING:
    from ane_sweep.calibration.figures import CalibrationRows

STOPPED = AGAIN


def calibrate(args: list[str]) -> int:
    """Plan, run or show a calibration. Raises ConfigError, RunNotFound, StoreError."""
    mine, more = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
    given = _parser().read(mine)
    match given.words:
        case [] | ["plan"]:
            return _plan(given, more)
        case ["run"]:
            return _run(given, more)
        case ["show", *run] if len(run) < 2:
            return _show(given, run[0] if run else None)
    raise ConfigError(f"calibrate {' '.join(given.words)}: expected plan, run, or show [RUN]")


def _parser() -> Parser:
    parser = Parser(
        "calibrate [plan | run | show [RUN]] [--tiny] [--json] [out=PATH] [-- OVERRIDES]",
        "What of a chip nobody has published, as single measurements. plan: which, why, and how long they take; run: all of them on this "
        "Mac, as one sweep, whose figures then stand in where the chip table has none, and whose bundle can be sent in; show: "
        "the figures of this machine, or of a run.",
        "ane-sweep calibrate run",
        SWEEP_EXITS,
    )
    parser.add("words WORD", "plan, run, or show [RUN] (default: plan)", nargs="*")
    parser.add("--tiny", "the same probes with tiny nets: a trial of the way, nothing is kept")
    parser.json(
        "plan: probes, can_run, cells; run: chip, folder, rows, missing, kept, bundle; show: rows, missing", "text"
    )
    parser.outputs()
    return parser


def _plan(given: argparse.Namespace, more: list[str]) -> int:
    from ane_sweep.calibration import probes, run
    from ane_sweep.machine import apple
    from ane_sweep.planner import config

    reason, words, listed = apple.no_coreml(), run.words_for_host(given.tiny, more), probes.list_probes()
    cells = [probes.describe_cell(cell) for cell in config.load(words).cells]
    held = [{**asdict(probe), "cell": cell} for probe, cell in zip(listed, cells)]
    lines = [
        f"{probe.name:<17} {probe.minutes} min  {probe.asks}\n{'':<24} because: {probe.why}\n{'':<24} by: {cell}"
        for probe, cell in zip(listed, cells)
    ]
    minutes = sum(probe.minutes for probe in listed)
    lines += [
        f"\n{count(len(listed), 'measurement')}, about {minutes} min together (a guess): ane-sweep calibrate run",
        f"not on this host: Core ML {reason}" if reason else f"this machine: {run.find_chip()}",
    ]
    return print_result(given.json, "\n".join(lines), probes=held, can_run=reason is None, reason=reason, words=words)


def _run(given: argparse.Namespace, more: list[str]) -> int:
    from ane_sweep.calibration import run

    with contextlib.redirect_stdout(sys.stderr if given.json else sys.stdout):
        made = run.calibrate(given.out, given.tiny, more)
    if given.json:
        tell(**made.to_dict())
        return made.code
    kept = format_path(made.kept) if made.kept else "nothing (a trial with tiny nets)" if given.tiny else "nothing"
    print(*_describe_rows(made.found), f"kept: {kept}", sep="\n")
    print(f"to send in: {format_path(made.bundle)} (no names, no paths; `ane-sweep import` takes it in elsewhere)")
    return made.code


def _show(given: argparse.Namespace, name: str | None) -> int:
    from ane_sweep.calibration import figures, run
    from ane_sweep.machine import calibrated

    found = figures.CalibrationRows(calibrated.rows()) if name is None else run.read_run(given.out, name)
    nothing = f"nothing was measured here yet ({calibrated.path()}): ane-sweep calibrate run, on a Mac"
    lines = _describe_rows(found) or [nothing]
    return print_result(given.json, "\n".join(lines), rows=[asdict(row) for row in found.rows], missing=found.missing)


def _describe_rows(found: "CalibrationRows") -> list[str]:
    rows = [
        (row.chip, row.units, row.quantity, f"{row.value:.4g} {'' if row.unit == '1' else row.unit}".strip(), row.kind,
         row.source, row.taken)
        for row in found.rows
    ]  # fmt: skip
    heads = ("chip", "units", "figure", "value", "kind", "source", "taken")
    table = [tables.aligned(rows, heads=heads)] if rows else []
    return [*table, *(f"not there: {line}" for line in dict.fromkeys(found.missing))]
