"""Every figure on a model card is parsed back and equals the record's; the front matter is what the hub reads."""

import json
import re
from dataclasses import asdict, replace
from types import SimpleNamespace

import constructed
import pytest
import yaml
from placement.by_hand import conv_chain

from ane_sweep.bridge.figures import Metric
from ane_sweep.compare import sides
from ane_sweep.errors import ConfigError
from ane_sweep.placement import judge
from ane_sweep.planner import config
from ane_sweep.report import card
from ane_sweep.store import runs
from ane_sweep.verbs.card import card as verb


def figures(text):
    """Return {(name, kind, chip): value} of the tables of figures, those under a chip's name with that chip."""
    found, chip = {}, None
    for line in text.split("## How it was made")[1].split("## Versions")[0].splitlines():
        if line.startswith("##"):
            chip = line.removeprefix("### ") if line.startswith("### ") else None
        cells = [cell.strip().replace("\\", "") for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0] not in ("figure", "---"):
            assert cells[2] != "1" and cells[0].startswith("host ") == (chip is None and is_time(cells[0]))
            found[cells[0].removeprefix("host "), cells[3], chip] = float(cells[1])
    return found


def is_time(name):
    return name.endswith(("_ms", "_s")) and not name.endswith("_per_s")


def as_shown(name, value):
    """Return a figure with the digits that the Markdown shows."""
    return float(f"{value:.3g}" if is_time(name) else f"{value:.12g}")


def test_the_figures_of_a_card_are_the_records():
    for record in constructed.records(12):
        made = card.describe_cell(record, ["model=x"])
        wanted = {one.what: as_shown(one.name, one.value) for one in record.metrics if one.value is not None}
        assert figures(card.to_markdown(made)) == wanted
        assert [one["value"] for one in asdict(made)["figures"]] == [
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
    assert shown["latency_low_ms", "estimated", "a16"] == as_shown("latency_low_ms", verdict.prediction.estimate.low_ms)
    manifest = json.loads((tmp_path / "c.json").read_text())
    assert len(manifest["figures"]) == len(shown) and manifest["schema"] == card.SCHEMA


def test_a_run_is_shown_for_the_chips_asked_for(monkeypatch, tmp_path, capsys):
    record = constructed.records(1)[0]
    (entry, other) = record.placement
    record.placement = [entry, replace(entry, chip="m4", not_estimated="m4: nobody timed it"), other]
    monkeypatch.setattr(sides, "side", lambda *_: SimpleNamespace(records=[record]))
    monkeypatch.setattr(runs, "find_run", lambda *_: SimpleNamespace(folder=tmp_path))
    shown = {}
    for chip in ("m1", "m4", "m1,m4"):
        assert verb(["last", "--chip", chip]) == 0
        shown[chip] = capsys.readouterr().out
    assert "### m1" in shown["m1"] and "### m4" not in shown["m1"] and "nobody" not in shown["m1"]
    assert "### m4\n\nNot estimated: nobody timed it.\n" in shown["m4"] and "### m1" not in shown["m4"]
    assert "### m1" in shown["m1,m4"] and "### m4" in shown["m1,m4"]
    with pytest.raises(ConfigError, match=r"--chip a16: last has no prediction for it; it has: m1, m4\."):
        verb(["last", "--chip", "a16"])


def test_the_versions_of_a_package_name_its_tools():
    metadata = {"com.github.apple.coremltools.version": "9.0", "com.github.apple.coremltools.source": "torch==2.13.0"}
    made = card.describe_package("m.mlpackage", 1, metadata, [])
    assert made.versions == {"coremltools": "9.0", "torch": "2.13.0"} and made.made == {}
    metadata["com.github.apple.coremltools.source"] = "milinternal"
    made = card.describe_package("m.mlpackage", 1, metadata, [])
    assert made.versions == {"coremltools": "9.0"} and made.made == {"source": "milinternal"}


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


@pytest.mark.slow
@pytest.mark.ci
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
