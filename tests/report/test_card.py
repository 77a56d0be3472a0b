"""Every figure on a model card is parsed back and equals the record's; the front matter is what the hub reads."""

import json
import re

import constructed
import pytest
import yaml
from placement.by_hand import conv_chain

from ane_sweep.bridge.figures import Metric
from ane_sweep.placement import judge
from ane_sweep.planner import config
from ane_sweep.report import card
from ane_sweep.verbs.card import card as verb


def figures(text):
    """Return {(name, kind, chip): value} of the tables of figures, those under a chip's name with that chip."""
    found, chip = {}, None
    for line in text.split("## How it was made")[1].split("## Versions")[0].splitlines():
        if line.startswith("##"):
            chip = line.removeprefix("### ") if line.startswith("### ") else None
        cells = [cell.strip().replace("\\", "") for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0] not in ("figure", "---"):
            found[cells[0], cells[3], chip] = float(cells[1])
    return found


def test_the_figures_of_a_card_are_the_records():
    for record in constructed.records(12):
        made = card.describe_cell(record, ["model=x"])
        wanted = {one.what: float(f"{one.value:.12g}") for one in record.metrics if one.value is not None}
        assert figures(card.to_markdown(made)) == wanted
        assert [one["value"] for one in made.to_dict()["figures"]] == [
            m.value for m in record.metrics if m.value is not None
        ]
        if record.reason:
            assert f"> {record.status.value}: {record.reason}" in card.to_markdown(made)


def test_the_front_matter_is_yaml():
    record = constructed.records(1)[0]
    record.cell["model_options"] = {"hub": "ORG/NAME: #1"}
    found = re.match(r"---\n(.*?)---\n", card.to_markdown(card.describe_cell(record, [])), re.DOTALL)
    assert found and yaml.safe_load(found[1])["base_model"] == "ORG/NAME: #1"
    assert "coreml" in yaml.safe_load(found[1])["tags"]


def test_a_package_has_its_verdicts_figures(tmp_path, capsys):
    path = conv_chain(tmp_path / "m.mlpackage", 8)
    assert (
        verb([str(path), "--chip", "m4,a16", "-o", str(tmp_path / "c.md"), "--manifest", str(tmp_path / "c.json")]) == 0
    )
    shown = figures((tmp_path / "c.md").read_text())
    verdict = judge.judge(path, chip="a16")
    assert shown["ops_ane", "predicted", "a16"] == verdict.summary.ops.ane
    assert shown["latency_low_ms", "estimated", "a16"] == float(f"{verdict.prediction.estimate.low_ms:.12g}")
    manifest = json.loads((tmp_path / "c.json").read_text())
    assert len(manifest["figures"]) == len(shown) and manifest["schema"] == card.SCHEMA


def test_a_time_of_this_hosts_cpu_stands_apart_and_says_so():
    record = constructed.records(1)[0]
    record.realised["runtime"] = "reference"
    text = card.to_markdown(card.describe_cell(record, []))
    apple, measured = text.split("## On Apple chips")[1].split("## Measured")
    assert "latency\\_median" not in apple.replace("latency_median", "latency\\_median") and "latency" in apple
    assert "By reference on" in measured and "says anything about an Apple chip" in measured
    record.realised["runtime"] = "coreml"
    assert "says anything about" not in card.to_markdown(card.describe_cell(record, []))


def test_the_front_matter_says_only_what_is_known():
    record = constructed.records(1)[0]

    def front(**more):
        record.cell |= more
        found = re.match(r"---\n(.*?)---\n", card.to_markdown(card.describe_cell(record, [])), re.DOTALL)
        return yaml.safe_load(found[1])

    assert not front().keys() & {"license", "pipeline_tag", "model-index"}
    assert front(task="tensors").get("pipeline_tag") is None
    record.metrics.append(Metric("accuracy", 0.9, "1", "measured", "constructed"))
    assert "model-index" not in front(task="image_classifier")
    (index,) = front(task="image_classifier", score="imagenette")["model-index"]
    (result,) = index["results"]
    assert result["metrics"] == [{"type": "accuracy", "value": 0.9}]
    assert result["task"]["type"] == "image-classification" and result["dataset"]["type"] == "imagenette"


@pytest.mark.parametrize(
    "words",
    [
        [
            "-m",
            "model=tiny-gpt2,tiny-bert",
            "variant=original,split_einsum",
            "seq_len=32",
            "weights=random",
            "chips=[m4]",
        ],
        ["-m", "+sweep=calibrate_tiny"],
    ],
)
def test_the_command_of_a_card_makes_that_cell_alone(words):
    request = config.load(words)
    cell = request.cells[-1]
    record = constructed.records(1)[0]
    record.cell = cell.as_dict()
    (again,) = config.load(card.list_words(record, words, request.axes)).cells
    assert again.key == cell.key
