"""Where two cells' texts part, and by how much of a logit."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Side:
    """One cell at the place: its token, and how far its logits put that before the other's (negative: behind)."""

    id: int | None
    text: str
    gap: float | None


@dataclass(frozen=True)
class Parting:
    """same: how many tokens both made alike; `a` and `b` at the first that differs, None where none does.

    differ_most   the largest difference between the two's logits over the tokens that they made alike, and the next one
    """

    same: int
    a: Side | None
    b: Side | None
    differ_most: float

    def told(self) -> dict[str, Any]:
        return asdict(self)


def parting(a: dict[str, Any], b: dict[str, Any], logits: tuple[Path, Path]) -> Parting:
    """Two samples as a session tells them (`ids`, `pieces`: each id's text), and the files of their logits."""
    rows = [np.load(path, mmap_mode="r") for path in logits]
    ids = [a["ids"], b["ids"]]
    same = next((n for n, (one, other) in enumerate(zip(*ids)) if one != other), min(map(len, ids)))
    shared = min(same + 1, *map(len, rows))
    most = max((float(np.abs(rows[0][n] - rows[1][n]).max()) for n in range(shared)), default=0.0)
    if len(ids[0]) == len(ids[1]) == same:
        return Parting(same, None, None, most)
    here = [one[same] if same < len(one) else None for one in ids]
    sides = []
    for sample, row, own, other in ((a, rows[0], *here), (b, rows[1], *here[::-1])):
        gap = float(row[same][own] - row[same][other]) if own is not None and other is not None else None
        sides.append(Side(own, sample["pieces"][same] if own is not None else "", gap))
    return Parting(same, sides[0], sides[1], most)


def sentence(found: Parting) -> str:
    """What is said of it."""
    most = f"logits differ by at most {found.differ_most:.3g} until then"
    if found.a is None or found.b is None:
        return f"A and B made the same {found.same} tokens; their logits differ by at most {found.differ_most:.3g}"
    said = [
        "has ended" if side.id is None else f"says {side.text!r} ({side.id})"
        + ("" if side.gap is None else f", whose logit is {side.gap:+.4g} from the other's")
        for side in (found.a, found.b)
    ]  # fmt: skip
    return f"the same {found.same} tokens; at token {found.same + 1} A {said[0]}; B {said[1]}; {most}"
