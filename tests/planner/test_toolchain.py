"""The axis `toolchain`: which runtime it means, what it refuses, and which tasks it shares."""

import pytest

from ane_sweep.machine import coreai
from ane_sweep.planner import checks, config

from .test_plan import planned

TINY = ("model=tiny-gpt2", "weights=random")


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setattr(coreai, "find_missing", lambda modules=(): None)


def only(*words):
    made = planned(*TINY, "toolchain=coreai", *words)
    return next(iter(made.refused.values()), None)


def test_auto_is_the_runtime_of_the_toolchain():
    (ours,), (theirs,) = (config.load([*TINY, f"toolchain={name}"]).cells for name in ("coreml", "coreai"))
    assert checks.resolved_runtime(theirs) == "coreai" != checks.resolved_runtime(ours)


def test_its_tasks_are_those_that_an_asset_has():
    made = planned("-m", *TINY, "toolchain=coreml,coreai")
    assert not made.refused
    ours, theirs = ([made.tasks[key] for key in keys] for keys in made.chains.values())
    assert [task.stage for task in theirs] == ["reference", "convert", "place", "score", "latency"]
    shared = {task.key for task in ours} & {task.key for task in theirs}
    assert {task.stage for task in theirs if task.key in shared} == {"reference"}
    convert = next(task for task in theirs if task.stage == "convert")
    assert convert.params["program"] == "coreai" and set(convert.params["tools"]) == {"coreai-core", "coreai-torch"}
    assert "toolchain=coreai" in convert.label


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runtime=reference"], "toolchain=coreai with runtime=reference, which executes nothing that it makes; use runtime=auto, or"),
        (["runtime=torch_eager"], "which executes nothing that it makes"),
        (["chunks=2"], "chunks=2: Core AI's asset has no stage chunk"),
        (["precision=p4", "compressor=ane_sweep"], "precision=p4 compressor=ane_sweep: it compresses Core ML's programs"),
        (["precision=p4_uniform"], "precision=p4_uniform: coreai-opt compresses torch modules, and this recipe spaces its tables evenly"),
        (["precision=p3"], "precision=p3: coreai-torch 0.4.3 writes tables of 1, 2, 4, 6 and 8 bits"),
        (["precision=mixed4"], "this recipe weighs the ops of a program"),
        (["precision=w8a8"], "this recipe calibrates the ops of a program"),
        (["precision=sparse50_int8"], "this recipe joins sparsity with another compression"),
        (["precision=sparse_2_4"], "this recipe keeps n of m inputs"),
        (["precision=p4", "+precision.weights.skip=[x]"], "this recipe names weights of a program (skip, overrides)"),
        (["rewrite=ane"], "rewrite=ane: Core AI's asset has no stage rewrite"),
        (["cache=stateful"], "cache=stateful: Core AI's asset is made without it; cache=none"),
        (["inputs=fp16"], "inputs=fp16: Core AI's asset is made without it; inputs=int32"),
        (["norm=fp32"], "norm=fp32: Core AI's asset is made without it; norm=fp16"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused_with_the_reason(words, said):
    assert said in (only(*words) or "")


@pytest.mark.parametrize("precision", ["fp8", "fp4"])
@pytest.mark.parametrize("compressor", ["auto", "coreai_opt"])
def test_narrow_floats_are_core_ais_alone(precision, compressor):
    made = planned("-m", *TINY, "toolchain=coreml,coreai", f"precision={precision}", f"compressor={compressor}")
    assert list(made.refused.values()) == [
        f"precision={precision}: Core ML's programs hold no weights of narrow floats; toolchain=coreai"
    ]


def test_a_conversion_that_holds_every_weight_is_planned_with_their_memory():
    made = planned("-m", "model=gpt2", "weights=random", "precision=int8_channel", "compressor=ane_sweep,coreai_opt")
    ours, theirs = (
        next(made.tasks[key] for key in keys if made.tasks[key].stage == "convert") for keys in made.chains.values()
    )
    assert theirs.memory_bytes > 1_854_947_328 > ours.memory_bytes, "the peak of gpt2 by coreai-opt, as measured"


def test_the_codes_of_torch_are_part_of_the_conversion_and_ours_are_a_task_of_their_own():
    made = planned("-m", *TINY, "precision=fp16,p4", "compressor=auto,ane_sweep,coreai_opt")
    plain, _, _, ours, also, theirs = ([made.tasks[key] for key in keys] for keys in made.chains.values())
    assert len({tuple(keys) for keys in made.chains.values()}) == 3, (
        "without a recipe, and for auto, it changes nothing"
    )
    assert [task.key for task in ours] == [task.key for task in also]
    assert "compress" in {task.stage for task in ours} and "compress" not in {task.stage for task in theirs}
    made_by = next(task for task in theirs if task.stage == "convert").params
    assert set(made_by["compressor"]) == {"coreai-opt"} and made_by["recipe"]["bits"] == 4
    assert "recipe" not in next(task for task in plain if task.stage == "convert").params


def test_the_runtime_alone_does_not_choose_the_toolchain():
    made = planned(*TINY, "runtime=coreai")
    assert "toolchain=coreml with runtime=coreai" in next(iter(made.refused.values()))


def test_without_the_packages_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(
        coreai, "find_missing", lambda: "needs coreai, which this install leaves out: pip install 'ane-sweep[coreai]'"
    )
    assert only() == "runtime=coreai needs coreai, which this install leaves out: pip install 'ane-sweep[coreai]'"


def test_units_are_not_applicable_and_shares_its_work():
    made = planned("-m", *TINY, "toolchain=coreai", "compute_units=all,cpu_only")
    assert any("compute_units not applicable: runtime=coreai" in note for note in made.notes)
