"""The first token at which the texts of two cells differ, and the difference of its logits."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ane_sweep.talk.session import Event


@dataclass(frozen=True)
class DivergenceSide:
    """One cell's token at the divergence; `gap` is its logit minus that of the other cell's token."""

    id: int | None
    text: str
    gap: float | None


@dataclass(frozen=True)
class Divergence:
    """The comparison of two samples.

    same          number of equal tokens at the beginning
    a, b          both cells at the first token that differs, or None if none does
    differ_most   the largest difference between their logits over the equal tokens and the next one
    """

    same: int
    a: DivergenceSide | None
    b: DivergenceSide | None
    differ_most: float


def find_divergence(a: Event, b: Event, logits: tuple[Path, Path]) -> Divergence:
    """Compare two samples of a session (`ids`, `pieces`: each id's text) and the files of their logits."""
    rows = [np.load(path, mmap_mode="r") for path in logits]
    ids = [a["ids"], b["ids"]]
    same = next((n for n, (one, other) in enumerate(zip(*ids)) if one != other), min(map(len, ids)))
    shared = min(same + 1, *map(len, rows))
    most = max((float(np.abs(rows[0][n] - rows[1][n]).max()) for n in range(shared)), default=0.0)
    if len(ids[0]) == len(ids[1]) == same:
        return Divergence(same, None, None, most)
    here = [one[same] if same < len(one) else None for one in ids]
    sides = []
    for sample, row, own, other in ((a, rows[0], *here), (b, rows[1], *here[::-1])):
        gap = float(row[same][own] - row[same][other]) if own is not None and other is not None else None
        sides.append(DivergenceSide(own, sample["pieces"][same] if own is not None else "", gap))
    return Divergence(same, sides[0], sides[1], most)


def describe_divergence(found: Divergence) -> str:
    most = f"logits differ by at most {found.differ_most:.3g} until then"
    if found.a is None or found.b is None:
        return f"A and B made the same {found.same} tokens; their logits differ by at most {found.differ_most:.3g}"
    endings = [
        "has ended" if side.id is None else f"says {side.text!r} ({side.id})"
        + ("" if side.gap is None else f", whose logit is {side.gap:+.4g} from the other's")
        for side in (found.a, found.b)
    ]  # fmt: skip
    return f"the same {found.same} tokens; at token {found.same + 1} A {endings[0]}; B {endings[1]}; {most}"
