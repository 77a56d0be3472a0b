"""The stage: one file a chip, metrics with kind and chip, facts for the record."""

import json

import pytest
from placement.by_hand import conv_chain

from ane_sweep.errors import ConfigError
from ane_sweep.worker.stages import predict


@pytest.fixture
def program(tmp_path):
    folder = tmp_path / "program"
    conv_chain(folder / "model.mlpackage", 8)
    return folder


def test_one_file_a_chip_and_nothing_called_measured(program, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    result = predict.run({"chips": ["m1", "m4", "a17_pro"], "compute_units": "cpu_and_ne"}, {"program": program}, out)
    assert sorted(path.name for path in out.iterdir()) == [
        f"placement.predicted.{chip}.json" for chip in ("a17_pro", "m1", "m4")
    ]
    content = json.loads((out / "placement.predicted.m4.json").read_text())
    assert content["schema"] == 1 and content["ops"]["ane"] == 16 and len(content["table"]) == 16
    assert content["estimate"]["kind"] == "estimated" and "m4" in content["estimate"]["anchor"]
    names = {metric.name for metric in result.metrics}
    assert names >= {
        "ops_ane",
        "ops_gpu",
        "ops_cpu",
        "ops_total",
        "cost_share_ane",
        "segments",
        "transitions",
        "latency_ms",
    }
    assert {metric.kind for metric in result.metrics} == {"predicted", "estimated"}
    assert {metric.chip for metric in result.metrics} == {"m1", "m4", "a17_pro"}
    assert all(metric.source for metric in result.metrics)
    entry = result.placement[1]
    assert (entry.kind, entry.chip, entry.compute_units, entry.segments) == ("predicted", "m4", "cpu_and_ne", 1)


def test_same_program_same_bytes(program, tmp_path):
    texts = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        predict.run({"chips": ["m4"], "compute_units": "all"}, {"program": program}, tmp_path / name)
        texts.append((tmp_path / name / "placement.predicted.m4.json").read_bytes())
    assert texts[0] == texts[1]


def test_chains_have_a_chunk_column(tmp_path):
    for number in (1, 2):
        conv_chain(tmp_path / "program" / f"chunk_0{number}.mlpackage", 8)
    (tmp_path / "out").mkdir()
    predict.run({"chips": ["m4"], "compute_units": "cpu_and_ne"}, {"program": tmp_path / "program"}, tmp_path / "out")
    content = json.loads((tmp_path / "out" / "placement.predicted.m4.json").read_text())
    assert [row["chunk"] for row in content["table"]] == ["chunk_01"] * 16 + ["chunk_02"] * 16
    assert len(content["chunks"]) == 2


def test_an_unknown_chip_is_named(program, tmp_path):
    with pytest.raises(ConfigError, match="chip=m99: unknown"):
        predict.run({"chips": ["m99"], "compute_units": "all"}, {"program": program}, tmp_path)
