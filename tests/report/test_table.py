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
    request = {**CELL, "runtime": runtime, **cell}
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
        "all cells: runtime=reference; else the defaults\n"
        "latency: measured, median ± IQR, reference runtime on this CPU\n"
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
        "\n"
        "Ship minilm variant=original chunks=1: 40.6 ms measured (reference runtime on this CPU), 1.03 times\n"
        "as fast as chunks=2 (41.9 ms): likely (too few processes for a test).\n"
        "No cell is better in PSNR 80.2 dB or package 45.3 MB.\n"
        "Of 4 cells, 1 crashed.\n"
        "Its package: ane-sweep get s1:variant=original,chunks=1 ./minilm\n"
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
    text = as_markdown(demo())
    assert text.startswith(
        "sweep s1: 4 cells, 3 ok, 1 crashed  \nall cells: runtime=reference; else the defaults  \nlatency"
    )
    assert "\n**Ship minilm variant=original chunks=1: 40.6 ms measured" in text


def test_the_markdown_that_is_printed_names_no_setting_that_is_as_by_default():
    asked = [replace(record, cell=record.cell | {"seq_len": 384, "precision": "fp16"}) for record in demo()]
    assert "all cells: runtime=reference seq_len=384; else the defaults" in as_markdown(asked)
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
    assert max(len(line) for line in text.splitlines() if not line.startswith("Its package: ")) <= width
    if width >= 80:
        assert sum(line.startswith("gpt2") for line in text.splitlines()) == 41


def estimated(ms=1.21, chips=("m4", "m1"), shares=(98, 90), why=None, runs_here=18.4, **cell):
    """A cell of runtime=auto on a host without Core ML: estimates with bands, and a check that it runs."""
    record = make(latency=runs_here, iqr=2.0, **cell)
    record.cell["runtime"] = "auto"
    for n, chip in enumerate(chips):
        entry = placement("predicted", chip, Ops(100 - shares[n], 0, shares[n], 100))
        record.placement.append(replace(entry, not_estimated=why))
        record.metrics.append(Metric("cost_share_ane", shares[n] / 100, "1", "predicted", chip=chip))
        if why is None:
            ends = {"latency_ms": ms + n, "latency_low_ms": 0.6 * ms + n, "latency_high_ms": 2 * ms + n}
            record.metrics += [Metric(name, value, "ms", "estimated", chip=chip) for name, value in ends.items()]
    return record


def rows_of(text):
    lines = text.splitlines()
    rule = next(n for n, line in enumerate(lines) if line.startswith("---"))
    return lines[rule + 1 : next(n for n, line in enumerate(lines) if n > rule and not line.startswith("minilm"))]


AXES3 = [(v, c, p) for v in ("original", "split_einsum") for c in (1, 2) for p in ("fp16", "p6")]


@pytest.mark.parametrize("width", [80, 120])
def test_a_sweep_of_three_axes_answers_whole_in_80_columns(width):
    records = [
        estimated(ms=1.2 + n, variant=v, chunks=c, precision=p, weights="random") for n, (v, c, p) in enumerate(AXES3)
    ]
    records[-1] = make(runtime="auto", variant="split_einsum", chunks=2, precision="p6", status="refused", reason="no",
                       weights="random")  # fmt: skip
    text = as_text(records, width)
    first, *_, last = rows_of(text)
    assert ("1.2 (0.72 to 2.4)" in first) == (width == 120), first
    for word in ("minilm", "original", "1", "fp16", "1.2", "98", "80.2", "45.3", "ok"):
        assert word in first.split()
    assert last.endswith("refused [1]") and len(rows_of(text)) == len(AXES3)
    rest = "M1, bits a weight, bands of latencies" if width == 80 else "M1 ANE cost % (predicted)"
    assert f"\nnot shown at this width: {rest}, runs here ms\n" in text
    ship = "Ship minilm variant=original chunks=1 precision=fp16 on M4: 1.2 ms (estimated; 0.72 to 2.4)"
    assert ship in " ".join(text.split())


