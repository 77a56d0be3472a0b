"""Advice on changes that make a model faster on the ANE, those with the largest saving in estimated time first."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from ane_sweep.placement import costs, latency, path, work
from ane_sweep.placement.chips import Chip
from ane_sweep.placement.programs import Flexible
from ane_sweep.placement.reasons import STAYS
from ane_sweep.placement.rows import OpRow, count_text
from ane_sweep.placement.sites import Site, Tensor
from ane_sweep.placement.types import Gate
from ane_sweep.placement.work import Work

WIDE_VOCABULARY = 16_384
# The last axis of a value is padded to these (Apple, "Deploying Transformers on the Apple Neural Engine").
ROW_BYTES = 64
WASTEFUL = 1.2  # times what a row holds
_LOOKUPS = ("gather_index", "gather_index_old")
_HEADS = ("linear", "conv", "matmul")
_LEAST_MS = 5e-4


@dataclass(frozen=True)
class Saving:
    """The estimated milliseconds saved, and the estimate of the whole."""

    ms: float
    whole_ms: float

    @property
    def is_any(self) -> bool:
        return self.ms >= _LEAST_MS

    def __str__(self) -> str:
        return f"saves about {self.ms:.2g} of {self.whole_ms:.3g} ms" if self.is_any else "saves no time by itself"


Saves = Callable[[Sequence[OpRow]], Saving | None]  # what moving rows to the Neural Engine saves, where it is estimated


def estimate_saving(
    chunks: Sequence[tuple[Sequence[OpRow], Work]], helped: Sequence[OpRow], chip: Chip, estimated_ms: float
) -> Saving:
    """Return the time saved if the Neural Engine took the rows `helped`, with a new cheapest path through all other
    rows.

    `chunks` hold each program's rows and its present work on each unit.
    """
    wanted = {id(row) for row in helped}
    works = [_work(rows, wanted, chip) if any(id(row) in wanted for row in rows) else before for rows, before in chunks]
    return Saving(estimated_ms - latency.total_ms(works, chip, latency.of_chip(chip)), estimated_ms)


def _work(rows: Sequence[OpRow], helped: set[int], chip: Chip) -> Work:
    units: list[str] = []
    transitions = 0
    for _, members in groupby(rows, key=lambda row: row.site.function):
        prices = [
            (math.inf, costs.estimate_ms(row.site, "ane"))
            if id(row) in helped
            else (row.cpu_ms, None if row.site.nested else row.ane_ms)
            for row in members
        ]
        chosen, _ = path.choose(prices)
        units += chosen
        transitions += path.count_segments(chosen)[1]
    return work.work_of([row.site for row in rows], units, transitions, work.cache_bytes(chip.family))


def advise(rows: Sequence[OpRow], gates: Sequence[Gate], flexible: Sequence[Flexible], saves: Saves) -> list[str]:
    """Return sentences of advice, each with the ops that it concerns and the time that it saves."""
    found = [gate.advice for gate in gates]
    found += [*_ranges(flexible), *_by_rule(rows, saves), *_vocabulary(rows), *_padded_rows(rows)]
    if rows and all(row.preferred == "cpu" and row.reason.startswith(STAYS) for row in rows):
        found.append(
            "nothing is refused, the program is too small for the ANE to pay: batch the inputs, or leave it on the CPU"
        )
    return list(dict.fromkeys(found))


def _by_rule(rows: Sequence[OpRow], saves: Saves) -> list[str]:
    """Return advice about the ops that rules keep off the ANE; integer ops that only feed a lookup count with that lookup."""
    by_rule: dict[str, list[OpRow]] = {}
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
        words = f"{count_text(len(members), 'op')}: {kinds}" + (f"; {saving}" if saving else "")
        made.append((saving.ms if saving else 0.0, sum(row.cpu_ms for row in members), f"{text} ({words})"))
    together = saves([row for members in by_rule.values() for row in members] + feeding) if len(made) > 1 else None
    found = [text for _, _, text in sorted(made, key=lambda one: (-one[0], -one[1]))]
    if together and together.is_any and together.ms > 1.01 * sum(max(0.0, one[0]) for one in made):
        found.append(f"change all ops that the ANE refuses ({together})")
    return found


def _only_for_lookups(rows: Sequence[OpRow]) -> set[int]:
    """Return the indices of integer ops whose results only become a lookup's indices: they vanish with the lookup."""
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


def _vocabulary(rows: Sequence[OpRow]) -> list[str]:
    """Return advice about a projection onto a vocabulary that is computed for every token, although usually only the last is needed."""
    for row in rows:
        width = _projected(row.site)
        if width >= WIDE_VOCABULARY and row.site.outputs[0].elements // width > 1:
            share = costs.flop(row.site) / max(sum(costs.flop(other.site) for other in rows), 1.0)
            return [
                f"select the last token before the vocabulary projection ({row.site.name}: {share:.0%} of the "
                "multiplications are for tokens that generation does not need)"
            ]
    return []


def _projected(site: Site) -> int:
    """Return the output width of a projection by a constant weight, or 0 if the op is not a projection."""
    weight = site.tensor("y" if site.type == "matmul" else "weight")
    if site.type not in _HEADS or weight is None or not weight.const or weight.rank < 2 or not site.outputs:
        return 0
    axis = 0 if site.type != "matmul" else -2 if site.value("transpose_y", False) else -1
    return weight.shape[axis] or 0


def _ranges(flexible: Sequence[Flexible]) -> list[str]:
    """Return advice about inputs that take a range of shapes.

    Source: Apple's engineers (developer forums, thread 724930); coremltools#2370 measured the effect.
    """
    names = ", ".join(one.name for one in flexible if one.kind == "range")
    if not names:
        return []
    return [
        f"enumerate the few shapes of {names} that you need (EnumeratedShapes), or make the one that matters the default: of "
        "a range the ANE runs the default shape alone, others go to GPU or CPU"
    ]


def _padded_rows(rows: Sequence[OpRow]) -> list[str]:
    """Return the advice to fill rows, as the ANE pads the last axis to 64 bytes. No estimate has a term for this."""
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
        f"({count_text(len(wasted), 'op')}: a last axis of {worst.shape[-1]} takes {padded} bytes for {full}; not in the estimate)"
    ]


def _row_bytes(tensor: Tensor) -> tuple[int, int]:
    """Return the bytes of one row of a tensor, without and with the padding of the ANE."""
    row = tensor.bytes // tensor.elements * (tensor.shape[-1] or 1)
    return row, -(-row // ROW_BYTES) * ROW_BYTES
