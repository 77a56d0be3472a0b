"""Steps in processes of their own: the load ladder, and what happens when a load kills, hangs or eats memory."""

import json
import shutil
from pathlib import Path

import pytest

from ane_sweep.bridge.protocol import MEMORY_VARIABLE
from ane_sweep.errors import Died, StageError
from ane_sweep.mil import identity, package
from ane_sweep.worker.programs.mlprogram import steps as _steps
from ane_sweep.worker.stages import compile, load

from .test_stages import PARAMS


def ps(aned_mib, compiler_mib, **more):
    """Constructed: `ps -axo pid=,rss=,time=,comm=`."""
    said = [f"10 {aned_mib * 1024} 0:01.10 /usr/libexec/aned"]
    if compiler_mib:
        said.append(f"11 {compiler_mib * 1024} 1:40.00 /x/ANECompilerService.xpc/Contents/MacOS/ANECompilerService")
    return {"on": "command", "argv": ["/bin/ps"], "stdout": said, **more}


@pytest.mark.slow
def test_the_ladder_cold_then_cached(inputs, scripted, tmp_path):
    scripted(
        ps(20, 900, from_call=3),
        ps(20, 0),
        {"on": "load", "seen": False, "ms": 4200},
        {"on": "load", "seen": True, "ms": 130},
        {"on": "predict", "ms": 7, "native_ms": 6},
    )
    found = load.run(PARAMS, inputs("chain"), tmp_path)
    figures = {entry.name: entry.value for entry in found.metrics}
    assert figures.pop("ane_compiler_peak_bytes") == 900 << 20
    wanted = {"load_cold_ms": 8400, "load_cached_ms": 260, "first_predict_cold_ms": 14, "first_predict_ms": 14}
    assert figures.keys() == wanted.keys()
    for name, ms in wanted.items():  # and Python's share, on whatever machine this is
        assert ms <= figures[name] < ms + 300, name
    assert found.realised["load"] == {
        "cold": "cold: a new package in an empty cache; 2 entries were written",
        "cached": "cached: the same files again, and no entry was added",
    }
    content = json.loads((tmp_path / "load.json").read_text())
    assert [round(ms) for ms in content["steps"]["cold"]["load_native_ms"]] == [4200, 4200]
    assert found.realised["ane_helpers"] == content["helpers"]
    assert [row["name"] for row in content["helpers"]["before"]] == ["aned"]
    assert [row["name"] for row in content["helpers"]["after"]] == ["ANECompilerService", "aned"]


def test_what_the_ladder_says_when_the_cache_does_not_do_as_expected():
    def said(cold, cached, own=None):
        entries = {"cold": cold, "cached": cached}
        steps = {name: {"new_cache_entries": count, "own_cache": own} for name, count in entries.items()}
        return [load.describe_cache(name, steps, "a new package") for name in steps]

    assert said(1, 1)[1] == "not cached: loading the same files again wrote 1 more entries"
    assert said(0, 0) == [
        "cold by construction: a new package in an empty cache; no entry of the cache could be seen",
        "the same files again; whether they were cached cannot be seen",
    ]
    assert said(1, 0, "no such folder")[0] == "cold: a new package in the user's own cache; 1 entries were written"


def test_what_a_copy_cannot_do_is_done_another_way(inputs, scripted, tmp_path):
    """Nobody has seen Core ML take a new identity, or a home of our own: neither may cost a cell its ladder."""
    scripted()
    found = inputs("single") | {"compiled": tmp_path / "compiled"}
    found["compiled"].mkdir()
    compile.run({"compiler": "coremltools"}, found, found["compiled"])
    scripted({"on": "compile", "fail": "unknown key in buildInfo"})
    (tmp_path / "work").mkdir()
    folders, what = load.copy_afresh(found, tmp_path / "work")
    assert what.startswith(
        "the compiled program in a new place (under a new identity: model.mlpackage does not compile:"
    )
    assert Path(folders["compiled"], "model.mlmodelc", "model.mil").exists()


