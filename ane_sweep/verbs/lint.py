"""`ane-sweep lint PACKAGE... [--chip m4] [--json]`: where its ops would run, and why not on the ANE

It judges any package, for use in CI, and warns of what devices compute wrongly or load slowly. It reads protobufs only;
with --numbers or --effects it runs the program as well.

Exit code 0 if every package keeps its limits and, with --baseline, no op left the ANE; 1 if one does not; 2 if one
cannot be read; 3 if a limit could not be tested. With units that exclude the ANE (cpu_only, cpu_and_gpu) no share of
it is asked for.
"""

import argparse
import json
import shlex
import tempfile
from pathlib import Path

from ane_sweep import __version__
from ane_sweep.bridge.disk import open_user_file
from ane_sweep.ci import badge, baseline
from ane_sweep.ci.formats import github, junit, markdown, sarif
from ane_sweep.ci.judgement import Judgement, LintBudget, Unread, find_code, judge_budget
from ane_sweep.errors import ConfigError, PackageError
from ane_sweep.fix import rewrite as rewriting
from ane_sweep.folders import user_path
from ane_sweep.hazards.rule import ProgramTrial
from ane_sweep.machine.calibrated import find_measurements
from ane_sweep.memory_limits import pause_collection
from ane_sweep.mil import package as packages
from ane_sweep.mil import pipeline
from ane_sweep.outward import escape_controls, mask_credentials
from ane_sweep.placement import chips, judge
from ane_sweep.placement.chips import Chip
from ane_sweep.placement.predict import COMPUTE_UNITS
from ane_sweep.terminal import BAD_CONFIGURATION, IN_DOUBT, NOT_ALL_OK, OK, say
from ane_sweep.verbs import _assets, _hazards, _nets
from ane_sweep.words import Parser, make_number_reader, read_names

HOLDS, FALLS_SHORT, UNREADABLE = OK, NOT_ALL_OK, BAD_CONFIGURATION
DEFAULT_SHARE = 0.9
WRITERS = {"github": github.write, "sarif": sarif.write, "junit": junit.write, "markdown": markdown.write}


def lint(args: list[str]) -> int:
    """Report every package on every chip; return the exit code. Raises ConfigError for a wrong word."""
    given = _parser().read(args)
    given.paths = _find_packages(given.paths)
    _check_words(given)
    if _assets.are_assets(given.paths):
        return _assets.lint(given)
    with pause_collection(), tempfile.TemporaryDirectory(prefix="lint-") as scratch:
        given.scratch = Path(scratch)
        return _report(given)


def _find_packages(paths: list[Path]) -> list[Path]:
    """Return the packages that paths name, each once: a file inside a package names it, as hooks of git pass them."""
    found = []
    for path in paths:
        around = [one for one in (path, *path.parents) if one.suffix in (".mlpackage", ".mlmodelc", *_assets.SUFFIXES)]
        found.append(around[-1] if around else path)
    return list(dict.fromkeys(found))


def _check_words(given: argparse.Namespace) -> None:
    """Raise ConfigError for words that exclude each other."""
    if given.min_ane is not None and given.min_ane_share is not None:
        raise ConfigError("--min-ane and --min-ane-share are one limit, in percent and as a share; give one of them")
    if given.json and given.format not in (None, "json"):
        raise ConfigError(
            f"--json and --format {given.format}: one of them goes to standard output; --save FORMAT=FILE writes more"
        )
    for file in [*(file for _, file in given.save), *([given.badge] if given.badge else [])]:
        if not file.parent.is_dir():
            raise ConfigError(f"{file}: cannot be written (no folder {file.parent}); name one in a folder that exists")
    if given.baseline == "":
        raise ConfigError("--baseline: an empty word; leave it out, or name a package, a report or REV:PATH")
    word = given.baseline or ""
    if len(given.paths) > 1 and word and not word.endswith((":", ".json")):
        raise ConfigError(
            f"--baseline {word} is one package, and {len(given.paths)} are judged; give REV: or a lint report (.json)"
        )