@pytest.mark.parametrize("width", [80, 200])
def test_a_chip_without_any_estimate_is_named_with_the_reason(width):
    records = [estimated(chunks=chunks, chips=("m4",)) for chunks in (1, 2)]
    for record in records:
        entry = placement("predicted", "m1", Ops(10, 0, 90, 100))
        record.placement.append(replace(entry, not_estimated="m1: nobody timed it"))
    note = "not estimated for M1, all cells: nobody timed it"
    assert note in as_text(records, width) and note in as_markdown(records)


def test_shares_of_the_cost_that_speak_against_the_winner_are_explained_once():
    records = [estimated(ms=1.2, chunks=1, shares=(38, 38)), estimated(ms=2.9, chunks=2, shares=(50, 50))]
    note = "ANE cost % is a share of Core ML's planner prices, no share of the time."
    assert as_text(records, 200).count(note) == 1
    assert note not in as_text([estimated(ms=1.2, chunks=1), estimated(ms=2.9, chunks=2)], 200)


def test_a_table_without_the_answer_has_everything_else():
    records = [estimated(chunks=1), estimated(ms=2.7, chunks=2)]
    text = as_text(records, 200, answered=False)
    assert "Ship" not in text and "Its package" not in text and "runs here in" in text


def test_a_long_check_is_said_in_seconds():
    records = [estimated(runs_here=ms, chunks=c) for c, ms in ((1, 8830.0), (2, 12_340.0))]
    assert doubts(records)[0].startswith("runs here in 8.8 to 12 s on this CPU")


def test_one_line_says_which_latency_the_table_has():
    records = [estimated(chunks=c) for c in (1, 2)]
    for record in records:
        record.cell["latency"] = {"repeats": 2}
    lines = table.list_head_lines(records)
    assert [line.split(":")[0] for line in lines[-2:]] == ["this host ms", "latency"]
    assert sum(line.startswith("latency:") for line in lines) == 1


def test_the_estimate_is_the_headline_and_the_check_comes_last():
    records = [estimated(chunks=1), estimated(ms=2.7, chunks=2, runs_here=35.0)]
    heads = [part.head for part in list_columns(records, estimates=True)]
    assert heads == [
        "model", "chunks", "M4 ms (est.)", "ANE ops % (predicted)", "ANE cost % (predicted)", "PSNR dB", "package MB",
        "M1 ms (est.)", "M1 ANE ops % (predicted)", "M1 ANE cost % (predicted)", "runs here ms", "status",
    ]  # fmt: skip
    assert "runs here ms" not in [part.head for part in list_columns(records)]
    said = doubts(records)
    assert said == ["runs here in 18.4 to 35 ms on this CPU: a check, no measurement of the Neural Engine."]
    assert "latency ms" not in as_text(records, 200) and "measured, median" not in as_text(records, 200)
    records[1].realised["scored"] = "uncut"
    assert doubts(records)[0].endswith(
        " on this CPU: a check of the uncut program, no measurement of the Neural Engine."
    )


def test_a_program_that_only_its_score_has_called_is_said_to_be_not_timed():
    record = estimated(chunks=1)
    record.metrics = [metric for metric in record.metrics if not metric.name.startswith("latency_median")]
    assert doubts([record]) == []
    said = "1 cell not timed: a call should take seconds here, and the score has shown that the {} runs"
    for status in (StageStatus.OK, StageStatus.CACHED):
        record.stages = [StageOutcome("score", status)]
        assert doubts([record])[0].startswith(said.format("program"))
    record.realised["scored"] = "uncut"
    assert doubts([record])[0].startswith(said.format("uncut program"))
    record.cell["latency"] = {"repeats": "off"}
    assert doubts([record]) == []
    record.cell["latency"] = {"repeats": "auto"}
    record.stages.append(StageOutcome("latency", StageStatus.CRASHED))
    assert not any("not timed" in doubt for doubt in doubts([record]))


def test_a_cpu_time_that_was_asked_for_is_a_column_and_no_headline():
    records = [estimated(chunks=c) for c in (1, 2)]
    for record in records:
        record.cell["latency"] = {"repeats": 4}
    heads = [part.head for part in list_columns(records)]
    assert heads[2:4] == ["M4 ms (est.)", "this host ms"] and "runs here" not in as_text(records, 200)
    text = " ".join(as_text(records, 80).split())
    assert (
        "18.40 ± 2.00" in text
        and "not shown at this width: M1 [1]" in text
        and "says nothing about the Neural Engine" in text
    )
    assert "Ship minilm chunks=1 on M4: 1.21 ms (estimated;" in text


