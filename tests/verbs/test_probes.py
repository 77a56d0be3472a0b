"""The limit probes: what they ask for is what they say, and they run on any host in miniature."""

import pytest
import yaml
from planner.test_plan import counts, planned
from tiny import ONCE, RAN

from ane_sweep.__main__ import main
from ane_sweep.bridge.record import read_records
from ane_sweep.mil import cuts
from ane_sweep.planner import options
from ane_sweep.planner.paths import conf_dir


@pytest.mark.parametrize("name", ["probe_size", "probe_depth"])
def test_sizes_are_those_of_the_architecture(name):
    sweep = yaml.safe_load((conf_dir() / "sweep" / f"{name}.yaml").read_text())
    (option,) = sweep["axes"]["model"]
    arch = options.shipped("model", option)["arch"]
    width, wide = arch["hidden_size"], arch["intermediate_size"]
    (pair,) = sweep["pairs"]
    blocks = pair["model.arch.num_hidden_layers"]
    assert pair["model.parameters"] == [n * (2 * width * wide + width + wide) for n in blocks]
    if name == "probe_size":
        sizes = [2 * parameters for parameters in pair["model.parameters"]]
        assert min(sizes) < 1.9e9 and max(sizes) > 2.6e9
        assert any(2**31 - 25e6 < size < 2**31 for size in sizes) and any(2**31 < size < 2**31 + 25e6 for size in sizes)
    else:
        layers = [2 * n for n in blocks]
        assert {400, 382, 384, 386} <= set(layers), "around 383, where others saw it fail"
        assert max(layers) == 1000, "which ran elsewhere"


def test_copies_in_both_kinds_and_orders_share_one_conversion():
    made = planned("-m", "+sweep=probe_copies", "runtime=reference")
    assert counts(made)["convert"] == counts(made)["score"] == 1
    assert len(made.cells) == counts(made)["latency"] == 1 + 5 * 4
    timings = [task for task in made.tasks.values() if task.stage == "latency"]
    assert max(task.memory_bytes for task in timings) > 1.3 * min(task.memory_bytes for task in timings)


def test_several_sizes_at_once_are_twenty_blocks_and_on():
    made = planned("-m", "+sweep=probe_sizes_at_once", "runtime=reference")
    assert counts(made)["convert"] == 1 and counts(made)["latency"] == len(made.cells) == 4
    cell = made.cells[0]
    blocks = cell.model_options["arch"]["num_hidden_layers"]
    assert [round(share * blocks, 1) for share in cell.copies_sizes] == [20, 20, 21, 21, 22, 22]
    assert 0.899e9 < 2 * cell.model_options["parameters"] < 0.902e9


def test_a_layer_more_is_another_model(capsys, tmp_path):
    """An axis into the architecture makes other weights: nothing is shared that differs."""
    assert main(["plan", "-m", "+sweep=probe_depth", "runtime=reference", f"out={tmp_path}"]) == 0
    assert "10 conversions      for 20 cells" in capsys.readouterr().out


@pytest.mark.slow
def test_probes_run_here_in_miniature(tmp_path):
    common = ["runtime=reference", "seq_len=16", "latency.samples=3", ONCE, "tracking.enabled=false", f"out={tmp_path}"]
    assert main(["-m", "+sweep=probe_copies", "model=probe-tiny", "copies=1,2", *common]) in RAN
    (folder,) = (tmp_path / "runs").glob("*")
    records = read_records(folder)
    assert len(records) == 5 and {record.status.value for record in records} <= {"ok", "degraded"}
    for record in records:
        count = record.cell["copies"]
        assert record.realised.get("copies", 1) == count
        assert (record.value(f"latency_copy_{count}_median_ms") is not None) == (count > 1)
    assert (
        main(
            [
                "+sweep=probe_sizes_at_once",
                "model=probe-tiny",
                "copies=2",
                "copies_sizes=[0.5,1]",
                *common,
                "copies_kind=identical",
                "copies_order=forward",
            ]
        )
        in RAN
    )
    sized = read_records(max((tmp_path / "runs").glob("*")))[0]
    assert 0.4 < sized.realised["copies_bytes"][0] / sized.realised["copies_bytes"][1] < 0.6
    assert (
        main(
            ["+sweep=probe_depth", "chunks=2", "model.arch.num_hidden_layers=200", "model.parameters=3315200", *common]
        )
        in RAN
    )
    deep = read_records(max((tmp_path / "runs").glob("*")))[0]
    assert deep.realised["chunks"] == 2 and deep.value("psnr_db") > 60
    assert cuts.SLACK * deep.value("chunk_bytes_ideal") >= deep.value("chunk_bytes_max") - deep.value(
        "chunk_bytes_ideal"
    )
