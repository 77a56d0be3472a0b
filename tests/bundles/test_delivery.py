"""`ane-sweep get`: a cell's packages in a folder of one's own, complete or absent; `ane-sweep list`: the sweeps there are."""

import ast
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import coremltools as ct
import nights
import numpy as np
import pytest
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types
from placement.by_hand import conv_chain

from ane_sweep import coreml_anywhere
from ane_sweep.__main__ import main
from ane_sweep.bridge.record import StageOutcome, StageStatus, Status, Weights
from ane_sweep.bridge.task import TaskResult
from ane_sweep.bundles import delivery
from ane_sweep.mil import package
from ane_sweep.store.cache import Store
from ane_sweep.terminal import BAD_CONFIGURATION, OK

STAMP = "20260101-000000"


def described(path: Path) -> None:
    """With its input in the model's description, as a converter leaves it."""
    found = package.read(path)
    feature = found.spec.description.input.add(name="x")
    feature.type.multiArrayType.shape.extend([1, 64, 32, 32])
    feature.type.multiArrayType.dataType = feature.type.multiArrayType.FLOAT16
    found.model_path.write_bytes(found.spec.SerializeToString())


@pytest.fixture
def swept(tmp_path, monkeypatch):
    """A sweep of three cells: a whole program, two chunks of one, and one that was refused."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANE_SWEEP_OUT", str(tmp_path / "out"))
    with Store(tmp_path / "out" / "cache") as store:
        for stage, key, names in (("convert", "c" * 64, ["model"]), ("chunk", "d" * 64, ["chunk_01", "chunk_02"])):
            aside = store.stage_aside(stage, key)
            for name in names:
                described(conv_chain(aside / f"{name}.mlpackage", 1))
            store.commit(aside, stage, key, TaskResult(stage, key, "ok"))
    convert = StageOutcome("convert", StageStatus.OK, key="c" * 64)
    chunk = StageOutcome("chunk", StageStatus.CACHED, key="d" * 64)
    compiled = StageOutcome("compile", StageStatus.OK, key="e" * 64)
    one, two, none = (nights.cell(chunks=n) for n in (1, 2, 99))
    cells = [
        replace(one, stages=[convert, compiled]),
        replace(two, stages=[convert, chunk], weights=Weights("random")),
        replace(none, stages=[], status=Status.REFUSED),
    ]
    nights.write_run(tmp_path / "out", STAMP, cells)
    path = tmp_path / "out" / "runs" / STAMP / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "started": "2026-01-01T00:00:00+00:00"}))
    return tmp_path


def test_the_chunks_come_in_order_with_how_to_load_them(swept, capsys):
    assert main(["get", "last:chunks=2", "mine/here"]) == OK
    assert capsys.readouterr().out.splitlines() == [
        "mine/here/chunk_01.mlpackage", "mine/here/chunk_02.mlpackage", "how to load them: mine/here/README.md",
    ]  # fmt: skip
    said = Path("mine/here/README.md").read_text()
    (python,) = re.findall(r"```python\n(.*?)```", said, re.DOTALL)
    (swift,) = re.findall(r"```swift\n(.*?)```", said, re.DOTALL)
    ast.parse(python)
    for code in (python, swift):
        assert '"chunk_01.mlpackage", "chunk_02.mlpackage"' in code
    assert "(random weights)`." in said
    assert "- `x`: float16 [1, 64, 32, 32]" in said and swift.count("{") == swift.count("}")
    assert package.read(Path("mine/here/chunk_02.mlpackage")).spec.WhichOneof("Type") == "mlProgram"
    assert [path.name for path in Path("mine").iterdir()] == ["here"]


@pytest.fixture
def summing(tmp_path):
    """A package of two functions, `decode` the default, that add their input to a state."""

    @mb.program(
        input_specs=[mb.TensorSpec((1, 4), types.fp16), mb.StateTensorSpec((1, 4), types.fp16)],
        opset_version=ct.target.iOS18,
    )
    def add_up(x, total):
        made = mb.add(x=mb.read_state(input=total), y=x)
        mb.coreml_update_state(state=total, value=made)
        return mb.identity(x=made, name="so_far")

    options = {"minimum_deployment_target": ct.target.iOS18, "skip_model_load": True}
    ct.convert(add_up, **options).save(str(tmp_path / "one.mlpackage"))
    joined = ct.utils.MultiFunctionDescriptor()
    for name in ("prefill", "decode"):
        joined.add_function(str(tmp_path / "one.mlpackage"), "main", name)
    joined.default_function_name = "decode"
    ct.utils.save_multifunction(joined, str(tmp_path / "model.mlpackage"))
    return tmp_path / "model.mlpackage"


@pytest.mark.parametrize("of_two", [True, False])
def test_what_is_said_of_states_and_functions_runs(summing, of_two, monkeypatch):
    path = summing if of_two else summing.with_name("one.mlpackage")
    said = delivery._readme(nights.cell(), [path])
    assert ("Inputs of function `decode`:" in said) == of_two and (
        "Function `prefill`, with `function_name=" in said
    ) == of_two
    (python,) = re.findall(r"```python\n(.*?)```", said, re.DOTALL)
    (swift,) = re.findall(r"```swift\n(.*?)```", said, re.DOTALL)
    assert "in place of the names in the code, `[['x']]`" in said or not of_two
    assert "makeState()" in swift and "using: state" in swift and ('functionName = "decode"' in swift) == of_two
    monkeypatch.chdir(path.parent)
    given = {"values": {}}
    coreml_anywhere.install()
    try:
        load, call = python.split("values = {}")
        exec(load, given)
        for _ in range(2):
            given["values"]["x"] = np.ones((1, 4), np.float32)
            exec(call, given)
    finally:
        coreml_anywhere.uninstall()
    assert given["values"]["so_far"].tolist() == [[2] * 4]


def test_one_package_as_json_and_what_is_mine_is_not_the_caches(swept, capsys):
    assert main(["get", f"{STAMP}:chunks=1", "mine", "--json"]) == OK
    told = json.loads(capsys.readouterr().out)
    assert told["packages"] == ["model.mlpackage"] and told["cell"]["chunks"] == 1 and told["sweep"] == STAMP
    shutil.rmtree("mine/model.mlpackage")
    assert main(["get", "last:chunks=1", "again"]) == OK
    assert "random" not in Path("again/README.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["last", "mine"], "last: 2 cells; which one? last:chunks=1  last:chunks=2"),
        (["last:chunk=1", "mine"], "no cell there has chunk=1; no axis is called chunk (did you mean 'chunks'?)"),
        (["last:chunks=3", "mine"], "no cell there has chunks=3; there are: chunks=1,2,99"),
        (["last:chunks=99", "mine"], "this cell has no package to give"),
        (["last:chunks=1", "full"], "full: is there already and not empty"),
        (["nosuch", "mine"], "no sweep nosuch with records"),
        (["last:chunks=1"], "ane-sweep get"),
    ],
)
def test_what_cannot_be_got_is_a_sentence_and_leaves_nothing(words, said, swept, capsys):
    Path("full").mkdir()
    Path("full", "of").write_text("things")
    assert main(["get", *words]) == BAD_CONFIGURATION
    assert said in capsys.readouterr().err
    assert sorted(path.name for path in Path().iterdir()) == ["full", "out"] and Path("full", "of").is_file()


def test_a_pruned_package_says_what_makes_it_again_and_a_full_disk_leaves_nothing(swept, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copytree", full)
        assert main(["get", "last:chunks=2", "mine"]) == BAD_CONFIGURATION
    assert "No space left on device; nothing of it is left" in capsys.readouterr().err.replace("(", "").replace(")", "")
    shutil.rmtree(swept / "out" / "cache" / "chunk")
    assert main(["get", "last:chunks=2", "mine"]) == BAD_CONFIGURATION
    assert "not in this cache any more" in capsys.readouterr().err
    assert [path.name for path in swept.iterdir()] == ["out"]


def test_the_sweeps_are_listed_with_their_dates_cells_and_statuses(swept, capsys):
    assert main(["list"]) == OK
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(STAMP)]
    assert "2026-01-01 00:00" in line and " 3 " in line and " ok" in line
    assert main(["list", "--json"]) == OK
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["stamp"], run["cells"], sum(run["statuses"].values())) == (STAMP, 3, 3)


def test_without_a_sweep_the_list_says_how_to_make_one(tmp_path, capsys):
    assert main(["list", f"out={tmp_path}"]) == OK
    assert "`ane-sweep model=minilm` makes one" in capsys.readouterr().out
    assert main(["list", "--json", f"out={tmp_path}"]) == OK and json.loads(capsys.readouterr().out)["runs"] == []
