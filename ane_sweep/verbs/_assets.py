"""`lint` of Core AI's assets: what they hold and which known faults they have."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ane_sweep import __version__
from ane_sweep.ci.judgement import Unread
from ane_sweep.errors import ConfigError, PackageError
from ane_sweep.hazards import assets
from ane_sweep.hazards.assets import AssetReport
from ane_sweep.outward import escape_controls, mask_credentials
from ane_sweep.placement.rows import count_text
from ane_sweep.terminal import BAD_CONFIGURATION, NOT_ALL_OK, OK, say

SUFFIXES = (assets.SOURCE, assets.COMPILED)
_SHOWN = 6  # of the most frequent ops
_PLACED = ("min_ane", "min_ane_share", "max_ms", "baseline", "badge", "save", "numbers", "effects")


def are_assets(paths: Sequence[Path]) -> bool:
    """Return True if paths name assets. Raises ConfigError if only some do."""
    of_coreai = [path for path in paths if path.suffix in SUFFIXES]
    if of_coreai and len(of_coreai) < len(paths):
        raise ConfigError(
            f"{of_coreai[0]}: Core AI's assets and Core ML's packages are judged by different rules; name one kind"
        )
    return bool(of_coreai)


def lint(given: argparse.Namespace) -> int:
    """Report every asset; return the exit code. Raises ConfigError for an option that asks for a placement."""
    for name in _PLACED:
        if getattr(given, name):
            raise ConfigError(
                f"--{name.replace('_', '-')}: of Core ML's packages: nothing predicts where an asset's ops run; leave it out"
            )
    if given.format not in (None, "text", "json"):
        raise ConfigError(f"--format {given.format}: of assets there is text and json")
    reports: list[AssetReport] = []
    unread: list[Unread] = []
    for path in given.paths:
        try:
            reports.append(assets.judge(path, given.compute_units in ("all", "cpu_and_ne")))
        except PackageError as error:
            unread.append(Unread(mask_credentials(str(path)), mask_credentials(str(error))))
            say(f"error: {error}")
    if given.json or given.format == "json":
        content = {
            "schema": 1, "tool": f"ane-sweep {__version__}", "assets": [one.to_dict() for one in reports],
            **({"errors": [vars(one) for one in unread]} if unread else {}),
        }  # fmt: skip
        print(json.dumps(content))
    else:
        for report in reports:
            print("\n".join(map(escape_controls, describe(report))))
    return BAD_CONFIGURATION if unread else OK if all(one.is_ok for one in reports) else NOT_ALL_OK


def describe(report: AssetReport) -> list[str]:
    """Return the lines about an asset."""
    doubts = sum(finding.severity == "warning" for finding in report.findings)
    verdict = ("ok" if report.is_ok else "NOT ok") + (f", with {count_text(doubts, 'warning')}" if doubts else "")
    if report.path.suffix == assets.COMPILED:
        parts = ", ".join(f"{count} {unit}" for unit, count in report.regions.items()) or "none"
        all_of_it = "; all of it on the Neural Engine, says its manifest" if report.whole else ""
        lines = [
            f"{report.path}: {verdict}   compiled for {', '.join(report.architectures) or '?'}; regions: {parts}{all_of_it}"
        ]
    else:
        lines = [
            f"{report.path}: {verdict}   asset of {report.producer or 'an unnamed producer'}; its placement is known on macOS 27 alone"
        ]
        if report.ops:
            lines += [
                f"  ops      {sum(report.ops.values()):,}: {_name_largest(report.ops)}",
                f"  numbers  {_name_largest(report.weights)}",
            ]
    for finding in report.findings:
        mark = {"error": "FAIL", "warning": "warning"}.get(finding.severity, "note")
        lines.append(f"  {mark}  {finding} [{finding.source}]; do: {finding.do}")
    return lines


def _name_largest(counts: Mapping[str, int]) -> str:
    shown = [f"{count:,} {name}" for name, count in [*counts.items()][:_SHOWN]]
    return ", ".join(shown) + (f" and {len(counts) - _SHOWN} kinds more" if len(counts) > _SHOWN else "")
