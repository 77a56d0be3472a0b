"""The final table: exact text of small cases; what holds at any width."""

import hashlib
import json
from dataclasses import replace

import pytest
from constructed import placement

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.record import Record, StageOutcome, StageStatus, Status, Weights
from ane_sweep.bridge.task import DRAWN
from ane_sweep.placement.types import Ops
from ane_sweep.report import as_json, as_markdown, as_text, doubts, table
from ane_sweep.report.table import list_columns

CELL = {"model": "minilm", "family": "bert", "size": "minilm", "variant": "original", "chunks": 1, "precision": "fp16"}
KEY = "0123456789abcdef"


def make(latency=40.553, iqr=0.8112, psnr=80.21, size=45_321_000, status="ok", reason=None, weights="pretrained",
         texts="real", runtime="reference", units=None, **cell):  # fmt: skip
    figures = {"latency_median_ms": latency, "latency_iqr_ms": iqr, "psnr_db": psnr, "package_bytes": size}
    figures["bits_per_weight"] = size * 8 / 22.5e6
    ran = status in ("ok", "degraded")
    request = {**CELL, **cell}
    return Record(
        sweep="s1",
        cell_key=hashlib.sha256(json.dumps(request).encode()).hexdigest(),
        cell=request,
        status=Status(status),
        reason=reason,
        stages=[] if ran else [StageOutcome("convert", StageStatus.CRASHED, reason, key=KEY)],
        realised={"runtime": runtime, "compute_units": units, "texts": texts} if ran else {},
        metrics=[Metric(name, value) for name, value in figures.items()] if ran else [],
        weights=Weights(weights),
    )


def demo():
    return [
        make(),
        make(chunks=2, latency=41.9),
        make(variant="split_einsum", latency=125.04, iqr=2.0, psnr=71.44),
        make(variant="split_einsum", chunks=2, status="crashed", reason="convert ended with SIGSEGV"),
    ]


def test_the_psnr_of_the_worst_output_has_a_column_only_where_it_differs():
    alike, apart = make(), make(chunks=2)
    alike.metrics.append(Metric("psnr_worst_db", 80.21))
    assert "PSNR dB, worst output" not in [part.head for part in list_columns([alike, apart])]
    apart.metrics.append(Metric("psnr_worst_db", 20.0))
    (found,) = [part for part in list_columns([alike, apart]) if part.head == "PSNR dB, worst output"]
    assert found.cells == ["80.2", "20.0"]


def test_the_table_as_text():
    assert as_text(demo(), 100) == (
        "sweep s1: 4 cells, 3 ok, 1 crashed\n"
        "latency: measured, median ± IQR, reference runtime on this CPU; units not applicable\n"
        "\n"
        "model   variant       chunks    latency ms  PSNR dB  package MB  status\n"
        "------- ------------- ------- ------------- -------- ----------- -----------\n"
        "minilm  original           1  40.55 ± 0.81     80.2        45.3  ok\n"
        "minilm  original           2  41.90 ± 0.81     80.2        45.3  ok\n"
        "minilm  split_einsum       1   125.0 ± 2.0     71.4        45.3  ok\n"
        "minilm  split_einsum       2             -        -           -  crashed [1]\n"
        "\n"
        "[1] crashed, 1 cell (variant=split_einsum chunks=2): convert ended with SIGSEGV. Next: read\n"
        "    outputs/runs/s1/tasks/convert-0123456789ab/stderr.txt\n"
        "[2] latency of runtime=reference is this host's CPU and says nothing about the Neural Engine. Next:\n"
        "    the same command on a Mac, where runtime=auto means coreml.\n"
    )


def test_a_narrow_table_points_to_the_numbered_reason():
    text = as_text(demo(), 80)
    assert "minilm  split_einsum       2             -        -           -  crashed [1]\n" in text
    assert "\n[1] crashed, 1 cell" in text


def test_a_gpu_is_not_called_a_cpu():
    records = [make(variant=variant) for variant in ("original", "split_einsum")]
    for record in records:
        record.realised["runtime"] = "reference_cuda"
    text = as_text(records, 200)
    assert "reference runtime on this NVIDIA GPU" in text and "this host's CPU" not in text
    assert "runtime=reference_cuda is that of this host's NVIDIA GPU and says nothing about Apple hardware" in text


