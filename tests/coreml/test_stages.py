"""Core ML's stages on every kind of program, under the stand-in; nothing here ran on a Mac."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from ane_sweep.coreml_anywhere import native
from ane_sweep.errors import StageError, Unavailable
from ane_sweep.placement.types import Ops
from ane_sweep.worker.programs import trace
from ane_sweep.worker.programs.mlprogram import compile as compiler
from ane_sweep.worker.programs.mlprogram import place as planner
from ane_sweep.worker.programs.mlprogram import steps
from ane_sweep.worker.runtimes import _chain, coreml
from ane_sweep.worker.stages import compile, latency, load, place, score

from .conftest import WEIGHT, X

HWX = Path(__file__).parent.parent / "hwx" / "samples"
PARAMS = {"runtime": "coreml", "compute_units": "cpu_and_ne", "device": "local", "host": "h"}
ONCE = np.maximum(X @ WEIGHT.T, 0)
TWICE = np.maximum(ONCE @ WEIGHT.T, 0)
EXPECTED = {"single": ONCE, "chain": TWICE, "pipeline": TWICE, "functions": ONCE}


@pytest.fixture
def compiled(inputs, tmp_path, scripted):
    """Compiles a kind of program under the script in force; returns what later stages get."""

    def make(kind):
        found = inputs(kind)
        out = tmp_path / f"compiled-{kind}"
        out.mkdir()
        compile.run({"compiler": "coremltools", "host": "h"}, found, out)
        return {**found, "compiled": out}

    return make


def took(figure, scripted_ms):
    """As scripted, and Python's share on whatever machine this is."""
    return scripted_ms <= figure < scripted_ms + 100


@pytest.mark.parametrize("kind", EXPECTED)
def test_predict_of_every_kind(kind, compiled, scripted):
    scripted({"on": "predict", "ms": 2.5, "native_ms": 2.0})
    runtime = coreml.load(PARAMS, compiled(kind))
    made = runtime.predict(runtime.prepare({"x": X.astype(np.float64)}))
    np.testing.assert_allclose(made["y"], EXPECTED[kind], rtol=2e-3, atol=2e-2)
    programs = 2 if kind == "chain" else 1
    assert list(made) == ["y"], "what chunks hand over is no output"
    assert runtime.last_native_ms == pytest.approx(2.0 * programs)
    assert len(runtime.load_ms) == programs and runtime.realised["chunks"] == (
        2 if kind in ("chain", "pipeline") else 1
    )
    assert runtime.realised["loaded_from"] == "compiled" and runtime.realised["compute_units"] == "cpu_and_ne"


@pytest.mark.parametrize("kind", ["single", "chain"])
def test_load_hints_reach_core_ml(kind, compiled, scripted, monkeypatch):
    scripted()
    told = []
    real = native._MLModelProxy

    class Proxy(real):
        def __init__(self, path, units, function_name="", optimization_hints=None, asset=None):
            told.append(dict(optimization_hints or {}))
            super().__init__(path, units, function_name, optimization_hints, asset)

    for module in ("coremltools.models.model", "coremltools.models._compiled_model"):
        monkeypatch.setattr(f"{module}._MLModelProxy", Proxy)
    options = {
        "reshape_frequency": "infrequent",
        "specialization": "fast_prediction",
        "low_precision_accumulation": True,
    }
    found = compiled(kind)
    plain = coreml.load(PARAMS, found)
    hinted = coreml.load({**PARAMS, "options": {**options, "batch": 1}}, found)
    asked = {
        "reshapeFrequency": "Infrequent", "specializationStrategy": "FastPrediction",
        "allowLowPrecisionAccumulationOnGPU": "True",
    }  # fmt: skip
    programs = 2 if kind == "chain" else 1
    assert told == [{}] * programs + [asked] * programs
    assert "hints" not in plain.realised and hinted.realised["hints"] == options
    monkeypatch.setattr("coremltools.models.model._macos_version", lambda: (14, 5))
    with pytest.raises(StageError, match=r"hints are only available on macOS >= 15"):
        coreml.load({**PARAMS, "options": options}, {"program": found["program"]})


