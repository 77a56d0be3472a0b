"""`ane-sweep lint PACKAGE... [--chip m4] [--json]`: where its ops would run, and why not on the ANE

A verdict on packages, ours or anybody's, for other people's CI. Reads protobufs only.

Exit code 0 when every package keeps at least --min-ane-share of its ops on the ANE and passes its gates, 1 when one does
not, 2 when one cannot be read. Where the ANE was not asked (cpu_only, cpu_and_gpu) there is nothing to fall short of.
"""

import argparse
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ane_sweep.errors import PackageError
from ane_sweep.machine.calibrated import find_measurements
from ane_sweep.outward import escape_controls, mask_credentials
from ane_sweep.placement import chips, judge
from ane_sweep.placement.predict import COMPUTE_UNITS
from ane_sweep.terminal import BAD_CONFIGURATION, NOT_ALL_OK, OK, say
from ane_sweep.words import Parser

HOLDS, FALLS_SHORT, UNREADABLE = OK, NOT_ALL_OK, BAD_CONFIGURATION
SCHEMA = 1


@dataclass
class Options:
    """The options of the verb; `share` is the figure that --min-ane-share limits: of ops, or of their planner cost."""

    paths: list[Path] = field(default_factory=list)
    chips: list[str] = field(default_factory=lambda: ["m4"])
    compute_units: str = "cpu_and_ne"
    min_ane_share: float = 0.9
    share: str = "ops"
    json: bool = False


def lint(args: list[str]) -> int:
    """Run the verb; returns its exit code. Raises ConfigError for a wrong word."""
    options = parse(args)
    with judge.pause_collection():
        return report(options)


def report(options: Options) -> int:
    """Report every package on every chip; return the exit code."""
    wanted = [chips.get(name, find_measurements) for name in options.chips]
    found, problems, code = [], [], HOLDS
    for path in options.paths:
        try:
            loaded = judge.load(path)
        except PackageError as error:
            problems.append({"path": mask_credentials(str(path)), "error": mask_credentials(str(error))})
            say(f"error: {error}")
            code = UNREADABLE
            continue
        for chip in wanted:
            one = judge.judge_programs(path, loaded, chip, options.compute_units, options.min_ane_share, options.share)
            code = code if one.ok else max(code, FALLS_SHORT)
            if options.json:
                found.append(one.to_dict())
            else:
                print(escape_controls(str(one)))
    if options.json:
        content: dict[str, Any] = {"schema": SCHEMA, "packages": found}
        print(json.dumps({**content, "errors": problems} if problems else content, separators=(",", ":")))
    return code


def parse(args: list[str]) -> Options:
    """Return the options from words; `--name value` and `--name=value` are equivalent."""
    plain = Options()
    parser = Parser(
        "lint",
        "PACKAGE... [--chip m4[,a17_pro...]] [--compute-units cpu_and_ne] [--min-ane-share 0.9] [--share ops|cost] [--json]",
        "Where the ops of any package would run, and why not on the Neural Engine: a verdict for other people's CI. "
        "What it says is predicted.",
        "ane-sweep lint model.mlpackage --chip m4,a17_pro --json",
        {
            HOLDS: "every package keeps its share on the Neural Engine, or was not asked to run there",
            FALLS_SHORT: "one falls short",
            UNREADABLE: "a wrong word, or a package that cannot be read",
        },
    )
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PACKAGE", help="a .mlpackage, a .mlmodelc, or a folder of chunks"
    )
    parser.add_argument(
        "--chip", dest="chips", type=_names, default=plain.chips, metavar="NAME,...", help="predicted for (default: m4)"
    )
    parser.add_argument(
        "--compute-units", type=str.lower, choices=COMPUTE_UNITS, default=plain.compute_units, metavar="UNITS",
        help=f"what Core ML may use: {', '.join(COMPUTE_UNITS)} (default: {plain.compute_units})",
    )  # fmt: skip
    parser.add_argument(
        "--min-ane-share", type=_share, default=plain.min_ane_share, metavar="SHARE",
        help=f"from 0 to 1; less than that falls short (default: {plain.min_ane_share})",
    )  # fmt: skip
    parser.add_argument(
        "--share",
        choices=("ops", "cost"),
        default=plain.share,
        metavar="ops|cost",
        help="what it is a share of: ops, or what Core ML's planner prices them at (default: ops)",
    )
    parser.json("packages (each with path, chip, verdict, ane_share, gates, estimate, ops), errors", "text")
    return Options(**vars(parser.read(args)))


def _names(text: str) -> list[str]:
    if names := [part for part in text.split(",") if part]:
        return names
    raise argparse.ArgumentTypeError("needs a value")


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if 0 <= value <= 1:
        return value
    raise argparse.ArgumentTypeError(f"{text}: expected a number from 0 to 1")
