"""Inside a cell: what stands in the report of chunks, gaps and costly ops; the 200 ms between two predictions are seen."""

import constructed

from ane_sweep.bridge.figures import Metric, Timing
from ane_sweep.placement.types import Ops, Part, Shares
from ane_sweep.report import document, figures, inside
from ane_sweep.report.blocks import Grid, Plots
from ane_sweep.report.views import Cells

TIMING = Timing(
    1, 650.0, load_ms=2500, first_ms=900, warmup_ms=[700], samples_ms=[650.0] * 4, after_idle_ms=800, idle_s=2
)


def gpt2_xl(**more):
    """Two chunks of 250 and 200 ms with 200 ms between them; of the second 30 % are planned for the CPU."""
    (record,) = constructed.records(1, bad=False)
    ms = {"chunk_1": 250.0, "gap_1": 200.0, "chunk_2": 200.0}
    record.metrics = [
        *(Metric(f"latency_{name}_median_ms", value, "ms", source="coreml") for name, value in ms.items()),
        Metric("latency_gaps_median_ms", 201.0, "ms", source="coreml"), Metric("latency_median_ms", 651.0, "ms", source="coreml"),
    ]  # fmt: skip
    ops = Ops(cpu=1, gpu=0, ane=9, total=10)
    parts = [Part(f"chunk_0{n}", ops, Shares(cpu, 0, 1 - cpu), 2, 1) for n, cpu in ((1, 0.0), (2, 0.3))]
    record.placement = [constructed.placement("planned", "m1_max", ops, chunks=parts)]
    record.timings = [TIMING]
    record.realised |= more
    return record


def found(*records):
    section = inside.section(Cells(records))
    return section, [block for block in section.blocks if isinstance(block, Plots)], [
        block for block in section.blocks if isinstance(block, Grid)
    ]  # fmt: skip


def test_what_passes_between_two_predictions_has_its_milliseconds_and_share():
    _, plots, (grid,) = found(gpt2_xl())
    assert dict(zip(grid.heads, grid.rows[0])) | {"cell": ""} == {
        "cell": "", "all ms": "651", "chunk 1 ms": "250", "chunk 2 ms": "200", "between ms": "201", "between %": "30.9",
        "most between": "1 and 2: 200 ms",
    }  # fmt: skip
    assert "chunk by chunk (measured)" in plots[0].items[0][1] and len(plots) == 2


def test_the_picture_lays_chunks_gaps_and_planned_units_end_to_end():
    bar, strips = inside._bar(gpt2_xl())
    assert bar == [(250, inside.CHUNK), (200, inside.GAP), (200, inside.OTHER), (0, inside.GAP)]
    assert [strip for strip in strips if strip[1]] == [(0, 250, "ane"), (450, 140, "ane"), (590, 60, "cpu")]
    svg = figures.spans([("x", bar, strips)], x_label="ms", name="one")
    assert all(figures.CSS[figures.UNITS[unit]] in svg for unit in ("ane", "cpu")) and "#0102" not in svg


def test_the_costliest_ops_stand_with_what_their_share_is():
    ops = [{"op": "logits", "type": "linear", "chunk": 2, "unit": "cpu", "share": 0.302}]
    _, _, grids = found(gpt2_xl(planned_costs={"kind": "planned", "source": "MLComputePlan", "ops": ops}))
    assert grids[-1].rows == [[grids[-1].rows[0][0], "planned, MLComputePlan", "logits", "linear", "2", "cpu", "30.2"]]


def test_a_program_in_one_piece_has_its_process_and_no_chunks():
    record = gpt2_xl()
    record.metrics = [metric for metric in record.metrics if "chunk" not in metric.name]
    _, plots, grids = found(record)
    assert len(plots) == 1 and grids == []
    seconds = [width for width, _ in inside.process(TIMING)]
    assert seconds == [2.5, 0.9, 0.7, 2.6, 2.0, 0.8]


def test_cells_without_a_timing_have_no_such_section():
    (record,) = constructed.records(1, bad=False)
    record.timings = []
    assert inside.section(Cells([record])) is None
    titles = [section.title for section in document.sections(document.Sweep([gpt2_xl()]))]
    assert "Inside a cell" in titles


def test_a_chain_of_which_one_chunk_alone_is_known_has_a_row():
    record = gpt2_xl()
    record.metrics = [one for one in record.metrics if one.name in ("latency_chunk_1_median_ms", "latency_median_ms")]
    _, _, (grid,) = found(record)
    assert grid.rows[0][-1] == "-" and "250" in grid.rows[0]