def test_a_function_by_name(compiled, scripted):
    scripted()
    found = compiled("functions")
    made = coreml.load({**PARAMS, "function": "twice"}, found).predict({"x": X})
    np.testing.assert_allclose(made["y"], 2 * ONCE, rtol=2e-3, atol=2e-2)
    with pytest.raises(StageError, match="has no function 'thrice'; it has main, twice"):
        coreml.load({**PARAMS, "function": "thrice"}, found)


def test_states_go_on_until_reset(compiled, scripted):
    scripted()
    runtime = coreml.load(PARAMS, compiled("stateful"))
    x = np.array([1, 2, 3], np.float32)
    assert [runtime.predict({"x": x})["sum"][0] for _ in range(3)] == [1, 2, 3]
    runtime.reset()
    assert runtime.predict({"x": x})["sum"][0] == 1


def test_inputs_are_made_fit_before_the_clock(compiled, scripted):
    assert _chain.to_bindable(np.ones(2, np.float16)).dtype == np.float32
    assert _chain.to_bindable(np.ones(2, np.int64)).dtype == np.int32
    assert _chain.to_bindable(np.ones(2, bool)).dtype == np.int32
    kept = np.ones(2, np.float32)
    assert _chain.to_bindable(kept) is kept


def test_latency_shows_pythons_share(compiled, scripted, tmp_path):
    scripted({"on": "predict", "units": "cpu_and_ne", "ms": [20, 5, 4, 3], "native_ms": 2.5}, {"on": "load", "ms": 700})
    policy = {"warmup": 2, "samples": 5, "max_seconds": 60, "idle_s": 0}
    params = {**PARAMS, "policy": policy, "round": 1}
    found = latency.run(params, compiled("single"), tmp_path)
    figures = {entry.name: entry.value for entry in found.metrics}
    assert took(figures["latency_first_ms"], 20) and took(figures["latency_median_ms"], 3)
    assert figures["latency_native_median_ms"] == pytest.approx(2.5)
    assert figures["load_ms"] >= 700


def test_score_of_a_stateful_program_starts_each_input_anew(compiled, scripted, tmp_path):
    scripted()
    found = compiled("stateful")
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    np.savez(found["reference"] / "inputs.npz", x=x, valid=np.ones((2, 3), bool))
    np.savez(found["reference"] / "outputs.npz", sum=x)
    made = score.run({**PARAMS, "model": {"task": "encoder"}}, found, tmp_path)
    assert {entry.name: entry.value for entry in made.metrics}["psnr_db"] == 200


def test_compile_says_what_the_compiler_says(inputs, scripted, tmp_path):
    """Text: coremltools issue 750."""
    said = (
        'Error compiling model: "Error reading protobuf spec. validator error: The .mlmodel supplied is of version 5, '
        'intended for a newer version of Xcode. This version of Xcode supports model version 4 or earlier.".'
    )
    scripted({"on": "compile", "fail": said, "source": "https://github.com/apple/coremltools/issues/750"})
    with pytest.raises(StageError) as error:
        compile.run({"compiler": "coremltools"}, inputs("single"), tmp_path / "out")
    assert str(error.value) == f"model.mlpackage does not compile: {said}"


def test_compile_through_xcode(inputs, scripted, tmp_path):
    argv = ["xcrun", "coremlcompiler", "compile"]
    out = tmp_path / "out"
    out.mkdir()
    missing = 'xcrun: error: unable to find utility "coremlcompiler", not a developer tool or in PATH'
    scripted({"on": "command", "argv": argv, "stderr": missing, "code": 72,
              "source": "https://github.com/apple/ml-stable-diffusion/issues/17"})  # fmt: skip
    with pytest.raises(StageError, match="needs Xcode itself, not only its command line tools"):
        compile.run({"compiler": "coremlc"}, inputs("single"), out)
    said = "coremlc: Error: Error reading protobuf spec. validator error: unable to deserialize object\nsee above"
    scripted({"on": "command", "argv": argv, "stderr": said, "code": 1,
              "source": "https://github.com/huggingface/swift-coreml-transformers/issues/18"})  # fmt: skip
    with pytest.raises(StageError) as error:
        compile.run({"compiler": "coremlc"}, inputs("single"), out)
    assert str(error.value) == f"model.mlpackage does not compile: {said.splitlines()[0]}"
    scripted({"on": "command", "argv": argv})
    with pytest.raises(StageError, match=r"left no model\.mlmodelc"):
        compile.run({"compiler": "coremlc"}, inputs("single"), out)
    scripted({"on": "command", "argv": argv, "compiles": True})
    made = compile.run({"compiler": "coremlc"}, inputs("single"), out)
    assert (out / "model.mlmodelc").is_dir() and made.realised["compiler"] == "coremlc"