def _report(given: argparse.Namespace) -> int:
    is_all = given.chip == ("all",)
    wanted = [chips.get(name, find_measurements) for name in (chips.published() if is_all else given.chip)]
    shown = "json" if given.json else given.format or "text"
    judgements: list[Judgement] = []
    unread: list[Unread] = []
    trial = _hazards.make_trial(given)
    for path in given.paths:
        try:
            made = _judge(path, wanted, given, trial, must_estimate=not is_all)
        except PackageError as error:
            unread.append(Unread(mask_credentials(str(path)), mask_credentials(str(error))))
            say(f"error: {error}")
            continue
        judgements += made
        if shown == "text":
            _print(path, made, given.chip[0], trial)
    if shown != "text":
        print(_write(shown, judgements, unread))
    for kind, file in given.save:
        _save(file, _write(kind, judgements, unread))
    if given.badge and judgements:
        _save(given.badge, badge.draw_badge(judgements))
    is_untested = bool(judgements) and given.max_ms is not None and all(made.ms is None for made in judgements)
    return UNREADABLE if unread else find_code(judgements) or (IN_DOUBT if is_untested else HOLDS)


def _judge(
    path: Path, wanted: list[Chip], given: argparse.Namespace, trial: ProgramTrial | None, *, must_estimate: bool
) -> list[Judgement]:
    """Return a package's judgement on each chip, compared with its baseline. Raises PackageError."""
    loaded = judge.load(_nets.convert(path, given.inputs, given.scratch) if path.suffix in _nets.DOORS else path)
    share = _least_share(given)
    before = baseline.open_baseline(given.baseline, path) if given.baseline else None
    found = []
    for chip in wanted:
        verdict = judge.judge_programs(path, loaded, chip, given.compute_units, share, given.share, _name_limit(given))
        found.append(judge_budget(verdict, LintBudget(share, given.max_ms, must_estimate)))
        found[-1].add(_hazards.find(verdict, trial if chip is wanted[0] else None))
        if before is not None:
            baseline.compare(found[-1], before)
    return found


def _least_share(given: argparse.Namespace) -> float:
    """Return the least share: with a baseline none, unless it is asked for."""
    if given.min_ane is not None:
        return float(given.min_ane) / 100
    otherwise = 0.0 if given.baseline else DEFAULT_SHARE
    return otherwise if given.min_ane_share is None else float(given.min_ane_share)


def _name_limit(given: argparse.Namespace) -> str:
    """Return the least share as the user gave it."""
    if given.min_ane is not None:
        return f"--min-ane {given.min_ane:g}"
    if given.min_ane_share is None:
        return f"the default of {DEFAULT_SHARE:.0%}"
    return f"--min-ane-share {given.min_ane_share:g}"


def _print(path: Path, made: list[Judgement], chip: str, trial: ProgramTrial | None) -> None:
    for one in made:
        print(escape_controls(str(one)))
        for finding in one.findings:
            if finding.rule.startswith(("baseline/", "budget/max_ms", "budget/not_estimated")):
                do = f"; do: {finding.do}" if finding.do and finding.severity != "note" else ""
                print(escape_controls(f"  {'FAIL' if finding.severity == 'error' else 'note'}  {finding}{do}"))
        hazards = [finding for finding in one.findings if finding.rule.startswith(_hazards.KINDS)]
        shown = hazards if one is made[0] else [finding for finding in hazards if finding.chip]
        silent = _hazards.list_silent(hazards, trial) if one is made[0] else []
        for text in [*_hazards.describe(shown), *silent]:
            print(escape_controls(text))
        if one.changes is not None and one.changes.is_none:
            print(f"  note  no op moved, came or went, compared with {escape_controls(str(one.baseline))}")
    if path.suffix in _nets.DOORS:
        for text in _nets.describe_nodes(made[0].verdict.ops):
            print(escape_controls(text))
        return
    is_off = any(row.preferred != "ane" for one in made for row in one.verdict.ops)
    if line := _advise_fix(path, chip, is_off):
        print(escape_controls(line))


def _write(kind: str, judgements: list[Judgement], unread: list[Unread]) -> str:
    """Return the report in a format."""
    if kind != "json":
        return WRITERS[kind](judgements, unread)
    content = {
        "schema": 1, "tool": f"ane-sweep {__version__}", "rules": baseline.digest_rules(),
        "packages": [made.to_dict() for made in judgements], **({"errors": [vars(one) for one in unread]} if unread else {}),
    }  # fmt: skip
    return json.dumps(content, separators=(",", ":"))


def _save(file: Path, text: str) -> None:
    """Write a file, complete or not at all. Raises ConfigError."""
    try:
        with open_user_file(file) as aside:
            aside.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({error.strerror}); name one in a folder that exists") from error


