"""How sure the order of two cells with estimates is, by what differs between them."""

import constructed
import pytest

from ane_sweep.bridge.figures import Metric
from ane_sweep.placement.types import Ops
from ane_sweep.results import ranking


def cell(ms: float, *, unit: str = "ane", width: float = 1.0, chunks: int = 1, chip: str = "m4", **asked):
    """A cell without a timing. `width`: how many times as far as usual its band reaches either way."""
    (record,) = constructed.records(1, bad=False)
    record.cell |= {"precision": "fp16", "chunks": chunks, "runtime": "auto", **asked}
    record.realised |= {"chunks": chunks, "runtime": "reference"}
    ops = Ops(**{name: 90 if name == unit else 5 for name in ("cpu", "gpu", "ane")}, total=100)
    record.placement = [constructed.placement("predicted", chip, ops)]
    values = {"latency_ms": ms, "latency_low_ms": 0.62 * ms / width, "latency_high_ms": 1.92 * ms * width}
    record.metrics = [Metric(name, value, "ms", kind="estimated", chip=chip) for name, value in values.items()]
    return record


@pytest.mark.parametrize(
    ("slower", "word"),
    [
        (cell(1.0), "not told apart"),
        (cell(1.08), "not told apart"),
        (cell(1.3), "likely"),
        (cell(1.6), "sure"),
        (cell(1.6, precision="p4"), "not told apart"),
        (cell(9.0, precision="p4"), "likely"),
        (cell(1.6, chunks=2), "likely"),
        (cell(9.0, chunks=2), "likely"),
        (cell(1.6, chunks=2, precision="p4"), "not told apart"),
        (cell(1.6, unit="cpu"), "not told apart"),
        (cell(3.0, unit="gpu"), "likely"),
        (cell(9.0, unit="cpu"), "sure"),
        (cell(2.0, width=2.0), "not told apart"),
        (cell(90.0, width=2.0), "likely"),
    ],
)
def test_the_word_follows_from_the_ratio_and_from_what_differs(slower, word):
    fast = cell(1.0)
    assert ranking.how_sure(fast, slower) == ranking.how_sure(slower, fast) == word
    assert ranking.are_told_apart(fast, slower) == (word != "not told apart")


def test_cells_whose_latency_is_no_estimate_for_the_same_chip_have_no_such_word():
    with pytest.raises(ValueError, match="one chip"):
        ranking.how_sure(cell(1.0), cell(2.0, chip="m1"))
    assert ranking.are_told_apart(cell(1.0), cell(1.0, chip="m1")), "they are never compared, so they are no tie"


def test_an_estimate_of_nothing_is_told_apart_from_no_other():
    assert ranking.how_sure(cell(0.0), cell(1.0)) == "not told apart"


def test_the_cell_named_fastest_is_first_by_the_estimate_whatever_the_cpu_took():
    records = [
        cell(ms, variant=name) for ms, name in ((2.0, "original"), (1.3, "split_einsum"), (1.4, "split_einsum_v2"))
    ]
    for record, cpu_ms in zip(records, (1.0, 900.0, 500.0), strict=True):
        record.metrics += [
            Metric("latency_median_ms", cpu_ms, "ms"),
            Metric("package_bytes", 1e6),
            Metric("psnr_db", 60.0),
        ]
    (group,) = ranking.group_by_work(records)
    assert ranking.choose_best(records, ranking.SPEEDS[0], {}, group) == (1, [2])
