"""The selection of cells that a page shows of a very large sweep; counts, failures and warnings still cover all cells."""

from collections.abc import Sequence

from ane_sweep.bridge.record import Record
from ane_sweep.report.doubts import not_ok_groups
from ane_sweep.results import ranking

CELLS = 1_000  # of one page
_WRONG = 0.25  # of them, at most, for cells that are not ok


def select_shown_cells(records: Sequence[Record], most: int = CELLS) -> list[int]:
    """Return positions in the order of the records: the front and the fastest of each work, and some of each kind of trouble."""
    if len(records) <= most:
        return list(range(len(records)))
    place = {id(record): n for n, record in enumerate(records)}
    works = ranking.group_by_work(records)
    wrong = _in_turns([[place[id(record)] for record in group] for group in not_ok_groups(records)])
    fastest = _in_turns(
        [sorted(work, key=lambda n: ranking.get_figure(records[n], "latency_median_ms") or 0) for work in works]
    )
    best = _in_turns([ranking.find_front(records, work) for work in works])
    wanted = [*best[: most // 2], *fastest[: len(works)], *wrong[: int(most * _WRONG)], *fastest, *range(len(records))]
    return sorted(list(dict.fromkeys(wanted))[:most])


def note(shown: int, of: int) -> str:
    return (
        f"{shown:,} of {of:,} cells: those that no other beats, some of each kind of trouble, and the fastest. Tables, plots and "
        "limits are of these; counts, failures and doubts of all. All cells: records.jsonl beside this page, or "
        "ane-sweep report RUN --json."
    )


def _in_turns(groups: Sequence[Sequence[int]]) -> list[int]:
    """Return the first of each list, then the second of each, and so on."""
    longest = max(map(len, groups), default=0)
    return [group[n] for n in range(longest) for group in groups if n < len(group)]
