"""Published op counts: every one stands in the table, with ours or the reason why there is none."""

import csv

from ane_sweep.bridge.building import Options
from tests.bench import _kept, _placed


def published():
    with open(_placed.PUBLISHED, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_published_count_has_a_row_with_ours_or_a_reason(monkeypatch):
    monkeypatch.setattr(_placed, "placed", lambda graph, chip, units: _placed.Ops(cpu=1, gpu=0, ane=99, total=100))
    rows = list(_placed.rows())
    assert len(rows) == len(published()) and all(row.why for row in rows) and len(rows) > 130
    assert sum(row.ours != "-" for row in rows) == len(_placed.GRAPHS), "each graph is of a published row"
    assert (
        any("100 % GPU of 282 ops" in row.theirs for row in rows)
        and any(row.theirs == "1385 ops" for row in rows) is False
    )
    assert any("975 GPU, 370 ANE" in row.theirs for row in rows) and any("117 GPU" in row.theirs for row in rows)
    shared = {row.ours for row in rows if row.what.endswith(", all") and row.ours != "-"}
    assert shared == {"1 CPU, GPU not predicted, 99 ANE"}, "ours leaves the GPU out, which is no prediction of 0"


def test_the_options_of_each_graph_are_options():
    for graph in _placed.GRAPHS.values():
        Options(**dict(graph.options), index_guards="negative")


def test_the_topic_shows_the_newest_counts_with_why_they_differ():
    assert _kept.op_counts() in _kept.OP_COUNTS.read_text(encoding="utf-8")
    assert "why they differ" in _kept.op_counts()
    assert not [line for line in _kept.op_counts().splitlines() if ", all |" in line and "0 GPU" in line.split("|")[2]]