def test_the_table_as_markdown():
    assert as_markdown(demo()[2:], notes=False) == (
        "| model | chunks | latency ms | PSNR dB | package MB | status |\n"
        "| --- | ---: | ---: | ---: | ---: | --- |\n"
        "| minilm | 1 | 125.0 ± 2.0 | 71.4 | 45.3 | ok |\n"
        "| minilm | 2 | - | - | - | crashed: convert ended with SIGSEGV |\n"
    )
    assert as_markdown(demo()).startswith("sweep s1: 4 cells, 3 ok, 1 crashed  \nlatency")


def test_the_markdown_that_is_printed_names_no_setting_that_is_as_by_default():
    asked = [replace(record, cell=record.cell | {"seq_len": 384, "precision": "fp16"}) for record in demo()]
    assert "all cells: seq_len=384; else the defaults" in as_markdown(asked)
    assert "precision" not in as_markdown(asked)


def test_json_is_one_array_of_whole_records():
    assert [Record.from_dict(plain) for plain in json.loads(as_json(demo()))] == demo()


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_line_is_wider_than_asked_and_every_cell_is_one_row(width):
    records = [
        make(model=m, variant=v, chunks=c, weights=w)
        for m, w in (("gpt2", "pretrained"), ("gpt2-xl", "random"))
        for v in ("original", "split_einsum")
        for c in (1, 2, 4, 8, 12)
    ] * 2
    records.append(make(model="gpt2", chunks=99, status="refused", reason="more chunks than cut points, " * 6))
    text = as_text(records, width)
    assert max(len(line) for line in text.splitlines()) <= width
    if width >= 80:
        assert sum(line.startswith("gpt2") for line in text.splitlines()) == 41


def test_a_narrow_screen_costs_the_spread_and_the_size_before_the_neural_engine():
    records = [make(model=m, variant=v, chunks=c, units_asked=u) for m in ("gpt2", "a-model-of-a-longer-name")
               for v in ("original", "split_einsum") for c in (1, 2) for u in ("all", "cpu_and_ne")]  # fmt: skip
    for record in records:
        record.placement = [placement("predicted", "m4", Ops(2, 0, 98, 100))]
    assert "not shown" not in as_text(records, 140)
    assert "IQR\n" in as_text(records, 102)
    narrow = as_text(records, 96)
    assert "IQR, package MB\n" in narrow and "ANE %" in narrow and "  98  ok" in narrow


def test_a_spread_beyond_the_value_is_no_plus_minus():
    assert [table.latency_text(make(latency=a, iqr=b)) for a, b in ((69.88, 397.64), (125.04, 130.0), (0.41, 0.98))] == [
        "70 [IQR 398]", "125 [IQR 130]", "0.41 [IQR 0.98]",
    ]  # fmt: skip


def test_the_headline_has_what_differs_from_the_defaults_and_nothing_else():
    records = [make(chunks=c, seq_len=64, head="all", precision="fp16", weights_="x") for c in (1, 2)]
    for record in records:
        record.cell["target"] = "iOS18"
    assert "\nall cells: seq_len=64 weights_=x; else the defaults\n" in as_text(records, 100)


def test_one_is_not_plural_and_reasons_stand_once_with_their_whole_folder():
    text = as_text([make(status="crashed", reason="convert ended with SIGSEGV")], 100, "elsewhere/runs")
    assert text.startswith("sweep s1: 1 cell, 1 crashed\n") and text.count("SIGSEGV") == 1
    assert "elsewhere/runs/s1/tasks/convert-0123456789ab/stderr.txt" in " ".join(text.split())


def test_labels_are_above_the_table_and_beside_their_rows():
    text = as_text([make(), make(model="gpt2", weights="random", texts="synthetic")], 140)
    assert "note: weights=random in 1 of 2 cells, texts=synthetic in 1 of 2 cells\n" in text
    assert "\ngpt2 [weights=random] [texts=synthetic]  40.55" in text
    drawn = make(model="module", weights="own")
    drawn.realised[DRAWN] = "4 of 4 parameters are random numbers"
    assert "\nmodule [random weights]  40.55" in as_text([make(), drawn], 140)
    everywhere = as_text([make(weights="random")], 140)
    assert "note: weights=random\n" in everywhere
    assert "[weights" not in everywhere


