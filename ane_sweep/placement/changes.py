"""The difference between two predictions of a model: ops that moved to another unit, were added, went away or changed form."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ane_sweep.placement.findings import Finding, Severity
from ane_sweep.placement.matching import match_ops
from ane_sweep.placement.rows import count_text, name_types
from ane_sweep.placement.structure import OpOutline

_MOST_NAMES = 3
_MEND = "mend the reason, or accept the change with a new baseline"
Pair = tuple[OpOutline, OpOutline]  # before, after


@dataclass(frozen=True)
class Changes:
    """The ops that differ between a baseline and a package on one chip.

    moved    ops on another unit than before; `reshaped`: on the same unit with other shapes, types or weights
    matched  how many ops correspond; `used_ane`: some op was on the Neural Engine before
    """

    moved: list[Pair] = field(default_factory=list)
    added: list[OpOutline] = field(default_factory=list)
    removed: list[OpOutline] = field(default_factory=list)
    reshaped: list[Pair] = field(default_factory=list)
    matched: int = 0
    used_ane: bool = True

    @property
    def left_ane(self) -> list[Pair]:
        """Return the ops that were on the Neural Engine and no longer are."""
        return [pair for pair in self.moved if pair[0].preferred == "ane"]

    @property
    def added_off(self) -> list[OpOutline]:
        """Return the new ops off the Neural Engine, if it was used before and more of them came than went away."""
        new = [op for op in self.added if op.preferred != "ane"]
        return new if self.used_ane and len(new) > sum(op.preferred != "ane" for op in self.removed) else []

    @property
    def is_worse(self) -> bool:
        return bool(self.left_ane or self.added_off)

    @property
    def is_none(self) -> bool:
        return not (self.moved or self.added or self.removed or self.reshaped)

    def to_dict(self) -> dict[str, object]:
        """Return the changes as JSON values: ops by name, with units before and after."""
        pairs = {"moved": self.moved, "reshaped": self.reshaped}
        alone = {"added": self.added, "removed": self.removed}
        return {
            "matched": self.matched,
            "is_worse": self.is_worse,
            **{kind: [_pair_entry(*pair) for pair in found] for kind, found in pairs.items()},
            **{kind: [_op_entry(op) for op in found] for kind, found in alone.items()},
        }


def compare_ops(before: Sequence[OpOutline], after: Sequence[OpOutline]) -> Changes:
    """Return what differs between two predictions."""
    pairs = match_ops(before, after)
    both = [(before[first], after[second]) for second, first in sorted(pairs.items())]
    gone = set(range(len(before))) - set(pairs.values())
    return Changes(
        [one for one in both if one[0].preferred != one[1].preferred],
        [op for place, op in enumerate(after) if place not in pairs],
        [before[place] for place in sorted(gone)],
        [one for one in both if one[0].preferred == one[1].preferred and _form(one[0]) != _form(one[1])],
        len(both),
        any(op.preferred == "ane" for op in before),
    )


def _form(op: OpOutline) -> tuple[list[str], list[str]]:
    return op.outputs, op.weights


def _op_entry(op: OpOutline) -> dict[str, object]:
    return {"name": op.name, "op_type": op.op_type, "module": op.module, "preferred": op.preferred, "reason": op.reason}


def _pair_entry(before: OpOutline, after: OpOutline) -> dict[str, object]:
    return {
        **_op_entry(after), "was": before.preferred, "was_named": before.name,
        "outputs": after.outputs, "had_outputs": before.outputs, "weights": after.weights, "had_weights": before.weights,
    }  # fmt: skip


def list_change_findings(changes: Changes, chip: str, baseline: str) -> list[Finding]:
    """Return the changes as findings, one for each kind, the ones that fail first. `baseline`: its name, for messages."""
    back = [pair for pair in changes.moved if pair not in changes.left_ane]
    kinds: list[tuple[str, Severity, str, Sequence[OpOutline], str | None]] = [
        ("left_ane", "error", "left the ANE", [op for _, op in changes.left_ane], _MEND),
        ("added_off_ane", "error", "new and off the ANE", changes.added_off, _MEND),
        ("moved", "note", "moved to another unit", [op for _, op in back], None),
        ("added", "note", "new", [op for op in changes.added if op not in changes.added_off], None),
        ("removed", "note", "went away", changes.removed, None),
        ("reshaped", "note", "changed shape, type or weights", [op for _, op in changes.reshaped], None),
    ]
    was = {id(after): before for before, after in (*changes.moved, *changes.reshaped)}
    return [
        Finding(
            rule=f"baseline/{kind}", severity=severity,
            what=f"{count_text(len(ops), 'op')} {what} ({name_types(Counter(op.op_type for op in ops).most_common())})",
            why=f"compared with {baseline}: " + "; ".join(_explain(ops, was)), do=do, source=baseline,
            confidence=min((op.confidence for op in ops), key=["low", "medium", "high"].index), chip=chip,
            op=ops[0].name, op_type=ops[0].op_type, ops=len(ops),
            module=ops[0].module or None,
        )
        for kind, severity, what, ops, do in kinds
        if ops
    ]  # fmt: skip


def _explain(ops: Sequence[OpOutline], was: dict[int, OpOutline]) -> list[str]:
    """Return a text for each of the first reasons with the ops that share it, and one for the number of the other ops."""
    same: dict[str, list[str]] = {}
    for op in ops:
        name = f"{op.name} ({op.module})" if op.module else op.name
        same.setdefault(_explain_one(op, was.get(id(op))), []).append(name)
    shown = list(same.items())[:_MOST_NAMES]
    rest = len(ops) - sum(len(names) for _, names in shown)
    return [f"{_list_names(names)} {why}" for why, names in shown] + ([f"{rest} more"] if rest else [])


def _list_names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _explain_one(op: OpOutline, before: OpOutline | None) -> str:
    if before is None:
        return f"on {op.preferred}" + (f": {op.reason}" if op.preferred != "ane" and op.reason else "")
    if before.preferred != op.preferred:
        return f"{before.preferred} -> {op.preferred}" + (f": {op.reason}" if op.preferred != "ane" else "")
    pairs = ((before.outputs, op.outputs), (before.weights, op.weights))
    return ", ".join(f"{' '.join(old)} -> {' '.join(new)}" for old, new in pairs if old != new)
