"""Published figures: every row that names a transformer has a preset or a reason; every preset plans and reproduces it."""

import re
from dataclasses import replace

import constructed
import pytest

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.record import flat_cell
from ane_sweep.errors import ConfigError
from ane_sweep.placement import chips
from ane_sweep.planner import config
from ane_sweep.planner.paths import conf_dir
from ane_sweep.planner.settle import plan_for
from ane_sweep.report import beside
from ane_sweep.report.views import Cells
from ane_sweep.results import published
from ane_sweep.store.cache import open_store

TRANSFORMER = re.compile(
    r"gpt|bert|pythia|llama|\bopt-|\bt5|phi-|qwen|bloom|gemma|transformer|\bllm|codegen|santacoder|lfm|mistral|whisper|"
    r"encoder|decoder|deepseek|\bvit|clip",
    re.IGNORECASE,
)
PRESETS = sorted(path.stem for path in (conf_dir() / "sweep" / "notebooks").glob("*.yaml"))
ELSEWHERE = ["chain-or-pipeline"]  # a kept matrix of its own that a published row names


@pytest.fixture(scope="module")
def requests():
    """preset -> what it asks for."""
    named = {name: f"notebooks/{name}" for name in PRESETS} | {name: name for name in ELSEWHERE}
    return {name: config.load([f"+sweep={path}", "weights=random"]) for name, path in named.items()}


def test_every_row_that_names_a_transformer_has_a_preset_or_a_reason():
    rows = [row for row in published.rows() if TRANSFORMER.search(row["model"])]
    assert len(rows) > 350
    for row in rows:
        assert bool(row["preset"] and row.request) != bool(row["unmatched"]), row.texts


def test_every_row_says_where_it_is_from():
    for row in published.rows():
        assert row["source"] and not row["source"].startswith("seed")
        assert row["url"] == "" or row["url"].startswith("https://")
        assert row["chip"] == "" or row["chip"] in chips.table() or row["chip"] == "m6", row["chip"]


@pytest.mark.slow
def test_every_matched_row_is_a_cell_of_its_preset(requests):
    for row in published.rows():
        if not row.request:
            continue
        cells = [cell for cell in requests[row["preset"]].cells if _is(row.request, cell)]
        assert cells, (row["preset"], row.request)


def _is(request, cell):
    wanted = {**published.DEFAULTS, **request}
    return all(format_value(cell.value(key)) == format_value(value) for key, value in wanted.items())


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_plans(name, requests, tmp_path):
    with open_store(tmp_path) as store:
        plan = plan_for(requests[name], store, tmp_path)
    assert len(plan.chains) + len(plan.refused) == len(requests[name].cells)
    assert all("torch_mps needs a Mac" in reason for reason in plan.refused.values())


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_predicts_for_the_chips_of_its_published_figures(name, requests):
    on = {row["chip"] for row in published.rows() if row["preset"] == name} & set(chips.table())
    assert on <= set(requests[name].settings.chips)


@pytest.mark.slow
@pytest.mark.ci
def test_gpt2_with_masks_has_its_norms_as_single_ops(requests):
    """The note counts 1,323 ops, of norms that are several ops each."""
    assert {cell.norm for cell in requests["gpt2-masks"].cells} == {"fp16_ops"}


@pytest.mark.slow
@pytest.mark.ci
def test_a_larger_first_chunk_of_gpt2_xl_is_cut(requests):
    """The note: with more than 1811 MB first, all of it ran on the CPU."""
    first = {cell.cuts[0] for cell in requests["gpt2-xl-cuts"].cells}
    assert max(int(cut.removesuffix("MB")) for cut in first) > 1811


def test_every_measured_test_net_stands_beside_a_probe():
    nets = [row for row in published.rows() if row["model"].startswith("test net")]
    assert len(nets) == 8 and {row.request["model"] for row in nets} == {"probe-820mb"}


def test_figures_of_one_program_are_not_those_of_several_copies():
    row = next(
        row
        for row in published.rows()
        if row["model"].startswith("test net")
        and row["compute_units"] == "CPU_AND_NE"
        and row.figures.get("predict_ms") == 90.0
    )
    one = record(model="probe-820mb", compute_units="cpu_and_ne", copies=1)
    assert matches(row, one) and not matches(row, record(**{**one.cell, "copies": 6}))


def test_loads_compilations_and_sizes_have_columns_and_empty_ones_are_left_out():
    made = record(compute_units="cpu_and_ne")
    made.metrics.append(Metric("compile_s", 1.5, "s", source="constructed"))
    rows = beside.rows(Cells([made]))
    phone = dict(zip(beside.HEADS, next(row for row in rows if "iPhone 12 Pro" in row[1])))
    assert (phone["load ms published"], phone["compile ms published"], phone["ops published"]) == (
        "404", "246", "610 (606 CPU, 4 ANE)",
    )  # fmt: skip
    assert phone["compile ms measured"] == "1500" and phone["load ms measured"].endswith(" cached")
    assert phone["MB ours"] == f"{made.value('package_bytes') / 1e6:.4g}"
    grid = beside.grid(Cells([made]))
    assert "MB published" not in grid.heads and {len(row) for row in grid.rows} == {len(grid.heads)}
    assert len(grid.numeric) == len(grid.heads) and beside.grid(Cells([record(model="nothing")])) is None