def test_the_compilers_version_is_read_from_what_it_made(tmp_path):
    """The head of a real compiled program: see recorded/README.md."""
    text = (Path(__file__).parent / "recorded" / "analytics_embedding.mil").read_text()
    (tmp_path / "model.mil").write_text(text)
    assert compiler.read_version(tmp_path) == "3600.25.2"
    (tmp_path / "model.mil").write_text("program(1.0)\n{}")
    assert compiler.read_version(tmp_path) is None and compiler.read_version(tmp_path / "none") is None


def test_what_does_not_load_is_one_sentence(compiled, scripted):
    scripted({"on": "load", "fail": "Error creating the ML Program model."})
    with pytest.raises(StageError, match=r"^Core ML does not load it: Error creating the ML Program model\.$"):
        coreml.load(PARAMS, compiled("single"))


def planned(found, tmp_path, units="cpu_and_ne"):
    """A plan's record entry, table and trace, without a process of its own for each step."""
    params = {**PARAMS, "compute_units": units}
    rows = []
    for program, path in zip(sorted(found["program"].glob("*.mlpackage")), sorted(found["compiled"].iterdir())):
        for function, target in planner._list_functions(program, path):
            home = tmp_path / f"home-{len(rows)}"
            asked = {"program": str(target), "chunk": program.stem, "function": function, "home": str(home)}
            asked["keep"] = str(tmp_path / "kept")
            os.environ[steps.HOME_VARIABLE] = str(home)
            try:
                rows += planner.plan_step({**asked, "params": params})["rows"]
            finally:
                del os.environ[steps.HOME_VARIABLE]
    return rows


def test_place_of_every_kind(compiled, scripted, tmp_path):
    scripted({"on": "plan", "op": "relu", "preferred": "cpu", "supported": ["cpu"], "cost": 0.25},
             {"on": "plan", "op": "linear", "preferred": "ane", "supported": ["cpu", "ane"], "cost": 0.75})  # fmt: skip
    rows = planned(compiled("single"), tmp_path)
    assert [(row["op_type"], row["name"], row["preferred"]) for row in rows] == [
        ("linear", "y_projected", "ane"),
        ("relu", "y", "cpu"),
    ], "constants run nowhere"
    assert rows[0]["supported"] == ["cpu", "ane"]
    chain = planned(compiled("chain"), tmp_path)
    assert [row["chunk"] for row in chain] == ["chunk_01"] * 2 + ["chunk_02"] * 2
    pipeline = planned(compiled("pipeline"), tmp_path)
    assert [row["preferred"] for row in pipeline] == ["ane", "cpu"] * 2 and pipeline[0]["part"] != pipeline[2]["part"]
    functions = planned(compiled("functions"), tmp_path)
    assert [row["function"] for row in functions] == ["main", "main", "twice", "twice"]
    summary = place.summarise(chain, "m4", "cpu_and_ne")
    assert summary.ops == Ops(cpu=2, gpu=0, ane=2, total=4) and summary.cost_share.ane == 0.75
    assert [part.chunk for part in summary.chunks] == ["chunk_01", "chunk_02"] and summary.transitions == 2
    assert summary.reasons[0].reason == "not among the supported units"


