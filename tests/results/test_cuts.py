"""What a cut into chunks costs and gains, in a sentence."""

from dataclasses import replace

import constructed
import pytest

from ane_sweep.bridge.figures import Metric
from ane_sweep.placement.types import Ops, Part, Shares
from ane_sweep.report import inside
from ane_sweep.report.blocks import Points
from ane_sweep.report.views import Cells
from ane_sweep.results import cuts


def cell(
    chunks: int, ms: float | None, ane: int, *, handed: float | None = None, mb: float = 45.0, chip: str = "m4", **asked
):
    """A cell of MiniLM whose chunks have equal shares of `mb` megabytes."""
    (record,) = constructed.records(1, bad=False)
    record.cell |= {"model": "minilm", "variant": "split_einsum", "chunks": chunks, **asked}
    record.realised |= {"chunks": chunks, "runtime": "reference"}
    ops = Ops(cpu=396 - ane, gpu=0, ane=ane, total=396)
    parts = [Part(f"chunk_0{n}", ops, Shares(0, 0, 1), 1, 0) for n in range(chunks)]
    record.placement = [constructed.placement("predicted", chip, ops, chunks=parts, hand_over_ms=handed)]
    record.metrics = []
    if ms is not None:
        record.metrics = [Metric("latency_ms", ms, "ms", kind="estimated", source="constructed", chip=chip)]
    if chunks > 1:
        sizes = {"chunk_bytes_max": 1.04e6 * mb / chunks, "chunk_bytes_ideal": 1e6 * mb / chunks}
        record.metrics += [Metric(name, value) for name, value in sizes.items()]
    return record


def test_a_cut_of_minilm_says_what_it_costs_and_that_it_gains_nothing():
    one, two = cuts.explain_cuts([cell(1, 1.23, 392), cell(2, 2.83, 392, handed=1.6)])
    assert one is None
    assert two == (
        "cut into 2: hand-overs cost an estimated 1.60 of 2.83 ms on m4, and in one piece the cell is estimated at 1.23 ms; the cut "
        "is predicted to gain nothing; the largest program has 23.4 MB of 45 MB weights, and one program may have 2.15 GB."
    )


def test_a_cut_that_puts_ops_on_the_neural_engine_names_them_and_one_that_takes_them_off_too():
    _, more = cuts.explain_cuts([cell(1, 1.21, 391), cell(2, 2.69, 392, handed=1.6)])
    assert more is not None and "predicted to gain 1 op on the Neural Engine;" in more
    _, fewer = cuts.explain_cuts([cell(1, 1.21, 391), cell(2, 2.69, 380, handed=1.6)])
    assert fewer is not None and "gain nothing; it takes 11 ops off the Neural Engine;" in fewer


def test_a_model_above_the_limit_of_one_program_gains_the_neural_engine_and_time():
    whole, cut = cell(1, 900.0, 0, mb=3000), cell(2, 30.0, 396, handed=1.6, mb=3000)
    (_, said) = cuts.explain_cuts([whole, cut])
    assert said is not None
    assert "gain 396 ops on the Neural Engine, a program that the Neural Engine takes, 870 ms;" in said
    phone = cuts.explain_cut(cell(2, 30.0, 396, handed=1.6, mb=1500, chip="a17_pro"), None)
    assert phone is not None and "gain a program that the Neural Engine takes;" in phone and "may have 1 GB" in phone


def test_without_a_cell_in_one_piece_or_an_estimate_the_sentence_says_so():
    alone = cuts.explain_cut(cell(2, 2.83, 392, handed=1.6), None)
    assert alone is not None and "no cell of this sweep in one piece shows a gain" in alone
    unknown = cuts.explain_cut(cell(3, None, 392), cell(1, None, 392))
    assert unknown is not None and unknown.startswith(
        "cut into 3: the cost of 2 hand-overs is not estimated for m4; the cut is predicted to gain nothing"
    )
    on_cpu = cuts.explain_cut(cell(2, 5.0, 0, handed=0.0), None)
    assert on_cpu is not None and "no hand-over is from or to the Neural Engine of m4" in on_cpu


def test_a_time_of_this_cpu_predicts_no_gain_and_one_of_core_ml_counts():
    one, two = cell(1, None, 392), cell(2, None, 392, handed=1.6)
    for runtime, counts in (("reference", False), ("coreml", True)):
        for record, ms in ((one, 3010.0), (two, 2179.0)):
            record.cell["runtime"] = record.realised["runtime"] = runtime
            record.metrics = [Metric("latency_median_ms", ms, "ms", source=runtime)]
        said = cuts.explain_cut(two, one)
        assert said is not None
        assert ("in one piece the cell is measured at 3.01e+03 ms" in said) == ("gain 831 ms" in said) == counts


@pytest.mark.parametrize("other", [{"seq_len": 64}, {"precision": "p4"}, {"pieces": 1}])
def test_the_cell_in_one_piece_has_the_same_request(other):
    _, said = cuts.explain_cuts(
        [cell(1, 1.23, 392, seq_len=128), cell(2, 2.83, 392, handed=1.6, **{"seq_len": 128} | other)]
    )
    assert said is not None and "in one piece the cell is" not in said


def test_the_report_says_it_of_cut_cells_that_were_not_timed_once_for_those_alike():
    records = [cell(1, 1.23, 392), cell(2, 2.83, 392, handed=1.6), cell(2, 2.83, 392, handed=1.6, chunk_by="time")]
    section = inside.section(Cells(records))
    assert section is not None and isinstance(section.blocks[0], Points) and len(section.blocks[0].items) == 1
    assert "hand-overs cost an estimated 1.60 of 2.83 ms" in section.blocks[0].items[0]
    assert inside.section(Cells(records[:1])) is None


def test_the_estimate_keeps_the_part_that_hand_overs_cost():
    from ane_sweep.placement import chips, latency, work
    from tests.proof.placement import nets

    sites = nets.sites("transformer form=split_einsum tokens=128 width=384 layers=6 heads=12")
    on_ane, on_cpu = (work.work_of(sites, [unit] * len(sites), 0, 4e6) for unit in ("ane", "cpu"))
    m4 = chips.published()["m4"]
    assert latency.estimate([on_ane], m4).hand_over_ms == 0.0
    for chunks, handed in (([on_ane] * 3, 2), ([on_cpu, on_ane], 1), ([on_cpu, on_cpu], 0)):
        found = latency.estimate(chunks, m4)
        assert found.hand_over_ms == pytest.approx(1.6 * handed)
    halves = [replace(on_ane), on_ane]
    assert latency.estimate(halves, m4).ms - 2 * latency.estimate([on_ane], m4).ms == pytest.approx(1.6)