@pytest.mark.slow
@pytest.mark.ci
def test_kept_matrices_taken_together_predict_for_the_chips_of_each(requests):
    together = config.load(["+sweep=notebooks/opt,notebooks/gpt2-masks", "weights=random"])
    assert together.settings.chips == requests["opt"].settings.chips + requests["gpt2-masks"].settings.chips


def test_nothing_that_we_have_is_denied():
    denied = [row["unmatched"] for row in published.rows()]
    for path in (conf_dir() / "sweep" / "notebooks").glob("*.yaml"):
        denied.append(path.read_text().partition("Not modelled")[2])
    for word in ("MPS", "idle", "pause", "820"):
        assert not [text for text in denied if word in text], word


def test_every_preset_is_used_or_lists_what_it_is_for():
    used = {row["preset"] for row in published.rows()} - {""}
    assert used <= {*PRESETS, *ELSEWHERE}
    assert set(PRESETS) - used == {"candidates", "gpt2-inputs", "gpt2-lm-head"}, "no published row names them"


def record(**changes):
    made = constructed.records(1, bad=False)[0]
    made.cell |= {
        "model": "distilbert",
        "variant": "split_einsum",
        "seq_len": 128,
        "precision": "fp16",
        "chunks": 1,
    } | changes
    return made


def matches(row, made):
    return row.matches(flat_cell(made), made.realised.get("runtime"))


def test_side_by_side_names_the_kinds_and_the_chip():
    """Apple's own figures for its DistilBERT: 3.47 ms on an iPhone 13; 8.7 ms on an M1 Max by somebody else."""
    made = record(compute_units="cpu_and_ne")
    rows = beside.rows(Cells([made]))
    found = next(row for row in rows if "iPhone 13" in row[1])
    assert found[beside.HEADS.index("ms published")] == "3.47"
    assert found[beside.HEADS.index("ms measured")] == f"{made.value('latency_median_ms'):.4g}"
    laptop = next(row for row in rows if "M1 Max" in row[1])
    estimate = made.value("latency_ms", "estimated", "m1")
    assert laptop[beside.HEADS.index("ms estimated")] == f"{estimate:.4g} (m1)"
    assert laptop[beside.HEADS.index("ANE % planned")] != "-"


def test_what_was_not_estimated_is_said():
    made = record(compute_units="cpu_only")
    made.metrics = [metric for metric in made.metrics if metric.kind != "estimated"]
    why = "m1: 100% of its time would be on the CPU, and only m4's has figures here"
    made.placement = [replace(entry, not_estimated=why) for entry in made.placement]
    found = [row for row in beside.rows(Cells([made])) if "M1 Max" in row[1]]
    assert found and {row[beside.HEADS.index("ms estimated")] for row in found} == {"not estimated (m1)"}


def test_units_are_part_of_the_request_whatever_the_runtime():
    """Off Core ML a latency does not know them, but the estimate and the placement beside it do."""
    row = next(
        row
        for row in published.rows()
        if row.request.get("compute_units") == "cpu_only" and row["preset"] == "distilbert"
    )
    variant = row.request["variant"]
    for runtime in ("coreml", "reference"):
        other, same = record(variant=variant, compute_units="all"), record(variant=variant, compute_units="cpu_only")
        other.realised["runtime"] = same.realised["runtime"] = runtime
        assert matches(row, same) and not matches(row, other)
    for runtime in ("torch_eager", "torch_mps"):
        same.realised["runtime"] = runtime
        assert not matches(row, same), "PyTorch's time is not Core ML's"


def test_each_figure_stands_beside_the_cell_of_its_units():
    made = []
    for units in ("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"):
        made.append(record(variant="original", compute_units=units))
        made[-1].realised["runtime"] = "reference"
    column = beside.HEADS.index("ours")
    for row in beside.rows(Cells(made)):
        for units in ("cpu_only", "cpu_and_gpu", "cpu_and_ne"):
            assert (f", {units}" in row[1]) == (units in row[column].replace(",", "").split()), row
    assert any("batch 16" in row[1] for row in beside.rows(Cells(made))), "another batch is said"


def test_another_option_is_another_request():
    row = next(row for row in published.rows() if row["preset"] == "gpt2-family" and row.request["model"] == "gpt2")
    plain = record(model="gpt2", variant="original", seq_len=512, compute_units=row.request.get("compute_units", "all"))
    assert matches(row, plain)
    assert not matches(row, record(**{**plain.cell, "head": "last"}))
    assert not matches(row, record(**{**plain.cell, "precision": "fp32"}))


def test_psnr_of_random_weights_is_not_set_beside_a_published_one():
    made = record(model="gpt2", variant="original", seq_len=512)
    made.weights = replace(made.weights, kind="random")
    column = beside.HEADS.index("PSNR measured")
    rows = beside.rows(Cells([made]))
    assert rows and {row[column] for row in rows} == {"-"}
    assert all("[weights=random]" in row[2] for row in rows)


def test_a_mistyped_preset_finds_its_neighbour():
    with pytest.raises(ConfigError, match="did you mean 'notebooks/gpt2-family'"):
        config.load(["+sweep=notebooks/gpt2-famil"])
