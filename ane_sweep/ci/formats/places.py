"""Places of findings, as formats for hosted CI need them: a file of the repository, and a line."""

import os
import re
from pathlib import Path

from ane_sweep.ci.judgement import Judgement
from ane_sweep.outward import make_public
from ane_sweep.placement.findings import Finding

_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)")


def find_place(made: Judgement, finding: Finding) -> tuple[str, int]:
    """Return (file, line): the torch source of a finding if it lies here, else line 1 of the package's manifest or file."""
    source = _LINE.fullmatch(finding.location or "")
    if source and Path(source["file"]).is_file():
        return show_path(Path(source["file"])), int(source["line"])
    manifest = made.verdict.path / "Manifest.json"
    return show_path(manifest if manifest.is_file() else made.verdict.path), 1


def show_path(path: Path) -> str:
    """Return a path from the working folder, with slashes, or without private names if it lies elsewhere."""
    relative = os.path.relpath(path)
    return Path(make_public(str(path) if relative.startswith("..") else relative)).as_posix()


def describe(finding: Finding) -> str:
    """Return a finding as one text: its cause, what to do, source and confidence."""
    do = f" Do: {finding.do}." if finding.do else ""
    fix = f" `ane-sweep fix` tries {finding.rewrite}." if finding.rewrite else ""
    return make_public(f"{finding.why}.{do}{fix} [{finding.confidence}; {finding.source}]")


def describe_title(made: Judgement, finding: Finding) -> str:
    """Return the short text of a finding, with its chip."""
    return make_public(f"{made.verdict.chip}: {finding.what}")
