"""Pairs of surgery nets: what following a tip changed, chip by chip."""

from dataclasses import replace

import constructed

from ane_sweep.report import tips


def pair():
    made = constructed.records(2, bad=False)
    for record, followed in zip(made, (False, True)):
        arch = {"tip": "static", "followed": followed}
        record.cell |= {"model": "surgery-static", "family": "surgery", "model_options": {"arch": arch}}
        record.metrics = [
            replace(m, value=1.0 + followed) if m.name == "latency_median_ms" else m for m in record.metrics
        ]
    return made


def test_a_pair_gives_a_row_a_chip_with_both_sides():
    made = pair()
    rows = tips.rows(made[::-1])  # in whatever order they ran
    assert [row[1] for row in rows] == [entry.chip for entry in made[0].placed("predicted")]
    assert {(row[0], row[4]) for row in rows} == {("static", "1 -> 2")} and all(
        len(row) == len(tips.HEADS) for row in rows
    )
    said = tips.lines(made)
    assert len(said) == 1 + len(rows) and "static (m1): ANE ops" in said[1]


def test_half_a_pair_and_other_models_say_nothing():
    assert tips.lines(pair()[:1]) == [] and tips.lines(constructed.records(3)) == []
