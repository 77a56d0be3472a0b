"""`ane-sweep lint` with limits, baselines and the formats of hosted CI."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from placement.by_hand import IMAGE, Writer, conv_chain, convolutions

from ane_sweep.__main__ import main
from ane_sweep.ci import baseline
from ane_sweep.errors import ConfigError
from ane_sweep.mil import package
from ane_sweep.placement.changes import compare_ops
from ane_sweep.placement.structure import OpOutline
from ane_sweep.verbs.ci import ci
from ane_sweep.verbs.lint import lint


def rename(path):
    """Give every value but inputs and outputs another name."""
    found = package.read(path)
    kept = {one.name for one in (*found.spec.description.input, *found.spec.description.output)}
    for function in found.spec.mlProgram.functions.values():
        for block in function.block_specializations.values():
            names = {v.name: f"z{i}" for i, op in enumerate(block.operations) for v in op.outputs if v.name not in kept}
            for op in block.operations:
                for value in op.outputs:
                    value.name = names.get(value.name, value.name)
                for argument in op.inputs.values():
                    for one in argument.arguments:
                        if one.name:
                            one.name = names.get(one.name, one.name)
            block.outputs[:] = [names.get(name, name) for name in block.outputs]
    found.model_path.write_bytes(found.spec.SerializeToString())


def entry(capsys):
    return json.loads(capsys.readouterr().out)["packages"][0]


def test_an_op_that_is_new_and_off_the_ane_fails(tmp_path, capsys):
    before, after = convolutions(tmp_path / "a.mlpackage"), convolutions(tmp_path / "b.mlpackage", odd="cumsum")
    assert lint([after, "--baseline", before, "--json"]) == 1
    found = entry(capsys)["baseline"]
    assert [op["op_type"] for op in found["added"]] == ["cumsum"] and not found["removed"] and found["matched"] == 8
    assert lint([before, "--baseline", after]) == 0, "an op that went away is no regression"


def test_ops_that_share_a_reason_are_told_together(tmp_path, capsys):
    before, after = convolutions(tmp_path / "a.mlpackage"), Writer(x=IMAGE)
    value = "x"
    for index in range(8):
        value = after.op("conv", IMAGE, x=value, weight=after.const("fp16", (64, 64, 3, 3)))
        if index in (1, 2, 3, 4):
            value = after.op("cumsum", IMAGE, x=value)
    path = str(after.save(tmp_path / "b.mlpackage"))
    assert lint([path, "--baseline", before, "--json"]) == 1
    (why,) = [one["why"] for one in entry(capsys)["findings"] if one["rule"] == "baseline/added_off_ane"]
    assert why.count("cumsum has no ANE kernel") == 1 and " and 1 more on cpu: " in why


def test_the_first_line_says_what_the_exit_code_says(tmp_path, capsys):
    before, after = convolutions(tmp_path / "a.mlpackage"), convolutions(tmp_path / "b.mlpackage", odd="cumsum")
    for words, code, said in (
        ([before], 0, "ok"),
        ([after, "--baseline", before], 1, "NOT ok, worse than the baseline"),
        ([before, "--max-ms", "0.001"], 1, "NOT ok, too slow"),
        ([after, "--baseline", before, "--max-ms", "0.001"], 1, "NOT ok, worse than the baseline and too slow"),
        ([after, "--min-ane", "99"], 1, "NOT enough on the ANE for --min-ane 99"),
    ):
        assert lint(words) == code
        assert capsys.readouterr().out.startswith(f"{words[0]}: {said} (predicted for m4"), words


@pytest.mark.parametrize(
    ("word", "said"), [("", "an empty word"), ("HEAD:", "this folder is in none"), (":", "no such file")]
)
def test_words_that_are_no_baseline(word, said, tmp_path, monkeypatch, capfd):
    package = convolutions(tmp_path / "a.mlpackage")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert main(["lint", package, "--baseline", word]) == 2
    assert said in capfd.readouterr().err


def test_other_names_are_no_change(tmp_path, capsys):
    before, after = convolutions(tmp_path / "a.mlpackage"), convolutions(tmp_path / "b.mlpackage")
    rename(tmp_path / "b.mlpackage")
    assert lint([after, "--baseline", before]) == 0
    assert "no op moved, came or went" in capsys.readouterr().out


def test_a_report_is_a_baseline_and_other_rules_leave_doubt(tmp_path, capsys, monkeypatch):
    path = convolutions(tmp_path / "a.mlpackage")
    report = tmp_path / "a.json"
    assert lint([path, "--save", f"json={report}"]) == 0
    assert lint([path, "--baseline", str(report)]) == 0
    with pytest.raises(ConfigError, match="nothing there is"):
        lint([path, "--baseline", str(report), "--chip", "m1"])
    monkeypatch.setattr(baseline, "digest_rules", lambda: "others")
    assert lint([path, "--baseline", str(report)]) == 3
    report.write_text("{}")
    with pytest.raises(ConfigError, match="no lint report"):
        lint([path, "--baseline", str(report)])


def test_a_revision_is_a_baseline(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    convolutions(tmp_path / "my net.mlpackage")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "one")):
        subprocess.run((*git, *words), check=True)
    subprocess.run(("rm", "-r", "my net.mlpackage"), check=True)
    convolutions(tmp_path / "my net.mlpackage", odd="cumsum")
    new = convolutions(tmp_path / "new.mlpackage")
    assert lint(["my net.mlpackage/Manifest.json", "--baseline", "HEAD:"]) == 1
    assert lint([new, "--baseline", "HEAD:"]) == 0 and "this package is new" in capsys.readouterr().out
    assert main(["lint", new, "--baseline", "nosuch:"]) == 2 and "no revision" in capsys.readouterr().err


def test_limits_decide_the_exit_code(tmp_path):
    path = convolutions(tmp_path / "a.mlpackage")
    assert lint([path, "--max-ms", "1000", "--min-ane", "100"]) == 0
    assert lint([path, "--max-ms", "0.001"]) == 1
    assert lint([path, "--max-ms", "1000", "--chip", "all"]) == 0
    with pytest.raises(ConfigError, match="one limit"):
        lint([path, "--min-ane", "90", "--min-ane-share", "0.9"])


def test_formats_tell_the_same_findings(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = convolutions(tmp_path / "a.mlpackage", odd="cumsum")
    saved = [word for kind in ("sarif", "junit", "markdown", "json") for word in ("--save", f"{kind}=o.{kind}")]
    lint([path, "--max-ms", "0.001", "--format", "github", "--badge", "o.svg", *saved])
    findings = json.loads((tmp_path / "o.json").read_text())["packages"][0]["findings"]
    assert all(one["why"] and one["source"] and one["confidence"] for one in findings)
    rules = [one["rule"] for one in findings]
    assert (
        {"budget/max_ms", "budget/min_ane"} >= {rules[0]}
        and "budget/max_ms" in rules
        and any(rule.startswith("placement/") for rule in rules)
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(findings) and lines[0].startswith("::error file=a.mlpackage/Manifest.json,line=1,title=")
    run = json.loads((tmp_path / "o.sarif").read_text())["runs"][0]
    assert [result["ruleId"] for result in run["results"]] == rules
    suites = ElementTree.parse(tmp_path / "o.junit").getroot()
    assert suites.get("failures") == str(sum(one["severity"] == "error" for one in findings))
    comment = (tmp_path / "o.markdown").read_text()
    assert comment.count("<details>") == 1 and all(one["what"] in comment for one in findings)
    assert "%" in ElementTree.parse(tmp_path / "o.svg").getroot()[0].text


def test_the_report_is_the_same_with_every_hash_seed(tmp_path):
    path = str(conv_chain(tmp_path / "a.mlpackage", 8))
    code = "import sys; from ane_sweep.verbs.lint import lint; lint(sys.argv[1:])"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code, path, "--json"], capture_output=True, env=os.environ | {"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "77")
    }
    assert len(texts) == 1 and b"findings" in texts.pop()


def test_twins_of_one_shape_keep_their_order_and_a_lost_one_is_alone():
    def chain(*types):
        return [OpOutline(f"n{i}", kind, "ane", reads=[i - 1], outputs=["fp16[1,8]"]) for i, kind in enumerate(types)]

    found = compare_ops(chain("relu", "tanh", "relu", "sin", "relu"), chain("relu", "tanh", "relu", "relu"))
    assert [op.op_type for op in found.removed] == ["sin"] and not found.added and found.matched == 4


def test_a_workflow_is_written_once_and_names_no_path_of_this_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert ci(["write", "github", "models/*.mlpackage", "--chip", "iphone15_pro"]) == 0
    text = (tmp_path / ".github/workflows/neural-engine.yml").read_text()
    assert (
        "models/*.mlpackage" in text and "chips: a17_pro" in text and str(tmp_path) not in text and "@PACK" not in text
    )
    with pytest.raises(ConfigError, match="there already"):
        ci(["write", "github"])
    with pytest.raises(ConfigError, match="within the repository"):
        ci(["write", "github", "/tmp/x.mlpackage", "--to", "-"])
    with pytest.raises(ConfigError, match="one of them goes to standard output"):
        ci(["write", "github", "--to", "-", "--json"])


def test_a_comment_on_several_packages_names_the_one_of_each_finding(tmp_path, capsys):
    paths = [str(conv_chain(tmp_path / name, 8)) for name in ("a.mlpackage", "b.mlpackage")]
    lint([*paths, "--format", "markdown", "--max-ms", "0.01"])
    text = capsys.readouterr().out
    assert "1 more verdict\n" in text and "| | package | chip | finding |" in text
    rows = text.partition("| finding |")[2].splitlines()[2:-2]
    assert rows and all(row.count("a.mlpackage") + row.count("b.mlpackage") == 1 for row in rows if row)


def test_a_file_in_no_folder_is_refused_before_anything_is_judged(tmp_path, capsys):
    path = str(conv_chain(tmp_path / "a.mlpackage", 8))
    for words in (["--badge", str(tmp_path / "no/b.svg")], ["--save", f"sarif={tmp_path / 'no/x'}"]):
        with pytest.raises(ConfigError, match="a folder that exists"):
            lint([path, *words])
    assert not capsys.readouterr().out
