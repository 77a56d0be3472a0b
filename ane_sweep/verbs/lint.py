"""`ane-sweep lint PACKAGE... [--chip m4] [--json]`: where its ops would run, and why not on the ANE

It judges any package, for use in CI, and warns of what devices compute wrongly or load slowly. It reads protobufs only;
with --numbers or --effects it runs the program as well.

Exit code 0 if every package keeps at least --min-ane-share of its ops on the ANE and passes its gates, 1 if one does
not, 2 if one cannot be read. With units that exclude the ANE (cpu_only, cpu_and_gpu) every package passes.
"""

import argparse
import json
import shlex
from pathlib import Path

from ane_sweep.errors import PackageError
from ane_sweep.fix import rewrite as rewriting
from ane_sweep.machine.calibrated import find_measurements
from ane_sweep.mil import package as packages
from ane_sweep.outward import escape_controls, mask_credentials
from ane_sweep.placement import chips, judge
from ane_sweep.placement.predict import COMPUTE_UNITS
from ane_sweep.terminal import BAD_CONFIGURATION, NOT_ALL_OK, OK, say
from ane_sweep.verbs import _hazards
from ane_sweep.words import Parser, make_number_reader

HOLDS, FALLS_SHORT, UNREADABLE = OK, NOT_ALL_OK, BAD_CONFIGURATION


def lint(args: list[str]) -> int:
    """Report every package on every chip; return the exit code. Raises ConfigError for a wrong word."""
    given = _parser().read(args)
    with judge.pause_collection():
        return _report(given)


def _report(given: argparse.Namespace) -> int:
    wanted = [chips.get(name, find_measurements) for name in given.chip]
    found, problems, code = [], [], HOLDS
    trial = _hazards.make_trial(given)
    for path in given.paths:
        try:
            loaded = judge.load(path)
            verdicts = [
                judge.judge_programs(path, loaded, chip, given.compute_units, given.min_ane_share, given.share)
                for chip in wanted
            ]
            hazards = [_hazards.find(one, trial if one is verdicts[0] else None) for one in verdicts]
        except PackageError as error:
            problems.append({"path": mask_credentials(str(path)), "error": mask_credentials(str(error))})
            say(f"error: {error}")
            code = UNREADABLE
            continue
        is_off = False
        for one, findings in zip(verdicts, hazards, strict=True):
            code = code if one.ok else max(code, FALLS_SHORT)
            is_off = is_off or any(row.preferred != "ane" for row in one.ops)
            if given.json:
                found.append(one.to_dict() | {"findings": [finding.to_dict() for finding in findings]})
            else:
                shown = findings if one is verdicts[0] else [finding for finding in findings if finding.chip]
                print(escape_controls("\n".join([str(one), *_hazards.describe(shown)])))
        if not given.json and (line := _advise_fix(path, given.chip[0], is_off)):
            print(escape_controls(line))
    if given.json:
        content = {"schema": 1, "packages": found, **({"errors": problems} if problems else {})}
        print(json.dumps(content, separators=(",", ":")))
    return code


def _advise_fix(path: Path, chip: str, is_off: bool) -> str | None:
    """Return the command that rewrites a package, if a rewrite matches in it: for placement only if ops are off the ANE."""
    try:
        names = rewriting.find_matches(packages.read(path))
    except PackageError:  # a folder of chunks, or a pipeline: `fix` takes one ML Program
        return None
    names = [name for name in names if is_off or rewriting.REWRITES[name].kind == "accuracy"]
    better = path.with_name(f"{path.stem}.fixed.mlpackage")
    command = f"ane-sweep fix {shlex.quote(str(path))} -o {shlex.quote(str(better))} --chip {chip}"
    return f"  fix   {command}   # tries {', '.join(names)}" if names else None


def _parser() -> Parser:
    parser = Parser(
        "lint PACKAGE... [--chip m4[,a17_pro...]] [--compute-units cpu_and_ne] [--min-ane-share 0.9] [--share ops|cost] [--json]",
        "Where the ops of any package would run, and why not on the Neural Engine: a verdict for other people's CI. "
        "What it says is predicted.",
        "ane-sweep lint model.mlpackage --chip m4,a17_pro --json",
        {
            HOLDS: "every package keeps its share on the Neural Engine, or was not asked to run there",
            FALLS_SHORT: "one falls short",
            UNREADABLE: "a wrong word, or a package that cannot be read",
        },
    )
    parser.add("paths PACKAGE", "a .mlpackage, a .mlmodelc, or a folder of chunks", Path, nargs="+")
    parser.add("--chip NAME,...", "predicted for", _names, "m4")
    parser.add(
        "--compute-units UNITS", f"what Core ML may use: {', '.join(COMPUTE_UNITS)}", str.lower, "cpu_and_ne",
        choices=COMPUTE_UNITS,
    )  # fmt: skip
    share = make_number_reader("a number from 0 to 1", lambda value: 0 <= value <= 1)
    parser.add("--min-ane-share SHARE", "from 0 to 1; less than that falls short", share, 0.9)
    parser.add(
        "--share ops|cost", "what it is a share of: ops, or what Core ML's planner prices them at", default="ops"
    )
    _hazards.add_options(parser)
    parser.json("packages (each with path, chip, verdict, ane_share, gates, estimate, ops, findings), errors", "text")
    return parser


def _names(text: str) -> list[str]:
    if names := [part for part in text.split(",") if part]:
        return names
    raise ValueError("names; it needs a value")
