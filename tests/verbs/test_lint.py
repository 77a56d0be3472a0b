"""`ane-sweep lint` and `ane-sweep devices` as other people's CI sees them."""

import json
import subprocess
import sys

import pytest
from placement.by_hand import Writer, conv_chain

from ane_sweep.__main__ import main
from ane_sweep.errors import ConfigError
from ane_sweep.mil import package
from ane_sweep.verbs.devices import devices
from ane_sweep.verbs.lint import lint
from tests.bench import lint as bench


@pytest.fixture
def good(tmp_path):
    return str(conv_chain(tmp_path / "good.mlpackage", 8))


@pytest.fixture
def small(tmp_path):
    return str(conv_chain(tmp_path / "small.mlpackage", 1))


def test_exit_codes(good, small, tmp_path, capsys):
    assert lint([good]) == 0
    assert lint([small]) == 1
    assert lint([good, small]) == 1
    assert lint([small, "--min-ane-share", "0"]) == 0
    assert lint([small, "--compute-units=cpu_only"]) == 0, "nothing to fall short of"
    assert lint([small, str(tmp_path / "none.mlpackage"), good]) == 2
    said = capsys.readouterr()
    assert "NOT enough on the ANE" in said.out and "no such model" in said.err


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ([], "the default of 90%"), (["--min-ane", "95"], "--min-ane 95"),
        (["--min-ane-share", "0.5"], "--min-ane-share 0.5"),
    ],
)  # fmt: skip
def test_the_limit_that_is_broken_is_named_as_it_was_given(small, words, limit, capsys):
    assert lint([small, *words]) == 1
    said = capsys.readouterr().out
    assert f"NOT enough on the ANE for {limit} (" in said and "1 segment, 0 transitions" in said
    lint([small, *words, "--json"])
    findings = json.loads(capsys.readouterr().out)["packages"][0]["findings"]
    assert findings[0]["rule"] == "budget/min_ane" and findings[0]["source"] == limit


def test_a_run_that_finds_nothing_says_so_in_one_line(good, small, capsys):
    pytest.importorskip("torch")
    lint([small, "--numbers", "--random", "3", "--chip", "m4,m1"])
    assert capsys.readouterr().out.count("note  --numbers: nothing found, with random inputs, seed 3\n") == 1
    lint([small])
    assert "nothing found" not in capsys.readouterr().out


def test_the_advice_to_mend_names_the_package(tmp_path, capsys):
    writer = Writer(x=("fp16", (1, 8)))
    writer.op("reduce_log_sum_exp", ("fp16", (1,)), x="x", axes=writer.const("int32", (1,), [-1]))
    path = str(writer.save(tmp_path / "my net.mlpackage"))
    lint([path])
    assert f"do: ane-sweep fix '{path}' --only logsumexp_shifted" in capsys.readouterr().out


