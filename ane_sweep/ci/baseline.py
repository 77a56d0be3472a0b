"""Baselines that packages are compared with: another package, an earlier lint report, a git revision, or a cell of an exported sweep."""

import hashlib
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from ane_sweep.bridge import conversion
from ane_sweep.ci import revisions
from ane_sweep.ci.judgement import Judgement, list_facts
from ane_sweep.errors import ConfigError, PackageError
from ane_sweep.mil import untrusted
from ane_sweep.placement import judge, predict
from ane_sweep.placement.changes import compare_ops, list_change_findings
from ane_sweep.placement.findings import Finding, Severity
from ane_sweep.placement.predict import AT_DEFAULT
from ane_sweep.placement.programs import Program
from ane_sweep.placement.structure import OpOutline, describe_ops
from ane_sweep.placement.types import Placement

_REPORT, _BUNDLE = ".json", ".zip"
_AGAIN = "make it again: ane-sweep lint PACKAGE --json"


@dataclass(frozen=True)
class EstimateEntry:
    """The estimate of a lint report."""

    latency_ms: float | None = None


@dataclass(frozen=True)
class ReportEntry:
    """One package on one chip in a lint report; further fields are not read."""

    path: str
    chip: str
    compute_units: str
    estimate: EstimateEntry
    ops: list[OpOutline]
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LintReport:
    """The output of `ane-sweep lint --json`. `rules`: the digest of the rules that judged."""

    packages: list[ReportEntry]
    rules: str = ""
    schema: int = 1


@dataclass
class Baseline:
    """A baseline's content: programs that are judged beside the package, or a report, or a cell's placements by chip.

    is_new   True if the revision does not have the package
    """

    name: str
    programs: list[Program] = field(default_factory=list)
    report: LintReport | None = None
    placements: dict[str, Placement] | None = None
    is_new: bool = False
    folder: "tempfile.TemporaryDirectory[str] | None" = None


@cache
def digest_rules() -> str:
    """Return a short digest of the code and data that predict, by which a report tells whether it was made by the same ones."""
    room = Path(judge.__file__).parent
    files = sorted(path for path in room.rglob("*") if path.suffix in (".py", ".json", ".csv"))
    found = hashlib.sha256()
    for file in files:
        found.update(file.relative_to(room).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]


def open_baseline(word: str, package: Path) -> Baseline:
    """Open the baseline of a package. "REV:" alone means the package's own path at that revision.

    Raises ConfigError or StoreError for a wrong word or file, PackageError for a package that cannot be read.
    """
    path = Path(word)
    if path.suffix == _REPORT and path.is_file():
        return Baseline(word, report=_read_report(path))
    if word.partition(":")[0].endswith(_BUNDLE) and Path(word.partition(":")[0]).is_file():
        from ane_sweep.ci import exported  # it loads the report's rooms, which takes as long as all the rest

        return Baseline(word, placements=exported.read_placements(word))
    if path.exists():
        return Baseline(word, judge.load(path))
    revision, colon, there = word.partition(":")
    if not colon or not revision:
        raise ConfigError(
            f"--baseline {word}: no such file; a package, a lint report (.json), REV:PATH (REV: for the same path), or an exported "
            "sweep (.zip)"
        )
    return _open_revision(word, revision, there, package)


def _open_revision(word: str, revision: str, there: str, package: Path) -> Baseline:
    folder = tempfile.TemporaryDirectory(prefix="ane-sweep-baseline-")
    place = there or revisions.find_in_repository(package)
    if (found := revisions.check_out(revision, place, Path(folder.name))) is not None:
        return Baseline(f"{revision}:{place}", judge.load(found), folder=folder)
    if there:
        raise PackageError(
            f"--baseline {word}: {revision} has nothing at {there}; `git ls-tree -r --name-only {revision}` lists it"
        )
    return Baseline(f"{revision}:{place}", is_new=True)


def _read_report(path: Path) -> LintReport:
    try:
        report = conversion.convert(untrusted.read_json(path), LintReport)
    except (OSError, ValueError) as error:  # msgspec's error is a ValueError
        raise ConfigError(f"--baseline {path}: no lint report ({str(error)[:200]}); {_AGAIN}") from error
    for entry in report.packages:
        for place, op in enumerate(entry.ops):
            if not op.outputs or any(not -1 <= read < place for read in op.reads):
                raise ConfigError(
                    f"--baseline {path}: op {op.name[:80]!r} does not say what it reads and makes; {_AGAIN}"
                )
    return report


