"""One package on one chip as lint reports it: the verdict, its findings, and the exit code that they mean."""

from collections.abc import Sequence
from dataclasses import dataclass

from ane_sweep.placement.changes import Changes
from ane_sweep.placement.findings import Finding, list_findings
from ane_sweep.placement.judge import Verdict
from ane_sweep.placement.predict import ChunkResult
from ane_sweep.placement.structure import describe_ops
from ane_sweep.terminal import IN_DOUBT, NOT_ALL_OK, OK

_ORDER = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class LintBudget:
    """The limits that a package must keep. `max_ms`: None is no limit. `must_estimate`: a chip without an estimate leaves doubt."""

    min_ane_share: float
    max_ms: float | None = None
    must_estimate: bool = True


@dataclass(frozen=True)
class Unread:
    """A package that could not be judged, and why."""

    path: str
    error: str


@dataclass
class Judgement:
    """A verdict with all its findings, errors first. `changes`: compared with a baseline, None without one."""

    verdict: Verdict
    findings: list[Finding]
    changes: Changes | None = None
    baseline: str | None = None
    was_ms: float | None = None
    in_doubt: bool = False

    @property
    def is_ok(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def code(self) -> int:
        """Return the exit code of this package on this chip alone."""
        return NOT_ALL_OK if not self.is_ok else IN_DOUBT if self.in_doubt else OK

    @property
    def ms(self) -> float | None:
        estimate = self.verdict.prediction.estimate
        return round(estimate.ms, 4) if estimate else None

    def __str__(self) -> str:
        broken = {finding.rule.partition("/")[0] for finding in self.findings if finding.severity == "error"}
        if not self.verdict.ok or self.code == OK:
            return str(self.verdict)
        if not broken:
            return self.verdict.describe("in doubt")
        words = [
            word for kind, word in (("baseline", "worse than the baseline"), ("budget", "too slow")) if kind in broken
        ]
        return self.verdict.describe(f"NOT ok, {' and '.join(words)}")

    def add(self, findings: list[Finding]) -> None:
        """Add findings of further rules, and keep errors first."""
        self.findings = sorted([*self.findings, *findings], key=lambda one: _ORDER[one.severity])

    def to_dict(self) -> dict[str, object]:
        """Return the entry in the output of `ane-sweep lint --json`: the verdict's, with findings, and each op's place in the program."""
        entry = self.verdict.to_dict()
        for op, note in zip(entry["ops"], describe_ops(self.verdict.ops), strict=True):
            op |= {"module": note.module, "reads": note.reads, "outputs": note.outputs, "weights": note.weights}
        entry |= {
            "facts": list_facts(self.verdict.prediction.chunks),
            "verdict": self.is_ok,
            "findings": [finding.to_dict() for finding in self.findings],
        }
        if self.changes is not None:
            entry["baseline"] = {"name": self.baseline, "latency_ms": self.was_ms, **self.changes.to_dict()}
        return entry


def judge_budget(verdict: Verdict, budget: LintBudget) -> Judgement:
    """Return a verdict's judgement: the reasons why ops are off the Neural Engine, its gates, and broken limits."""
    chip, summary = verdict.chip, verdict.summary
    made = Judgement(verdict, [])
    made.add(
        list_findings(verdict.ops, summary.reasons, chip) if verdict.compute_units in ("all", "cpu_and_ne") else []
    )
    made.add([
        Finding(
            rule=f"gate/{gate.gate}", severity="warning", what=f"a limit of the whole program ({gate.effect})",
            why=gate.reason, do=gate.advice, source=gate.source, confidence=gate.confidence, chip=chip,
        )
        for chunk in verdict.prediction.chunks for gate in chunk.gates
    ])  # fmt: skip
    made.add(_check_share(verdict, budget))
    made.add(_check_latency(made, budget))
    return made


def _check_share(verdict: Verdict, budget: LintBudget) -> list[Finding]:
    if verdict.ok:
        return []
    return [
        Finding(
            rule="budget/min_ane", severity="error", chip=verdict.chip, confidence=verdict.summary.confidence or "low",
            what=f"{verdict.ane_share:.1%} on the ANE, below the limit of {budget.min_ane_share:.1%}",
            why="the ops that stay off it are listed with their reasons", do="mend those, or ask for less with --min-ane",
            source=verdict.limit, ops=verdict.summary.ops.total - verdict.summary.ops.ane,
        )
    ]  # fmt: skip


def _check_latency(made: Judgement, budget: LintBudget) -> list[Finding]:
    """Return the finding of an estimate over the limit, or of a missing one, with which the limit is untested."""
    prediction, chip = made.verdict.prediction, made.verdict.chip
    if budget.max_ms is None:
        return []
    if made.ms is None:
        made.in_doubt = budget.must_estimate
        return [
            Finding(
                rule="budget/not_estimated", severity="warning", what="--max-ms could not be tested", chip=chip,
                why=prediction.not_estimated or "no estimate", do="name a chip with an estimate (`ane-sweep devices`)",
                source="estimate", confidence="high",
            )
        ]  # fmt: skip
    if made.ms <= budget.max_ms or prediction.estimate is None:
        return []
    found = prediction.estimate
    return [
        Finding(
            rule="budget/max_ms", severity="error", chip=chip, confidence=found.confidence, source=found.anchor,
            what=f"about {made.ms:g} ms a call, above the limit of {budget.max_ms:g} ms",
            why=f"estimated, band {found.low_ms:.3g} to {found.high_ms:.3g} ms", do="mend what costs most, or raise --max-ms",
        )
    ]  # fmt: skip


def list_facts(chunks: Sequence[ChunkResult]) -> dict[str, str]:
    """Return the facts of all programs of a chain; later ones add those that earlier ones lack."""
    found: dict[str, str] = {}
    for chunk in chunks:
        found = chunk.program.facts | found
    return found


def find_code(judgements: list[Judgement]) -> int:
    """Return the exit code of several judgements: 1 before 3 before 0."""
    codes = {one.code for one in judgements}
    return next((code for code in (NOT_ALL_OK, IN_DOUBT) if code in codes), OK)