def test_units_are_not_applicable_only_where_the_runtime_ignores_them():
    assert "units not applicable" in as_text([make()])
    mac = as_text([make(runtime="coreml", units="cpu_and_ne")])
    assert "units not applicable" not in mac
    assert "Core ML on this machine" in mac
    mixed = as_text([make(runtime="coreml", units="all"), make(chunks=2)], 140)
    assert "units not applicable where it is not Core ML" in mixed
    assert "ran on" in mixed


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"weights": "random"}, ["weights=random, 1 cell", "weights=PATH"]),
        ({"texts": "synthetic"}, ["texts=synthetic, 1 cell", "tokenizer"]),
        ({"status": "degraded", "reason": "PSNR 41 dB is under its gate of 60 dB"}, ["41 dB", "precision=fp32"]),
        (
            {"status": "degraded", "reason": "PSNR 41 dB is under its gate of 60 dB", "precision": "fp32"},
            ["with variant=original, to see whether the model's form costs"],
        ),
        ({"status": "degraded", "reason": "the recipe compresses none of this"}, ["min_elements=1", "precision=fp16"]),
        ({"status": "degraded", "reason": "unstable"}, ["degraded, 1 cell", "nothing else running"]),
        ({"status": "refused", "reason": "too many chunks"}, ["too many chunks.", "ane-sweep plan"]),
        ({"status": "timeout"}, ["timeout, 1 cell", "no reason recorded", "--json"]),
    ],
)
def test_each_doubt_names_the_next_thing_to_try(changes, words):
    found = doubts([make(**changes)])
    for word in [*words, "Next: "]:
        assert word in found[0]


def test_weights_that_own_code_draws_are_a_doubt_and_are_not_called_pretrained():
    record = make(weights="own", weights_="x")
    record.cell["weights"] = "pretrained"
    assert doubts([record]) == doubts([make()]) and "weights" not in table.split_settings([record])[1]
    assert table.split_settings([make(weights="pretrained")])[1].get("weights", "pretrained") == "pretrained"
    record.realised[DRAWN] = "4 of 4 parameters are random numbers, drawn by the module's own code"
    assert doubts([record])[0].startswith("random weights, 1 cell: 4 of 4 parameters are random numbers, drawn by")
    assert "weights=FILE.safetensors" in doubts([record])[0]


def test_inputs_that_are_no_text_say_what_they_are():
    records = [make(), make(), make()]
    for record, said in zip(records, ("x: seeded tiles", "y: seeded numbers")):
        record.realised |= {"inputs": said}
    assert doubts(records)[0].startswith(
        "inputs are made up, 2 cells (x: seeded tiles; y: seeded numbers): scores tell"
    )


def test_a_recipe_under_its_gate_is_weighed_against_fp16():
    record = make(status="degraded", reason="PSNR 31 dB is under its gate of 40 dB", precision="p4")
    record.stages = [StageOutcome("compress", "ok")]
    assert "precision=fp16" in doubts([record])[0]


def test_a_sound_core_ml_sweep_leaves_no_doubt():
    assert doubts([make(runtime="coreml", units="all"), make(runtime="coreml", units="all", chunks=2)]) == []


def test_unavailable_stages_are_said_once():
    records = [make(runtime="coreml", chunks=c) for c in (1, 2)]
    for record in records:
        record.stages = [StageOutcome(s, StageStatus.UNAVAILABLE, "needs macOS") for s in ("compile", "place")]
    assert doubts(records) == ["not done on this host: compile, place (needs macOS)."]


def test_equal_reasons_are_one_doubt_with_examples():
    records = [make(chunks=c, status="failed", reason="the checkpoint is corrupt") for c in (1, 2, 3, 4)]
    assert doubts(records)[0].startswith("failed, 4 cells (chunks=1; chunks=2, and 2 more): the checkpoint is corrupt.")


def test_bits_stand_beside_the_size_where_precision_varies():
    records = [make(), make(precision="p4", size=11_400_000), make(precision="p1", status="refused", reason="no")]
    heads = {column.head: column.cells for column in list_columns(records)}
    assert heads["bits a weight"] == ["16.11", "4.05", "-"]
    assert "bits a weight" not in {column.head for column in list_columns(demo())}


def test_sizes_and_small_latencies_keep_figures():
    parts = {c.head: c.cells[0] for c in list_columns([make(latency=0.4123, iqr=0.01, size=31_234)])}
    assert (parts["latency ms"], parts["package MB"]) == ("0.412 ± 0.010", "0.031")


def test_nothing_to_show():
    assert as_text([]) == "no records\n"
    assert as_markdown([]) == "no records\n"
    assert as_json([]) == "[]\n"


def test_auto_says_what_it_came_to():
    records = [make(), make(chunks="auto")]
    records[1].realised["chunks"] = 3
    assert [column.cells for column in list_columns(records) if column.head == "chunks"] == [["1", "auto (3)"]]
