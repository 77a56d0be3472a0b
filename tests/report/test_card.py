"""Every figure on a model card is parsed back and equals the record's; the front matter is what the hub reads."""

import json
import re

import constructed
import yaml
from placement.by_hand import conv_chain

from ane_sweep.placement import judge
from ane_sweep.report import card
from ane_sweep.verbs.card import card as verb


def figures(text):
    """Return {(name, kind, chip): value} of the table of figures."""
    lines = text.split("## Figures")[1].split("## Versions")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")][2:]
    plain = [[cell.replace("\\", "") for cell in row] for row in cells]
    return {(name, kind, None if chip == "-" else chip): float(value) for name, value, _, kind, chip in plain}


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
