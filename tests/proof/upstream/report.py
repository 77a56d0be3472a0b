"""The result as text: per file, then failures by cause, then what was not counted and why."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from ane_sweep import tables
from tests.proof.upstream import exclusions, verdict


@dataclass
class Tally:
    """Items by what became of them. `healed` are exclusions whose item passed: they fail the run."""

    counted: Counter[str] = field(default_factory=Counter)  # file -> items in the figure
    passed: Counter[str] = field(default_factory=Counter)
    predicted: Counter[str] = field(default_factory=Counter)
    other: dict[str, Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )  # file -> skipped, outside, ...
    failures: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    loosened: int = 0  # items labelled fp32 that were held to the fp16 tolerance
    excluded: list[tuple[str, exclusions.Exclusion]] = field(default_factory=list)
    healed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def add(self, item: dict[str, Any], cause: str | None) -> None:
        """Sort in one item; `cause` as verdict.settle gave it, None for one that did not fail."""
        node, file = item["node"], item["node"].partition("::")[0]
        rule = exclusions.find(node)
        if rule is not None and item["outcome"] == "passed":
            self.healed.append(node)
        if item["outcome"] in ("failed", "crashed") and cause is not None:
            self.failures[cause].append(item)
        if rule is not None and item["outcome"] == "failed" and cause not in ("lacks an op", *verdict.OUTSIDE):
            self.excluded.append((node, rule))
            self.failures[str(cause)].remove(item)
            self.other[file]["excluded"] += 1
        elif verdict.counts(item, cause):
            self.counted[file] += 1
            self.passed[file] += item["outcome"] == "passed"
            self.predicted[file] += bool(item.get("predicted"))
            self.loosened += bool(item.get("loosened"))
        else:
            self.other[file][_beside(item, cause)] += 1

    @property
    def rate(self) -> float:
        total = sum(self.counted.values())
        return sum(self.passed.values()) / total if total else 1.0

    @property
    def is_good(self) -> bool:
        return self.rate >= 0.995 and not self.healed and not self.errors and not self.failures.get("crashed")


def _beside(item: dict[str, Any], cause: str | None) -> str:
    if item["outcome"] in ("failed", "crashed"):
        return cause or "failed"
    return "builds no ML Program" if item["outcome"] == "passed" else item["outcome"]


def text(tally: Tally) -> str:
    """The whole report."""
    rows = []
    for file in sorted({*tally.counted, *tally.other}):
        ran, passed = tally.counted[file], tally.passed[file]
        beside = ", ".join(f"{name} {count}" for name, count in sorted(tally.other[file].items()))
        rows.append((file, *map(str, (ran, passed, ran - passed, tally.predicted[file])), beside))
    heads = ("file", "ran", "passed", "failed", "predicted", "not counted")
    lines = [tables.aligned(rows, heads=heads, right=range(1, 5))]
    ran, passed = sum(tally.counted.values()), sum(tally.passed.values())
    lines += ["", f"{passed} of {ran} items passed: {100 * tally.rate:.2f} %; the bar is 99.5 %"]
    lines += [f"{tally.loosened} of them are labelled fp32 but declare fp16, and were held to the fp16 tolerance"]
    for cause in sorted(tally.failures, key=lambda name: (name in verdict.OUTSIDE, name)):
        lines += _cause(cause, tally.failures[cause])
    lines += _excluded(tally)
    lines += [f"could not be collected: {error}" for error in tally.errors]
    return "\n".join(lines)


def _cause(cause: str, items: list[dict[str, Any]]) -> list[str]:
    if not items:
        return []
    whose = f"not counted: {verdict.OUTSIDE[cause]}" if cause in verdict.OUTSIDE else "ours, until shown otherwise"
    lines = ["", f"{cause} ({len(items)}; {whose})"]
    for item in items:
        words = " ".join(item.get("text", "").split())[:200]
        lines.append(f"  {item['node']}\n      {item.get('error', '')} at {item.get('where', '')}: {words}")
    return lines


def _excluded(tally: Tally) -> list[str]:
    """The whole of exclusions.toml, with the items of this run that each entry covered."""
    rules = exclusions.rules()
    lines = ["", f"exclusions.toml ({len(exclusions.read())} entries; {len(tally.excluded)} items of this run)"]
    for exclusion in exclusions.read():
        hit = sum(found == exclusion for _, found in tally.excluded)
        lines.append(
            f"  {exclusion.node}: {hit} here\n      {exclusion.rule}: {rules[exclusion.rule]}. {exclusion.cause}"
        )
    if tally.healed:
        lines += ["", "excluded but passing: take these out of exclusions.toml"]
        lines += [f"  {node}" for node in tally.healed]
    return lines
