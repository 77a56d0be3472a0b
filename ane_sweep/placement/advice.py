"""What to change in a model so that more of it stays on the ANE, most useful first."""

from collections.abc import Sequence
from typing import Any

from ane_sweep.placement import laws

WIDE_VOCABULARY = 16_384
_HEADS = ("linear", "conv", "matmul")


def advise(rows: Sequence[Any], gates: Sequence[dict[str, Any]]) -> list[str]:
    """Sentences, each with the number of ops it would help. `rows` are predict.OpRow."""
    found = [gate["advice"] for gate in gates]
    by_rule: dict[str, list[Any]] = {}
    with_lookup = _only_for_lookups(rows)
    for place, row in enumerate(rows):
        if row.verdict.advice is not None and place not in with_lookup:
            by_rule.setdefault(row.verdict.advice, []).append(row)
    for text, members in sorted(by_rule.items(), key=lambda item: -sum(row.cpu_ms for row in item[1])):
        kinds = ", ".join(sorted({row.site.type for row in members}))
        found.append(f"{text} ({_ops(len(members))}: {kinds})")
    found += _vocabulary(rows)
    found += _thin_rows(rows)
    found += _small(rows)
    return list(dict.fromkeys(found))


def _ops(count: int) -> str:
    return "1 op" if count == 1 else f"{count} ops"


def _only_for_lookups(rows: Sequence[Any]) -> set[int]:
    """Places of integer ops whose results end in a lookup's indices: they go when the lookup goes."""
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
            is_index = name == "indices" and rows[place].verdict.rule in ("gather_index", "gather_index_old")
            (wanted if is_index else used_elsewhere).update(id(tensor) for tensor in tensors if not tensor.const)
    return found


def _vocabulary(rows: Sequence[Any]) -> list[str]:
    """A projection onto a vocabulary for every token, where mostly one token is wanted."""
    for row in rows:
        if row.site.type not in _HEADS or not row.site.outputs:
            continue
        shape = [length or 1 for length in row.site.outputs[0].shape]
        widest = max(shape, default=1)
        if widest >= WIDE_VOCABULARY and row.site.outputs[0].elements // widest > 1:
            share = laws.flop(row.site) / max(sum(laws.flop(other.site) for other in rows), 1.0)
            return [
                f"select the last token before the vocabulary projection ({row.site.name}: {share:.0%} of the "
                "multiplications are for tokens that generation does not need)"
            ]
    return []


def _thin_rows(rows: Sequence[Any]) -> list[str]:
    """The last axis is padded to 64 bytes: rows of a few values waste most of what they move."""
    thin = [
        row
        for row in rows
        if row.preferred == "ane" and row.site.outputs and row.site.outputs[0].elements >= 4096
        and (row.site.outputs[0].shape[-1] or 1) < 16
    ]  # fmt: skip
    if len(thin) * 10 < len(rows):
        return []
    return [
        f"pad the last axis to a multiple of 64, or put a long axis last ({_ops(len(thin))} with rows below 32 bytes)"
    ]


def _small(rows: Sequence[Any]) -> list[str]:
    idle = [row for row in rows if row.verdict.rule is None and row.preferred == "cpu" and row.ane_ms is not None]
    if rows and len(idle) == len(rows):
        return [
            "nothing is refused, the program is too small for the ANE to pay: batch the inputs, or leave it on the CPU"
        ]
    return []
