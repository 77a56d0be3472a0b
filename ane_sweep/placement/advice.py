"""Advice on changes that make a model faster on the ANE, the largest saving first."""

from collections.abc import Callable, Sequence
from typing import Any

from ane_sweep.bridge.figures import Gate
from ane_sweep.placement import laws
from ane_sweep.placement.reasons import STAYS
from ane_sweep.placement.savings import Saving

WIDE_VOCABULARY = 16_384
# The last axis of a value is padded to these (Apple, "Deploying Transformers on the Apple Neural Engine").
ROW_BYTES = 64
WASTEFUL = 1.2  # times what a row holds
_LOOKUPS = ("gather_index", "gather_index_old")
_HEADS = ("linear", "conv", "matmul")


Saves = Callable[[Sequence[Any]], Saving | None]  # what moving rows to the Neural Engine saves, where it is estimated


def advise(rows: Sequence[Any], gates: Sequence[Gate], flexible: Sequence[Any], saves: Saves) -> list[str]:
    """Return sentences with the ops that each would help and the time that it saves.

    `rows` are predict.OpRow, `flexible` programs.Flexible.
    """
    found = [gate.advice for gate in gates] + _ranges(flexible)
    found += _by_rule(rows, saves)
    found += _vocabulary(rows)
    found += _padded_rows(rows)
    found += _small(rows)
    return list(dict.fromkeys(found))


def _by_rule(rows: Sequence[Any], saves: Saves) -> list[str]:
    """Return advice about the ops that rules keep off the ANE; integer ops that only feed a lookup count with that lookup."""
    by_rule: dict[str, list[Any]] = {}
    with_lookup = _only_for_lookups(rows)
    feeding = [row for place, row in enumerate(rows) if place in with_lookup]
    for place, row in enumerate(rows):
        if row.verdict.advice is not None and place not in with_lookup:
            by_rule.setdefault(row.verdict.advice, []).append(row)
    made = []
    for text, members in by_rule.items():
        is_lookup = members[0].verdict.rule in _LOOKUPS
        saving = saves([*members, *feeding] if is_lookup else members)
        kinds = ", ".join(sorted({row.site.type for row in members}))
        words = f"{_ops(len(members))}: {kinds}" + (f"; {saving}" if saving else "")
        made.append((saving.ms if saving else 0.0, sum(row.cpu_ms for row in members), f"{text} ({words})"))
    together = saves([row for members in by_rule.values() for row in members] + feeding) if len(made) > 1 else None
    found = [text for _, _, text in sorted(made, key=lambda one: (-one[0], -one[1]))]
    if together and together.is_any and together.ms > 1.01 * sum(max(0.0, one[0]) for one in made):
        found.append(f"change all ops that the ANE refuses ({together})")
    return found


def _ops(count: int) -> str:
    return "1 op" if count == 1 else f"{count} ops"


def _only_for_lookups(rows: Sequence[Any]) -> set[int]:
    """Return the places of integer ops whose results end in a lookup's indices: they go when the lookup goes."""
    wanted: set[int] = set()
    used_elsewhere: set[int] = set()
    found: set[int] = set()
    for place in range(len(rows) - 1, -1, -1):
        site = rows[place].site
        made = {id(tensor) for tensor in site.outputs}
        if made & wanted and not made & used_elsewhere and rows[place].verdict.rule in ("int32_input", "int32_output"):
            found.add(place)
            wanted |= {id(tensor) for tensor in site.data}
            continue
        for name, tensors in site.inputs.items():
            is_index = name == "indices" and rows[place].verdict.rule in _LOOKUPS
            (wanted if is_index else used_elsewhere).update(id(tensor) for tensor in tensors if not tensor.const)
    return found


def _vocabulary(rows: Sequence[Any]) -> list[str]:
    """Return advice about a projection onto a vocabulary for every token: mostly only the last token is needed."""
    for row in rows:
        width = _projected(row.site)
        if width >= WIDE_VOCABULARY and row.site.outputs[0].elements // width > 1:
            share = laws.flop(row.site) / max(sum(laws.flop(other.site) for other in rows), 1.0)
            return [
                f"select the last token before the vocabulary projection ({row.site.name}: {share:.0%} of the "
                "multiplications are for tokens that generation does not need)"
            ]
    return []


def _projected(site: Any) -> int:
    """Return the output width of a projection by a constant weight, or 0 if the op is not a projection."""
    weight = site.tensor("y" if site.type == "matmul" else "weight")
    if site.type not in _HEADS or weight is None or not weight.const or not site.outputs:
        return 0
    if site.type == "matmul":
        axis = -2 if site.value("transpose_y", False) else -1
    else:
        axis = 0
    return (weight.shape[axis] or 0) if weight.rank > 1 else 0


def _ranges(flexible: Sequence[Any]) -> list[str]:
    """Return advice about inputs that take a range of shapes.

    Apple's engineers give it (developer forums, thread 724930), and coremltools#2370 measured it.
    """
    names = ", ".join(one.name for one in flexible if one.kind == "range")
    if not names:
        return []
    return [
        f"enumerate the few shapes of {names} that you need (EnumeratedShapes), or make the one that matters the default: of "
        "a range the ANE runs the default shape alone, others go to GPU or CPU"
    ]


def _padded_rows(rows: Sequence[Any]) -> list[str]:
    """Return the advice to fill the rows of 64 bytes that a last axis is padded to. No estimate has a term for it."""
    made = [row.site.outputs[0] for row in rows if row.preferred == "ane" and row.site.outputs]
    long = [tensor for tensor in made if tensor.rank and tensor.elements >= 4096]
    wasted = [tensor for tensor in long if _row_bytes(tensor)[1] >= WASTEFUL * _row_bytes(tensor)[0]]
    if not wasted or len(wasted) * 10 < len(rows):
        return []
    worst = max(wasted, key=lambda tensor: tensor.elements)
    full, padded = _row_bytes(worst)
    fill = ROW_BYTES * worst.elements // worst.bytes
    return [
        f"make the last axis a multiple of {fill} {worst.dtype} values ({ROW_BYTES} bytes), or put a long axis last "
        f"({_ops(len(wasted))}: a last axis of {worst.shape[-1]} takes {padded} bytes for {full}; not in the estimate)"
    ]


def _row_bytes(tensor: Any) -> tuple[int, int]:
    """Return the bytes of one row, without and with the padding of the ANE."""
    row = tensor.bytes // tensor.elements * (tensor.shape[-1] or 1)
    return row, -(-row // ROW_BYTES) * ROW_BYTES


def _small(rows: Sequence[Any]) -> list[str]:
    idle = [row for row in rows if row.preferred == "cpu" and row.reason.startswith(STAYS)]
    if rows and len(idle) == len(rows):
        return [
            "nothing is refused, the program is too small for the ANE to pay: batch the inputs, or leave it on the CPU"
        ]
    return []