def _advise_fix(path: Path, chip: str, is_off: bool) -> str | None:
    """Return the command that rewrites a package, if a rewrite matches in it: for placement only if ops are off the ANE."""
    try:
        names = rewriting.find_matches(pipeline.find_program(packages.read(path, kinds=pipeline.KINDS))[0])
    except PackageError:  # a folder of chunks, or a pipeline of several: `fix` takes one ML Program
        return None
    names = [name for name in names if is_off or rewriting.REWRITES[name].kind == "accuracy"]
    better = path.with_name(f"{path.stem}.fixed.mlpackage")
    command = f"ane-sweep fix {shlex.quote(str(path))} -o {shlex.quote(str(better))} --chip {chip}"
    return f"  fix   {command}   # tries {', '.join(names)}" if names else None


def _parser() -> Parser:
    parser = Parser(
        "lint PACKAGE... [--chip m4[,a17_pro...]|all] [--min-ane 95] [--max-ms 2] [--baseline FILE|REV:PATH] "
        "[--format github|sarif|junit|markdown|json] [--save FORMAT=FILE]... [--badge FILE] [--json]",
        "Where the ops of any package would run, and why not on the Neural Engine: a verdict for other people's CI. "
        "What it says is predicted.",
        "ane-sweep lint model.mlpackage --chip m4,a17_pro --baseline origin/main: --json",
        {
            HOLDS: "every package keeps its limits and its baseline, or was not asked to run on the Neural Engine",
            FALLS_SHORT: "one breaks a limit, or an op left the Neural Engine since the baseline",
            UNREADABLE: "a wrong word, or a package or baseline that cannot be read",
            IN_DOUBT: "a chip of --max-ms has no estimate (all chips, with --chip all), or other rules made the baseline",
        },
    )
    parser.add(
        "paths PACKAGE",
        "a .mlpackage (or a file in it), a .mlmodelc, a folder of chunks; an .onnx, .pt2 or .pt, to be converted; a .aimodel or .aimodelc",
        Path,
        nargs="+",
    )
    parser.add("--chip NAME,...", "predicted for; all: every chip of `ane-sweep devices`", read_names, "m4")
    parser.add(
        "--compute-units UNITS", f"what Core ML may use: {', '.join(COMPUTE_UNITS)}", str.lower, "cpu_and_ne",
        choices=COMPUTE_UNITS,
    )  # fmt: skip
    share = make_number_reader("a number from 0 to 1", lambda value: 0 <= value <= 1)
    percent = make_number_reader("a number from 0 to 100", lambda value: 0 <= value <= 100)
    parser.add(
        "--min-ane PERCENT", "the least percentage on the Neural Engine (default: 90; with --baseline: none)", percent
    )
    parser.add("--min-ane-share SHARE", "the same from 0 to 1", share)
    parser.add(
        "--share ops|cost", "what it is a share of: ops, or what Core ML's planner prices them at", default="ops"
    )
    parser.add(
        "--inputs {NAME: SIZES}", "of an .onnx with free axes or a .pt, as '{image: [1,3,224,224]}'", _nets.check_sizes
    )
    _hazards.add_options(parser)
    parser.add(
        "--max-ms MS",
        "the most milliseconds of one call, as estimated",
        make_number_reader("a time above 0", lambda ms: ms > 0),
    )
    parser.add(
        "--baseline WORD", "which ops moved, came or went since: a package, a lint report (.json), REV:PATH of git (REV: for "
        "the same path), or an exported sweep (.zip, with :axis=value,... for one of its cells)",
    )  # fmt: skip
    parser.add(
        "--format NAME", "for standard output: text, json, " + ", ".join(WRITERS), choices=("text", "json", *WRITERS)
    )
    parser.add(
        "--save FORMAT=FILE", "write a format to a file as well; may be repeated", _saving, default=[], action="append"
    )
    parser.add("--badge FILE", "write the worst verdict as an SVG badge", user_path)
    parser.json(
        "tool, rules, packages (each with path, chip, verdict, ane_share, gates, estimate, findings, baseline, ops), assets, errors",
        "text",
    )
    return parser


def _saving(text: str) -> tuple[str, Path]:
    kind, equals, file = text.partition("=")
    if not equals or not file or kind not in ("json", *WRITERS):
        raise ValueError(f"FORMAT=FILE, with one of json, {', '.join(WRITERS)}")
    return kind, user_path(file)