@pytest.mark.parametrize("kind", ["single", "pipeline", "functions"])
def test_a_fresh_copy_is_the_same_program_under_another_name(kind, programs, tmp_path):
    source = programs / kind / "model.mlpackage"
    kinds = ("mlProgram", "pipeline")
    copies = [identity.write_fresh_copy(source, tmp_path / name / "model.mlpackage", name) for name in ("one", "two")]
    specs = [package.read(path, kinds).spec for path in (source, *copies)]
    assert len({spec.SerializeToString(deterministic=True) for spec in specs}) == 3
    specs[0].description.metadata.SetInParent()
    for name, spec in zip(("one", "two"), specs[1:]):
        assert spec.description.metadata.userDefined.pop(identity.KEY) == name
        for program in identity._list_programs(spec):
            assert f'"{name}"' in str(program.attributes["buildInfo"])
            del program.attributes["buildInfo"].immediateValue.dictionary.values[-1]
            if not program.attributes["buildInfo"].immediateValue.dictionary.values:
                del program.attributes["buildInfo"]
    assert len({spec.SerializeToString(deterministic=True) for spec in specs}) == 1, "nothing else differs"
    weights = [path / "Data/com.apple.CoreML/weights" for path in (source, copies[0])]
    names = [sorted(file.name for file in folder.iterdir()) for folder in weights]
    assert names[0] == names[1] and (weights[0] / names[0][0]).samefile(weights[1] / names[0][0]), "no byte is copied"
    shutil.rmtree(tmp_path / "one")


@pytest.mark.slow
@pytest.mark.ci
def test_a_load_that_kills_its_process_is_a_crash_with_its_name(inputs, scripted, tmp_path, capfd):
    """coremltools issue 2758: ANECCompile fails, loading goes on, and what comes next is killed."""
    said = "Error=_ANECompiler : ANECCompile() FAILED."
    scripted({"on": "load", "stderr": said, "signal": "SIGKILL",
              "source": "https://github.com/apple/coremltools/issues/2758"})  # fmt: skip
    with pytest.raises(Died, match=r"^load \(cold\) was killed by SIGKILL from outside") as death:
        load.run(PARAMS, inputs("single"), tmp_path)
    assert death.value.status == "crashed"
    assert said in capfd.readouterr().err, "what native code said is in the task's own stderr"


def test_memory_that_apples_compiler_takes_counts(inputs, scripted, tmp_path, monkeypatch):
    """10 GB in ANECompilerService, a process that is not ours (751K: a 16x16 convolution took 11.7 GB)."""
    monkeypatch.setenv(MEMORY_VARIABLE, str(4 << 30))
    scripted(ps(20, 11 << 10, from_call=3), ps(20, 100), {"on": "load", "hang": True})
    with pytest.raises(Died) as death:
        load.run(PARAMS, inputs("single"), tmp_path)
    assert death.value.status == "out_of_memory"
    assert str(death.value).startswith("load (cold) went over the memory limit (0.")
    assert str(death.value).endswith(" GiB, and 10.9 GiB more in Apple's compiler service) and was ended")


@pytest.mark.slow
def test_what_a_step_raises_is_said_once(inputs, scripted, tmp_path):
    scripted({"on": "load", "fail": "Error creating the ML Program model."})
    with pytest.raises(
        StageError, match=r"^load \(cold\): Core ML does not load it: Error creating the ML Program model"
    ):
        load.run(PARAMS, inputs("single"), tmp_path)


def test_a_cache_of_its_own_that_is_refused_is_given_up(monkeypatch, tmp_path):
    def refuse(stage, step, what, env=None, **asked):
        if env:
            raise StageError("no such home")
        return {"load_ms": [1.0]}

    monkeypatch.setattr(_steps, "run_step", refuse)
    found = _steps.run_with_own_cache("load", "load_step", "load", tmp_path)
    assert found == {"load_ms": [1.0], "own_cache": "no such home"}


def test_a_step_that_leaves_nothing_is_told(scripted, monkeypatch):
    scripted()
    monkeypatch.setattr(_steps.sys, "executable", "/bin/false")
    with pytest.raises(Died, match="this step exited with code 1 and left no result: nothing on stderr") as death:
        _steps.run_step("ane_sweep.worker.stages.load", "load_step", "this step")
    assert death.value.status == "failed"
