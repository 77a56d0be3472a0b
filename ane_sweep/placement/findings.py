"""The form in which every rule of `lint` reports: one finding per chip, place and cause, in the terminal, in JSON and in CI's formats."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from ane_sweep.placement.rows import OpRow, count_text, name_types
from ane_sweep.placement.types import Reason

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a rule found in a program.

    rule      what found it, for machines: "placement/gather_index", "numerics/fp16_overflow", "load/many_ops"
    severity  error (a limit of the user is broken), warning (a device does other than wanted), note (worth knowing)
    what      what was found, as one clause; `why` its cause; `do` the change that mends it
    chip      None if it holds on every chip; `op`: the first of `ops` by name, None for the whole program
    ops       how many ops it concerns; `module`, `location`: their torch module and source line ("net.py:12")
    rewrite   a rewrite of `ane-sweep fix` that mends it
    """

    rule: str
    severity: Severity
    what: str
    why: str
    do: str | None = None
    source: str
    confidence: str
    chip: str | None = None
    op: str | None = None
    op_type: str | None = None
    ops: int = 1
    module: str | None = None
    location: str | None = None
    rewrite: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the finding's entry in the output of `ane-sweep lint --json`."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


def list_findings(rows: Sequence[OpRow], found: Sequence[Reason], chip: str) -> list[Finding]:
    """Return one finding for each reason why ops are off the Neural Engine, most costly first."""
    advice = {row.verdict.rule: row.verdict.advice for row in rows if row.verdict.rule and row.verdict.advice}
    return [
        Finding(
            rule=f"placement/{reason.rule or 'other'}", severity="note" if reason.rule in (None, "path") else "warning",
            what=f"{count_text(reason.ops, 'op')} off the ANE ({name_types(reason.op_types.items())})", why=reason.reason,
            do=advice.get(reason.rule or ""), source=reason.source, confidence=reason.confidence or "low", chip=chip,
            op=reason.names[0], op_type=next(iter(reason.op_types)), ops=reason.ops,
        )
        for reason in found
    ]  # fmt: skip
