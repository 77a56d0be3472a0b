"""Task counts and refusals of Apple's own compiler for M1 and M2, predicted: `python -m tests.proof.placement.compiler`.

`placement/data/compiler/records.csv` holds what it answered. Half of the rows, chosen by a hash of each, are those that
the rules of tasks.py were written on; the other half is the test. The reports that sum the records up were read whole
before the hash was drawn; so single records were opened after the rules stood, a third group ("after"). Beside them
stand the trivial answers: one task an op, and everything is taken.
"""

import csv
import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ane_sweep import tables
from ane_sweep.placement import chips, legality, tasks
from ane_sweep.placement.sites import Site
from tests.proof.placement.compiler_forms import FORMS

RECORDS = Path(__file__).parents[3] / "ane_sweep" / "placement" / "data" / "compiler" / "records.csv"
CHIPS = {"h13": "m1", "h14": "m2"}
HALVES, SINGLE = ("rules", "test", "after"), "research/oracles/"
REFUSED, TAKEN, UNKNOWN = "refused", "decoded", "?"
EXPLAINED = (  # how a row begins -> why it is predicted otherwise
    (
        "binary op=real_div",
        "its weight file was written with a header that the campaign itself calls unaligned: no rule was made of it",
    ),
    (
        "binary op=add x=1x512x1x1 const",
        "refused for how the text held the constant: the same numbers in a weight file are taken",
    ),
    (
        "matmul m=1 k=1024 n=375",
        "one width that is no multiple of 16; M1s run vocabularies of 50,257, so no rule was made of it",
    ),
    ("norm op=reduce_max x=1x16x128 axes", "no row that rules were written on has rank 3"),
    (
        "norm op=reduce_",
        "the same report takes sums over the last axis of [1,C,1,W] in another sweep: the two contradict each other",
    ),
    ("matmul m=375", "375 rows are cut by a law that no report tells (26 tasks a batch on H13, 2 to 5 in all on H14)"),
    (
        "mlp",
        "a bias of the whole result, or 512 wide at 256 rows: one or two tasks are shared, by no rule that was found",
    ),
    ("block", "at this width H13 cuts projections further, and the first norm of a chain is counted one short or over"),
    ("chain ops=softmax", "the rule's 8 tasks were seen at 256 by 256 alone, these are 64 by 256"),
    ("matmul m=64 k=256", "one of 36: the compiler copies this result out in a task of its own"),
)


@dataclass(frozen=True)
class Record:
    """What the compiler made of a program: its tasks for each target, REFUSED, TAKEN (tasks not told) or UNKNOWN."""

    form: str
    arguments: str
    h13: str
    h14: str
    file: str
    half: str

    def sites(self) -> list[Site]:
        return FORMS[self.form](dict(word.split("=", 1) for word in self.arguments.split()))


@dataclass
class Score:
    """Of a half and a target: rows with a count, exact ones, sum of |predicted / real - 1|; and who is taken."""

    half: str
    target: str
    counted: int = 0
    exact: int = 0
    trivial: int = 0
    off: float = 0.0
    trivial_off: float = 0.0
    taken: int = 0
    taken_right: int = 0
    refused: int = 0
    refused_right: int = 0


def records() -> list[Record]:
    with open(RECORDS, newline="", encoding="utf-8") as file:
        return [
            Record(**row, half=half(f"{row['form']} {row['arguments']}", row["file"])) for row in csv.DictReader(file)
        ]


def half(key: str, file: str = "") -> str:
    """ "rules" or "test", by the first byte of a hash; "after" for a single record, opened when the rules stood."""
    if file.startswith(SINGLE):
        return "after"
    return "rules" if hashlib.sha256(key.encode()).digest()[0] < 128 else "test"


def scores(found: Iterable[Record] | None = None) -> tuple[list[Score], list[str]]:
    """(a score for each half and target, a line for each row that is predicted otherwise)."""
    kept = {(half, target): Score(half, target) for half in HALVES for target in CHIPS}
    misses = []
    for record in records() if found is None else found:
        sites = record.sites()
        for target, chip in CHIPS.items():
            if (said := getattr(record, target)) == UNKNOWN:
                continue
            score = kept[record.half, target]
            is_taken = all("ane" in legality.judge(site, chips.get(chip)).supported for site in sites)
            line = f"{record.half} {target}: {record.form} {record.arguments}"
            if said == REFUSED:
                score.refused, score.refused_right = score.refused + 1, score.refused_right + (not is_taken)
                misses += [f"{line}: refused, predicted taken"] if is_taken else []
                continue
            score.taken, score.taken_right = score.taken + 1, score.taken_right + is_taken
            misses += [] if is_taken else [f"{line}: taken, predicted refused"]
            if said != TAKEN:
                predicted = tasks.count(sites, chips.get(chip).generation) or 0
                _counted(score, int(said), predicted, len(sites))
                misses += [] if predicted == int(said) else [f"{line}: {said} tasks, predicted {predicted}"]
    return list(kept.values()), misses


def _counted(score: Score, real: int, predicted: int, ops: int) -> None:
    score.counted += 1
    score.exact += predicted == real
    score.trivial += ops == real
    score.off += abs(predicted / real - 1)
    score.trivial_off += abs(ops / real - 1)


def text() -> str:
    found, misses = scores()
    rows = [
        (
            one.half, one.target.upper(), f"{one.exact} of {one.counted}", f"{one.trivial} of {one.counted}",
            _share(one.off, one.counted), _share(one.trivial_off, one.counted),
            f"{one.taken_right} of {one.taken}", f"{one.refused_right} of {one.refused}", f"{one.taken} and 0",
        )
        for one in found
    ]  # fmt: skip
    heads = (
        "half",
        "target",
        "tasks exact",
        "one an op",
        "off by",
        "one an op",
        "taken right",
        "refused right",
        "all taken",
    )
    return "\n".join([tables.aligned(rows, heads=heads), *(f"  {line}; {why(line)}" for line in misses)])


def why(line: str) -> str:
    """Why a row is predicted otherwise; "not explained"."""
    told = line.split(": ", 1)[1]
    return next((words for begins, words in EXPLAINED if told.startswith(begins)), "not explained")


def _share(part: float, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


if __name__ == "__main__":
    print(text())
    sys.exit(0)