def test_the_compilers_reasons_stand_in_the_plan(compiled, scripted, tmp_path):
    """Constructed, in the form of recorded/analytics_embedding.mil; Core ML leaves it in the cache of the home folder."""
    (tmp_path / "analytics.mil").write_text(
        'tensor<fp16, [4, 8]> y_4D454D5F4F5054 = relu(x = a)[BackendSupport = list<string, 5>(["unsupported", "bnns"]), '
        'EstimatedRuntime = dict<string, fp64>({{"bnns", 0.25}}), SelectedBackend = string("bnns"), ValidationMessage = '
        'dict<string, string>({{"ane", "Unsupported tensor data type: int32"}}), milId = uint64(1)];\n'
    )
    scripted({"on": "plan", "op": "relu", "preferred": "cpu", "supported": ["cpu"]},
             {"on": "plan", "analytics": str(tmp_path / "analytics.mil")})  # fmt: skip
    linear, relu = planned(compiled("single"), tmp_path)
    assert "backend" not in linear
    assert (relu["backend"], relu["estimated_ms"]) == ("bnns", {"bnns": 0.25})
    (reason,) = (entry for entry in place.group_reasons([linear, relu]) if entry.source == "analytics.mil")
    assert (reason.reason, reason.names) == ("Unsupported tensor data type: int32", ["y"])


@pytest.mark.slow
@pytest.mark.ci
def test_the_program_that_core_ml_made_is_kept_with_its_tasks_beside_the_ops(compiled, scripted, tmp_path, monkeypatch):
    """Scripted: an M1's addition and a list of layers lie in the cache after planning."""
    scripted({"on": "plan", "op": "linear", "preferred": "ane", "supported": ["cpu", "ane"]},
             {"on": "plan", "leaves": [str(HWX / "sum.hwx"), str(HWX / "net.plist")]})  # fmt: skip
    inputs = compiled("single")
    home = tmp_path / "home"

    def at_once(stage, step, what, home_of_it, **asked):
        monkeypatch.setenv(steps.HOME_VARIABLE, str(home))
        return planner.plan_step({**asked, "home": str(home)})

    monkeypatch.setattr(load, "run_with_own_cache", at_once)
    out = tmp_path / "out"
    out.mkdir()
    found = place.run({**PARAMS, "compute_units": "cpu_and_ne", "chip": "m1"}, inputs, out)
    held = found.realised["ane_compiled"]
    assert sorted(path.name for path in (out / "compiled").iterdir()) == held["files"]
    assert (held["tasks"], held["targets"], held["left"]) == (1, ["H13"], [])
    assert held["planned"] == {"ane_ops": 1, "tasks": 1, "ops_per_task": 1.0}
    told = held["predicted"]
    assert told["tasks"] == 1 and told["ops_per_task"] == told["ane_ops"] and "rows" not in told
    assert told["predicted_tasks"] == 2 and set(told["by_op_type"]) == {"linear", "relu"}, (
        "of this program, not of the sample"
    )
    assert {metric.name: metric.kind for metric in found.metrics}["ane_tasks"] == "planned"


def test_a_plan_that_names_no_device_leaves_the_cell_ok(compiled, scripted, tmp_path):
    scripted(
        {
            "on": "plan",
            "plan": "none",
            "source": "coremltools 9.0, compute_plan.py: None where the usage could not be determined",
        }
    )
    rows = planned(compiled("single"), tmp_path)
    assert {row["preferred"] for row in rows} == {None}
    with pytest.raises(Unavailable, match=r"names no device for any op of this program; .* try target=iOS17 or newer"):
        place.summarise(rows, "m4", "cpu_and_ne")


def test_the_trace_is_one_that_viewers_take(compiled, scripted, tmp_path):
    scripted()
    rows = planned(compiled("chain"), tmp_path)
    rows[0] |= {"backend": "ane", "estimated_ms": {"ane": 0.014}}
    made = json.loads(json.dumps(trace.build_events(rows, place.summarise(rows, "m4", "all"))))
    drawn = [event for event in made["traceEvents"] if event["ph"] == "X"]
    assert len(drawn) == len(rows) and drawn[0]["dur"] == 14 and drawn[0]["args"]["length"].startswith("estimated")
    for event in made["traceEvents"]:
        assert event["ph"] in ("X", "M") and isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["ph"] == "M" or (event["ts"] >= 0 and event["dur"] >= 0 and event["name"] and event["cat"])
    ends = [event["ts"] + event["dur"] for event in drawn]
    assert all(later["ts"] >= end - 0.01 for end, later in zip(ends, drawn[1:])), "one after the other"
    names = {event["args"]["name"] for event in made["traceEvents"] if event["name"] == "process_name"}
    assert names == {"chunk_01 main", "chunk_02 main"} and made["otherData"]["kind"] == "planned"