def test_measured_and_estimated_headlines_have_a_column_each():
    measured = make(latency=4.0, iqr=0.1, runtime="coreml", units="all", chunks=2)
    heads = {part.head: part.cells for part in list_columns([estimated(chunks=1), measured])}
    assert heads["latency ms"] == ["-", "4.00 ± 0.10"]
    assert heads["M4 ms (est.)"] == ["1.21 (0.73 to 2.4)", "-"]


def test_the_reason_for_a_missing_headline_stands_once():
    records = [estimated(chips=("a17_pro",), shares=(90,), why="a17_pro: nobody timed it", chunks=c) for c in (1, 2)]
    text = as_text(records, 100)
    assert text.count("nobody timed it") == 1 and "A17 Pro ms" not in text
    assert "No latency is estimated: nobody timed it." in " ".join(text.split())
    mixed = [estimated(chunks=1), estimated(why="nobody timed it", chunks=2)]
    text = as_text(mixed, 100)
    assert text.count("nobody timed it") == 1 and "not estimated for M4, M1, 1 of 2 cells" in text
    assert "Not weighed, without a latency: 1 cell." in text


def test_what_core_ml_planned_and_took_to_load_and_compile_has_columns():
    mac = make(latency=4.0, iqr=0.1, runtime="coreml", units="all")
    mac.placement = [placement("planned", "m4", Ops(6, 1, 146, 153))]
    mac.metrics += [Metric("load_cold_ms", 1500.0, "ms"), Metric("compile_s", 2.5, "s")]
    heads = {part.head: part.cells[0] for part in list_columns([mac])}
    assert heads["ops ANE/GPU/CPU (planned)"] == "146/1/6" and heads["ANE ops % (planned)"] == "95"
    assert (heads["load s, cold"], heads["compile s"]) == ("1.5", "2.5")


def test_a_long_path_of_a_module_folds_and_cuts_no_figure():
    path = "some/very/long/folder/of/somebody/else/with/nets.py:ANetworkOfALongName"
    records = [
        estimated(model="module", chunks=c, **{"model_options": {"path": p}}) for c in (1, 2) for p in (path, "n:N")
    ]
    text = as_text(records, 80)
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith("Its package"))
    assert "ANetworkOfALongName" in "".join(line.strip() for line in text.splitlines()) or "LongName" in text
    assert sum(" 98 " in line and "45.3" in line and "1.21" in line for line in text.splitlines()) == 4


def test_a_spread_beyond_the_value_is_no_plus_minus():
    assert [table.latency_text(make(latency=a, iqr=b)) for a, b in ((69.88, 397.64), (125.04, 130.0), (0.41, 0.98))] == [
        "70 [IQR 398]", "125 [IQR 130]", "0.41 [IQR 0.98]",
    ]  # fmt: skip


def test_the_headline_has_what_differs_from_the_defaults_and_nothing_else():
    records = [make(chunks=c, seq_len=64, head="all", precision="fp16", weights_="x") for c in (1, 2)]
    for record in records:
        record.cell["target"] = "iOS18"
    assert "\nall cells: runtime=reference seq_len=64 weights_=x; else the defaults\n" in as_text(records, 100)


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


def test_compute_units_are_spoken_of_only_where_they_vary_and_change_nothing():
    assert "compute_units" not in as_text([make()])
    varied = as_text([make(compute_units=units) for units in ("all", "cpu_only")], 140)
    assert "reference runtime on this CPU; compute_units changes only what runs under Core ML" in varied
    mac = as_text([make(runtime="coreml", units=units, compute_units=units) for units in ("all", "cpu_only")], 140)
    assert "changes only" not in mac and "Core ML on this machine" in mac
    mixed = as_text([make(runtime="coreml", units="all"), make(chunks=2)], 140)
    assert "\nmodel   chunks  runtime " in mixed


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
