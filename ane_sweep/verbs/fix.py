"""`ane-sweep fix PACKAGE -o BETTER`: rewrites of the program for the Neural Engine, each one proven"""

import argparse
import math

from ane_sweep import installed, tables
from ane_sweep.errors import ConfigError
from ane_sweep.fix import driver
from ane_sweep.fix.figures import Figures
from ane_sweep.fix.interface import BY_NAME
from ane_sweep.fix.rewrite import REWRITES, choose
from ane_sweep.fix.trials import Report, RewriteTrial
from ane_sweep.folders import user_path
from ane_sweep.terminal import count, format_path, print_result, size
from ane_sweep.verbs import _workers
from ane_sweep.verbs.run import within_memory
from ane_sweep.words import Parser, read_names

_HEADS = ("rewrite", "places", "ops on the ANE", "cost there", "segments", "estimate", "size", "worst fp16", "")
_SHOWN = 10  # places of a rewrite with --diff


def fix(args: list[str]) -> int:
    """Rewrite a package and report each rewrite; return the exit code. Raises ConfigError for a wrong word."""
    parser = Parser(
        "fix MODEL [-o FILE.mlpackage] [--chip m4] [--only NAME,...] [--sizes 128,...] [--explain] [--diff] [--list] [--force] [--json]",
        "Rewrite an ML Program for the Neural Engine: each rewrite is run against the original ops, and kept if the prediction for "
        "the chip, or the accuracy, gains by it. Figures are predicted. Without -o nothing is written.",
        "ane-sweep fix model.mlpackage -o better.mlpackage",
    )
    parser.add("model MODEL", "a .mlpackage of an ML Program, or of a pipeline with one", nargs="?")
    _workers.add_shared_options(parser, "the package to write (default: only report)")
    parser.add("--chip NAME", "whose prediction decides", default="m4")
    parser.add("--only NAME,...", "only these rewrites", read_names, ())
    parser.add("--sizes N,...", "of --only fixed_shapes: the sizes; 224x320 for each axis that has a range", default="")
    parser.add("--explain", "each rewrite's condition, bound, source and evidence")
    parser.add("--diff", "the ops removed and added, place by place")
    parser.add("--list", "the rewrites that there are, and nothing else")
    parser.json(
        "path, chip, before, after, trials (each with rewrite, status, reason, changes), whole, written", "text"
    )
    given = parser.read(args)
    if given.list:
        rows = [(name, str(one.kind), one.help) for name, one in REWRITES.items()]
        rows += [(name, "by name", one.help) for name, one in BY_NAME.items()]
        declared = {name: vars(one) for known in (REWRITES, BY_NAME) for name, one in known.items()}
        return print_result(given.json, tables.aligned(rows), rewrites=declared)
    if given.model is None:
        raise ConfigError("fix: which package? `ane-sweep fix --help`")
    return _fix(given)


@within_memory()
def _fix(given: argparse.Namespace) -> int:
    installed.need_worker("ane-sweep fix")
    path, out = user_path(given.model), None
    choose(given.only)
    if given.sizes and "fixed_shapes" not in given.only:
        raise ConfigError("--sizes is for `--only fixed_shapes`, which changes the program's interface")
    if given.output is not None:
        out = _workers.parse_target(given, "fix", True, "a package is called NAME.mlpackage")
        _workers.refuse_existing(out, given.force)
        _workers.refuse_place(path, out)
    report = driver.fix(path, out, given.chip, given.only, given.sizes, insist=bool(given.only))
    return print_result(given.json, describe_report(report, given), **report.to_dict())


def describe_report(report: Report, given: argparse.Namespace) -> str:
    """Format a report: a row for each rewrite that matched, the whole before and after, and what was written."""
    rows = [_row(trial) for trial in report.trials]
    rows.append(["together", "", *_changes(report.before, report.after), "", report.whole])
    lines = [f"{report.path} on {report.chip} (predicted)"]
    lines += [tables.aligned(rows, heads=_HEADS)] if report.trials else ["  no rewrite matches"]
    for trial in report.trials:
        lines += _explain(trial) if given.explain else []
        lines += _differ(trial) if given.diff else []
    if report.written is not None:
        lines.append(f"written: {format_path(report.written)}")
    elif given.output is not None:
        lines.append("nothing was written: no rewrite was kept")
    return "\n".join(lines)


def _row(trial: RewriteTrial) -> list[str]:
    worst, places = trial.worst, str(len(trial.changes) or "")
    accuracy = f"{_db(worst.fp16_before)} -> {_db(worst.fp16_after)}" if worst is not None else ""
    unproven = sum(not change.proven for change in trial.changes)
    doubt = f"; {count(unproven, 'place')} not proven: {trial.unproven}" if unproven else ""
    verdict = f"{trial.status}: {trial.reason}{doubt}"
    return [trial.rewrite, places, *_changes(trial.before, trial.after), accuracy, verdict]


def _changes(before: Figures, after: Figures) -> list[str]:
    """Return the columns of the figures, each before and after."""
    pairs = [
        (f"{before.on_ane} of {before.ops}", f"{after.on_ane} of {after.ops}"),
        (f"{before.cost_ane:.1%}", f"{after.cost_ane:.1%}"),
        (str(before.segments), str(after.segments)),
        (_ms(before.estimate_ms), _ms(after.estimate_ms)),
        (size(before.bytes), size(after.bytes)),
    ]
    return [one if one == other else f"{one} -> {other}" for one, other in pairs]


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g} ms"


def _db(value: float) -> str:
    return "exact" if value == math.inf else "not finite" if value == -math.inf else f"{value:.1f} dB"


def _explain(trial: RewriteTrial) -> list[str]:
    if trial.rewrite in BY_NAME:
        named = BY_NAME[trial.rewrite]
        return [
            f"{trial.rewrite} (by name): {named.help}", f"  when      {named.condition}", f"  host      {named.host}",
            f"  source    {named.source}", f"  evidence  {named.evidence}",
        ]  # fmt: skip
    one = REWRITES[trial.rewrite]
    bound = "the same bits in fp32" if one.bound == 0.0 else f"within {one.bound:.1g} of the largest output in fp32"
    lines = [
        f"{trial.rewrite} ({one.kind}): {one.help}", f"  when      {one.condition}", f"  bound     {bound}: {one.derivation}",
        f"  source    {one.source}", f"  evidence  {one.evidence}",
    ]  # fmt: skip
    return lines + ([f"  fp16      may lose {one.lost_db:g} dB: {one.lost_why}"] if one.lost_why else [])


def _differ(trial: RewriteTrial) -> list[str]:
    lines = [
        f"{change.rewrite} at {change.place}: "
        + (
            f"- {', '.join(change.removed)}  + {', '.join(change.added) or 'nothing'}"
            if change.removed
            else "no op replaced"
        )
        for change in trial.changes[:_SHOWN]
    ]
    more = len(trial.changes) - _SHOWN
    return lines + ([f"  and {more} places more (--json has all)"] if more > 0 else [])