def test_json_is_as_specified(good, small, capsys):
    assert lint([good, small, "--chip", "m4", "--compute-units", "cpu_and_ne", "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["schema"] == 1 and [entry["path"] for entry in content["packages"]] == [good, small]
    entry = content["packages"][0]
    assert (entry["chip"], entry["compute_units"], entry["gates"]) == ("m4", "cpu_and_ne", [])
    assert set(entry["ops"][0]) >= {
        "function", "chunk", "name", "op_type", "supported", "preferred", "cost_share", "reason", "confidence",
    }  # fmt: skip
    assert [op["op_type"] for op in entry["ops"]] == ["conv", "relu"] * 8
    assert {op["preferred"] for op in content["packages"][1]["ops"]} == {"cpu"}


def test_several_chips_and_a_chain(tmp_path, capsys):
    for number in (1, 2):
        conv_chain(tmp_path / "chain" / f"chunk_0{number}.mlpackage", 8)
    assert lint([str(tmp_path / "chain"), "--chip=m4,a16", "--json"]) == 0
    packages = json.loads(capsys.readouterr().out)["packages"]
    assert [(entry["chip"], len(entry["ops"])) for entry in packages] == [("m4", 32), ("a16", 32)]
    assert packages[0]["ops"][-1]["chunk"] == "chunk_02"


def test_prefixes_of_old_op_names_are_left_out(tmp_path, capsys):
    writer = Writer(x=("fp16", (1, 8)))
    writer.op("ios18.relu", ("fp16", (1, 8)), x="x")
    lint([str(writer.save(tmp_path / "m.mlpackage")), "--json"])
    assert json.loads(capsys.readouterr().out)["packages"][0]["ops"][0]["op_type"] == "relu"


def flipped(path, block_of):
    """The package with its protobuf changed."""
    found = package.read(path)
    block_of(next(iter(found.spec.mlProgram.functions["main"].block_specializations.values())))
    found.model_path.write_bytes(found.spec.SerializeToString())
    return str(path)


def op(block, kind):
    return next(op for op in block.operations if op.type == kind)


def without_weight(block):
    """Its parameter under another name: one flipped byte."""
    inputs = op(block, "linear").inputs
    inputs["weighu"].CopyFrom(inputs["weight"])
    del inputs["weight"]


@pytest.mark.parametrize(
    "change",
    [
        lambda block: op(block, "conv").ClearField("outputs"),
        without_weight,
        lambda block: setattr(op(block, "linear").inputs["x"].arguments[0], "name", "nobody"),
        lambda block: setattr(op(block, "conv").outputs[0].type.tensorType.dimensions[0].constant, "size", 1 << 60),
    ],
)
def test_a_damaged_program_is_unreadable_and_does_not_fall_short(tmp_path, change, capsys):
    image = ("fp16", (1, 64, 32, 32))
    writer = Writer(x=image)
    value = writer.op("conv", image, x="x", weight=writer.const("fp16", (64, 64, 3, 3)))
    writer.op("linear", image, x=value, weight=writer.const("fp16", (32, 32)))
    code = main(["lint", flipped(writer.save(tmp_path / "m.mlpackage"), change), "--chip", "m1,m4"])
    said = capsys.readouterr()
    assert code == 2 and "damaged" in said.err, said


def test_a_tensor_of_a_million_axes_is_told_at_once(tmp_path, capsys):
    def change(block):
        sizes = op(block, "relu").outputs[0].type.tensorType.dimensions
        for _ in range(1_000_000):
            sizes.add().constant.size = 2**63

    path = flipped(conv_chain(tmp_path / "m.mlpackage", 8), change)
    assert main(["lint", path]) == 2 and "of 64 axes or more" in capsys.readouterr().err
    assert main(["run", path, "--random", "0"]) == 2


def test_a_gate_closes_the_verdict_and_is_reported(tmp_path, capsys):
    path = conv_chain(tmp_path / "big.mlpackage", 8, weight_bytes=2_500_000_000)
    assert lint([str(path), "--json"]) == 1
    entry = json.loads(capsys.readouterr().out)["packages"][0]
    assert entry["gates"][0]["gate"] == "weight_file" and entry["ane_share"] == 0
    assert lint([str(path)]) == 1 and "2500000000 bytes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "required: PACKAGE"), (["--chip"], "expected one argument"), (["x", "--loud"], "--loud: unknown here"),
        (["x", "--chip", "m99"], "chip=m99"), (["x", "--compute-units", "npu"], "choices: all, cpu_only"),
        (["x", "--min-ane-share", "much"], "expected a number"), (["x", "--share", "time"], "choices: ops, cost"),
        (["x", "--min-ane-share", "90"], "from 0 to 1"), (["x", "--min-ane-share=nan"], "from 0 to 1"),
        (["x", "--chip="], "needs a value"), (["x", "--chip", ","], "needs a value"),
    ],
)  # fmt: skip
def test_wrong_words(args, words):
    with pytest.raises(ConfigError, match=words):
        lint(args)


def test_devices(capsys):
    assert devices([]) == 0
    said = capsys.readouterr().out
    assert "m4_max" in said and "ANEMLL" in said and "guess" in said and "iphone15_pro, " in said
    assert devices(["--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["chips"]) >= 27
    with pytest.raises(ConfigError):
        devices(["m4"])


@pytest.mark.slow
def test_16500_ops_in_a_process_of_its_own(tmp_path):
    """`python -m tests.bench lint` times it."""
    path = bench.build(tmp_path)
    code = (
        "import sys; from ane_sweep.verbs.lint import lint; lint(sys.argv[1:]); "
        "print(sorted({'coremltools', 'torch', 'transformers', 'hydra', 'mlflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path), "--json"], capture_output=True, text=True, check=True)
    content, loaded = done.stdout.splitlines()
    assert loaded == "[]" and len(json.loads(content)["packages"][0]["ops"]) == bench.OPS