def compare(made: Judgement, baseline: Baseline) -> None:
    """Add the differences from a baseline to a judgement. Raises ConfigError if the baseline lacks its chip or package."""
    made.baseline = baseline.name
    verdict = made.verdict
    if baseline.is_new:
        made.add([_note("new", made, "this package is new", "the revision has nothing at its path")])
        return
    if baseline.placements is not None:
        _compare_counts(made, baseline.placements)
        return
    if baseline.report is None:
        before = predict.predict_chain(baseline.programs, verdict.prediction.chip, verdict.compute_units)
        ops, facts = describe_ops(before.rows), list_facts(before.chunks)
        made.was_ms = round(before.estimate.ms, 4) if before.estimate else None
    else:
        entry = _find_entry(baseline.report, baseline.name, made)
        ops, facts, made.was_ms = entry.ops, entry.facts, entry.estimate.latency_ms
        if baseline.report.rules != digest_rules():
            made.in_doubt = True
            why = "another version of ane-sweep made it, so a difference may be the rules' and not the package's"
            made.add([_note("other_rules", made, "the baseline was judged by other rules", why)])
    _compare_facts(made, facts)
    made.changes = compare_ops(ops, describe_ops(verdict.ops))
    made.add(list_change_findings(made.changes, verdict.chip, baseline.name))


def _compare_facts(made: Judgement, before: dict[str, str]) -> None:
    """Add what differs beside the ops: the oldest OS, the converter, and inputs that take several shapes now."""
    after = list_facts(made.verdict.prediction.chunks)
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    opened = [key for key in keys if key.startswith("input ") and after.get(key, "").startswith("range")]
    if others := [f"{key} {before.get(key, 'none')} -> {after.get(key, 'none')}" for key in keys if key not in opened]:
        made.add([_note("made_otherwise", made, "made otherwise", "; ".join(others))])
    if opened:
        finding = _note("range", made, f"{', '.join(opened)}: takes a range of shapes, and did not before", AT_DEFAULT)
        made.add([replace(finding, severity="warning", confidence="low", do="enumerate the few shapes that you need")])


def _find_entry(report: LintReport, name: str, made: Judgement) -> ReportEntry:
    """Return the entry of the same chip, units and path, of the same file name, or of the only package."""
    verdict = made.verdict
    fitting = [one for one in report.packages if (one.chip, one.compute_units) == (verdict.chip, verdict.compute_units)]
    paths = {one.path for one in fitting}
    for wanted in (
        [one for one in fitting if one.path == str(verdict.path)],
        [one for one in fitting if Path(one.path).name == verdict.path.name],
        fitting if len(paths) == 1 else [],
    ):
        if len(wanted) == 1:
            return wanted[0]
    there = sorted({f"{one.path} on {one.chip} ({one.compute_units})" for one in report.packages})
    raise ConfigError(
        f"--baseline {name}: nothing there is {verdict.path} on {verdict.chip} ({verdict.compute_units}); it holds "
        f"{', '.join(there[:5]) or 'nothing'}"
    )


def _compare_counts(made: Judgement, placements: dict[str, Placement]) -> None:
    """Compare numbers of ops by unit and type with a record, which lists no ops one by one."""
    verdict, after = made.verdict, made.verdict.summary
    before = placements.get(verdict.chip)
    if before is None or before.compute_units != verdict.compute_units:
        there = ", ".join(f"{chip} ({entry.compute_units})" for chip, entry in placements.items())
        raise ConfigError(
            f"--baseline {made.baseline}: no prediction for {verdict.chip} ({verdict.compute_units}) there; "
            f"it has {there or 'none'}"
        )
    was, now = _count_off(before), _count_off(after)
    differences: list[tuple[str, Severity, Counter[str], str]] = [
        ("left_ane", "error", now - was, "more"), ("moved", "note", was - now, "fewer"),
    ]  # fmt: skip
    for rule, severity, kinds, text in differences:
        if kinds and (rule != "left_ane" or before.ops.ane):
            types = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(4))
            why = f"{before.ops.ane} of {before.ops.total} ops were on the ANE, and {after.ops.ane} of {after.ops.total} are"
            finding = _note(rule, made, f"{text} ops off the ANE ({types})", why)
            made.add([replace(finding, severity=severity, ops=kinds.total())])


def _count_off(placement: Placement) -> Counter[str]:
    """Return the number of ops off the Neural Engine by type."""
    found: Counter[str] = Counter()
    for reason in placement.reasons:
        found.update(reason.op_types)
    return found


def _note(rule: str, made: Judgement, what: str, why: str) -> Finding:
    return Finding(
        rule=f"baseline/{rule}", severity="note", what=what, why=f"compared with {made.baseline}: {why}",
        source=str(made.baseline), confidence="high", chip=made.verdict.chip,
    )  # fmt: skip
