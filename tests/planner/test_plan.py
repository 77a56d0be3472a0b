"""Cells that need the same thing share one task; what cannot work is refused with its reason, before anything runs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import ONCE

from ane_sweep.bridge.axes import TARGETS
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.runtimes import RUNTIMES, cannot
from ane_sweep.bridge.task import Task
from ane_sweep.errors import ConfigError
from ane_sweep.machine import nvidia
from ane_sweep.planner import checkpoints, config, overview, plan
from ane_sweep.store.past import Past

TOOLS = {"torch": "1", "coremltools": "2", "transformers": "3", "numpy": "4"}


def planned(*args: str, host: str = "host", toolchain: dict | None = None, history: dict | None = None) -> Plan:
    request = config.load([ONCE, *args])
    sources = {
        cell.key: checkpoints.resolve(cell.model_options, "random", seed=cell.seed, allow_pickle=False, digests=None)
        for cell in request.cells
    }
    return plan.make_plan(
        request.cells,
        request.axes,
        sources,
        host=host,
        toolchain=toolchain or TOOLS,
        history=history,
        notes=request.notes,
    )


def counts(made: Plan) -> dict[str, int]:
    stages = [task.stage for task in made.tasks.values()]
    return {stage: stages.count(stage) for stage in dict.fromkeys(stages)}


def test_the_issues_24_cells_are_15_shared_tasks_of_work():
    made = planned(
        "-m", "model=tiny-gpt2", "weights=random", "variant=original,split_einsum", "chunks=1,2,4",
        "compute_units=all,cpu_only,cpu_and_gpu,cpu_and_ne", "runtime=reference",
    )  # fmt: skip
    assert len(made.cells) == 24
    assert counts(made).items() >= {
        "reference": 1, "convert": 2, "predict": 24, "compile": 6, "place": 24, "score": 2, "latency": 6, "chunk": 4,
    }.items()  # fmt: skip
    assert not counts(made).keys() & {
        "fetch",
        "adopt",
        "calibrate",
        "compress",
        "pieces",
        "load",
        "evaluate",
        "evidence",
    }
    assert all(task.unavailable for task in made.tasks.values() if task.stage in ("compile", "place"))


def test_units_that_a_runtime_does_not_know_are_said_to_be_shared():
    made = planned("-m", "model=tiny-gpt2", "weights=random", "runtime=reference", "compute_units=all,cpu_only")
    assert (
        "compute_units not applicable: runtime=reference does not know it, so cells that differ only in it share their work"
        in made.notes
    )


def test_torch_eager_needs_no_conversion_and_shares_across_chunks_precision_target():
    made = planned(
        "-m",
        "model=tiny-gpt2",
        "weights=random",
        "runtime=torch_eager",
        "chunks=1,2",
        "precision=fp16,fp32",
        "target=iOS16,iOS18",
    )
    assert counts(made).items() >= {"reference": 1, "score": 1, "latency": 1}.items()
    assert not counts(made).keys() & {"convert", "compress", "chunk", "predict", "compile", "place"}


def test_options_of_the_conversion_are_nothing_to_torch_eager():
    made = planned("-m", "model=tiny-gpt2", "weights=random", "runtime=torch_eager", "norm=fp16,fp32", "head=last,all")
    assert counts(made).items() >= {"reference": 2, "score": 2, "latency": 2}.items()
    assert not counts(made).keys() & {"convert", "compress", "chunk", "predict", "compile", "place"}


def test_macos_and_ios_names_of_one_opset_share_a_conversion():
    made = planned("-m", "model=tiny-gpt2", "weights=random", "runtime=reference", "target=iOS18,macOS15")
    assert counts(made)["convert"] == 1


@pytest.mark.parametrize(
    ("axis", "changes"),
    [
        ("seq_len=32,64", {"reference": 2, "convert": 2, "latency": 2, "score": 2}),
        ("precision=fp16,fp32", {"reference": 1, "convert": 2, "latency": 2, "score": 2}),
        ("variant=original,split_einsum", {"reference": 1, "convert": 2, "latency": 2, "score": 2}),
        ("chunks=1,2", {"reference": 1, "convert": 1, "chunk": 1, "latency": 2, "score": 1}),
        ("latency.samples=5,10", {"reference": 1, "convert": 1, "latency": 2, "score": 1}),
        ("limits.convert.timeout_s=5,10", {"reference": 1, "convert": 1, "latency": 1, "score": 1}),
        ("seed=0,1", {"reference": 2, "convert": 2, "latency": 2, "score": 2}),
        ("model.texts.count=1,2", {"reference": 2, "convert": 1, "latency": 2, "score": 2}),
        ("head=all,last", {"reference": 2, "convert": 2, "latency": 2, "score": 2}),
        ("mask=causal_const,causal_input,qk_and_k", {"reference": 3, "convert": 3, "latency": 3, "score": 3}),
        ("embeddings=in,out", {"reference": 2, "convert": 2, "latency": 2, "score": 2}),
        ("norm=fp16,fp32", {"reference": 1, "convert": 2, "latency": 2, "score": 2}),
        ("pad_last_axis=0,64", {"reference": 1, "convert": 2, "latency": 2, "score": 2}),
        ("numerics=auto,fp16,fp32,ane", {"reference": 1, "convert": 1, "predict": 1, "latency": 3, "score": 3}),
    ],
)
def test_what_enters_each_key(axis, changes):
    made = planned("-m", "model=tiny-gpt2", "weights=random", "runtime=reference", axis)
    got = counts(made)
    assert {stage: got.get(stage) for stage in changes} == changes


def test_a_check_runs_the_program_once_for_all_cuts_that_are_proven_to_be_it():
    words = ["-m", "model=tiny-gpt2", "weights=random", "chunks=1,2,4", "latency.repeats=auto"]
    made = planned(*words)
    assert counts(made).items() >= {"chunk": 2, "score": 1, "latency": 1}.items()
    assert find_task(made, "latency").params["check"] and "program" in find_task(made, "latency").inputs
    for word in ("pipeline=coreml", "numerics=fp32"):  # there nothing is proven, or the chain computes something else
        assert counts(planned(*words, word))["latency"] == 3
    assert counts(planned(*words, "latency.repeats=1"))["latency"] == 3, "a time that is asked for is each cut's own"


@pytest.mark.parametrize(
    "words",
    [
        ["pipeline=coreml"],
        ["pipeline=bisect"],
        ["pipeline=manual,coreml"],
        ["pieces=1,2"],
        ["numerics=fp32"],
        ["precision=fp32"],
    ],
)
def test_what_was_not_proven_to_be_the_program_is_scored_as_it_is(words):
    made = planned("-m", "model=tiny-gpt2", "weights=random", "runtime=reference", "chunks=2", *words)
    assert counts(made)["score"] == len(made.cells)


def test_cells_that_share_a_task_get_the_widest_limit():
    made = planned("-m", "model=tiny-gpt2", "weights=random", "runtime=reference", "limits.convert.timeout_s=5,900,10")
    assert [task.limits["timeout_s"] for task in made.tasks.values() if task.stage == "convert"] == [900]


def test_keys_change_with_tools_host_and_weights_but_not_with_time():
    args = ["model=tiny-gpt2", "weights=random", "runtime=reference"]

    def key(made, stage):
        return next(task.key for task in made.tasks.values() if task.stage == stage)

    base = planned(*args)
    assert base.key == planned(*args).key
    newer = planned(*args, toolchain={**TOOLS, "torch": "9"})
    assert key(newer, "convert") != key(base, "convert")
    moved = planned(*args, host="another")
    assert key(moved, "convert") == key(base, "convert") and key(moved, "latency") != key(base, "latency")


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (
            ["model=gpt2", "chunks=27"],
            "chunks=27 is more than gpt2 can be cut into: it has 25 cut points (12 layers), so chunks=1..26",
        ),
        (["model=gpt2", "seq_len=2048"], "seq_len=2048 is beyond the 1024 positions of gpt2"),
        (
            ["model=tiny-bert", "head=last"],
            "head=last is for decoders; tiny-bert is of task encoder, which has no causal mask and head",
        ),
        (["model=gpt2", "+precision.x=1"], None),
    ],
)
def test_impossible_combinations_are_refused_with_the_reason(args, reason):
    if reason is None:
        with pytest.raises(ConfigError):
            planned(*args, "weights=random")
        return
    made = planned(*args, "weights=random")
    assert list(made.refused.values()) == [reason] and not made.tasks


def test_effects_of_the_neural_engine_enter_the_keys_of_figures_alone():
    args = ["-m", "model=tiny-gpt2", "weights=random", "runtime=reference", "numerics=ane"]
    made = planned(*args, "effects=null,[tables],[flush,tables],[tables,flush]")
    assert {stage: counts(made)[stage] for stage in ("convert", "predict", "latency")} == {
        "convert": 1,
        "predict": 1,
        "latency": 3,
    }
    told = [task.params["effects"] for task in made.tasks.values() if task.stage == "score"]
    assert told == [
        ["accumulator", "products", "operands", "softplus_cliff", "logsumexp_cliff", "tables"],
        ["tables"],
        ["tables", "flush"],
    ]
    eager = planned("model=tiny-gpt2", "weights=random", "runtime=torch_eager")
    assert all("numerics" not in task.params for task in eager.tasks.values())
    with pytest.raises(ConfigError, match=r"effects: unknown effect 'magic' of numerics=ane; known: accumulator"):
        planned("model=tiny-gpt2", "weights=random", "numerics=ane", "effects=[magic]")


def test_a_gpu_changes_the_keys_of_figures_alone_and_is_refused_where_there_is_none(monkeypatch):
    args = ["-m", "model=tiny-gpt2", "weights=random", "runtime=reference,reference_cuda"]
    monkeypatch.setattr(nvidia, "no_cuda", lambda: "needs an NVIDIA GPU, and nvidia-smi lists none")
    assert set(planned(*args).refused.values()) == {
        "runtime=reference_cuda needs an NVIDIA GPU, and nvidia-smi lists none; runtime=reference runs anywhere"
    }
    keys = []
    for name in ("NVIDIA A", "NVIDIA B"):
        monkeypatch.setattr(nvidia, "no_cuda", lambda: None)
        monkeypatch.setattr(nvidia, "gpus", lambda name=name: [name])
        made = planned(*args)
        keys.append({task.stage: key for key, task in made.tasks.items() if "gpus" in task.params})
    assert counts(made)["convert"] == 1 and set(keys[0]) == {"score", "latency"}
    assert all(keys[0][stage] != keys[1][stage] for stage in keys[0])
    assert {stage: counts(made)[stage] for stage in keys[0]} == {"score": 2, "latency": 2}


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["runtime=torch_eager", "numerics=ane"], "numerics=ane: runtime=torch_eager computes as it does"),
        (["effects=[tables]"], "effects=tables mean something with numerics=ane alone, not with auto"),
        (["precision=fp32", "numerics=ane"], "numerics=ane is about fp16 values, and precision=fp32 has none"),
    ],
)
def test_numerics_that_would_change_nothing_are_refused(args, reason):
    made = planned("model=tiny-gpt2", "weights=random", *args)
    (said,) = made.refused.values()
    assert said.startswith(reason) and not made.tasks


def test_a_target_too_old_for_the_precision_is_refused(tmp_path):
    (tmp_path / "precision").mkdir()
    (tmp_path / "precision" / "new.yaml").write_text(
        "name: new\ncompute: fp16\nfp32_ops: []\nweights: null\nmin_target: iOS17\nmin_psnr_db: null\n"
    )
    made = planned(
        "--config-dir",
        str(tmp_path),
        "-m",
        "model=tiny-gpt2",
        "weights=random",
        "precision=new",
        "target=iOS16,macOS14",
    )
    assert list(made.refused.values()) == ["precision=new needs target=iOS17 or newer, not iOS16"]
    assert len(made.chains) == 1


def test_core_ml_off_macos_is_refused():
    if cannot("coreml") is None:
        pytest.skip("this host can run Core ML")
    made = planned("model=tiny-gpt2", "weights=random", "runtime=coreml")
    assert "needs macOS" in next(iter(made.refused.values()))


def test_unknown_runtime_lists_the_known_ones():
    with pytest.raises(ConfigError, match=rf"runtime=tpu: unknown; choices: auto, {', '.join(RUNTIMES)}"):
        planned("model=tiny-gpt2", "weights=random", "runtime=tpu")


def test_fp32_on_the_neural_engine_is_legal_but_pointless():
    made = planned("model=tiny-gpt2", "weights=random", "precision=fp32", "compute_units=cpu_and_ne")
    assert not made.refused and any("pointless (1 cells)" in note for note in made.notes)


def test_targets_are_those_that_coremltools_knows():
    import importlib.util
    from pathlib import Path

    folder = Path(importlib.util.find_spec("coremltools").submodule_search_locations[0])
    text = (folder / "converters" / "mil" / "_deployment_compatibility.py").read_text()
    names = [line.split("=")[0].strip() for line in text.splitlines() if line.strip().startswith("iOS") and "=" in line]
    assert tuple(name for name in names if name not in ("iOS13", "iOS14")) == TARGETS


@pytest.mark.slow
@settings(max_examples=10)
@given(st.permutations(["variant=original,split_einsum", "chunks=1,2,3", "precision=fp16,fp32", "seq_len=16,32"]))
def test_the_order_of_the_axes_changes_the_order_of_the_cells_only(axes):
    made = planned("-m", "model=tiny-gpt2", "weights=random", "runtime=reference", *axes)
    assert len(made.cells) == 24 and counts(made)["convert"] == 8 and counts(made)["chunk"] == 16
    order = list(made.tasks)
    assert all(
        order.index(upstream) < order.index(task.key)
        for task in made.tasks.values()
        for upstream in task.inputs.values()
    )


def test_memory_estimates_are_corrected_by_past_peaks():
    args = ["model=gpt2-xl", "weights=random", "runtime=reference"]
    work = 4 * 1557611200
    seen = {"convert": [Past("convert", work, 80.0, 11 << 30)]}
    convert = next(t for t in planned(*args, history=seen).tasks.values() if t.stage == "convert")
    assert convert.memory_bytes == 11 << 30


def test_recorded_durations_of_this_host_scale_the_rule():
    args = ["model=gpt2-xl", "weights=random", "runtime=reference"]
    small, convert = (find_task(planned(*one), "convert") for one in (["model=gpt2", *args[1:]], args))
    assert convert.seconds is None and 2 * small.rule_s < convert.rule_s

    def scaled(stage: str, ratio: float, sort: str = convert.sort, rule_s: float = small.rule_s) -> Past:
        return Past(stage, small.work, ratio * rule_s, None, sort, rule_s)

    def seconds(*past: Past) -> float | None:
        history = {stage: [one for one in past if one.stage == stage] for stage in ("convert", "score")}
        return find_task(planned(*args, history=history), "convert").seconds

    assert seconds(scaled("convert", 0.5)) == pytest.approx(0.5 * convert.rule_s), "a smaller model's record counts"
    assert seconds(scaled("convert", 0.5), scaled("score", 9.0)) == pytest.approx(0.5 * convert.rule_s)
    assert seconds(scaled("score", 3.0)) == pytest.approx(3 * convert.rule_s), "without one of this stage, any stage's"
    assert seconds(scaled("convert", 0.5, sort="another host"), Past("convert", small.work, 9.0, None)) is None
    near = [scaled("convert", 2.0, rule_s=convert.rule_s)] * 9
    assert seconds(*[scaled("convert", 0.5)] * 9, *near) == pytest.approx(2 * convert.rule_s), "the nearest count"


def test_two_grown_conversions_of_gpt2_xl_fit_side_by_side_and_two_with_a_cache_fit_a_larger_host_alone():
    args = ("-m", "model=gpt2-xl", "weights=random", "runtime=reference", "variant=original,split_einsum")
    cached, grown = (
        [task.memory_bytes for task in planned(*args, *more).tasks.values() if task.stage == "convert"]
        for more in (["cache=stateful", "target=iOS18"], [])
    )
    assert len(cached) == len(grown) == 2
    assert max(cached) < 0.85 * (16 << 30) < sum(cached) and sum(grown) < 8 << 30


def test_repeats_are_processes_that_cells_with_fewer_repeats_share():
    made = planned("-m", "model=tiny-gpt2", "weights=random", "runtime=reference", "latency.repeats=2,3")
    assert counts(made)["latency"] == 3 and counts(made)["score"] == 1
    timings = [task for task in made.tasks.values() if task.stage == "latency"]
    assert sorted(task.round for task in timings) == [1, 2, 3] and all(task.alone for task in timings)
    fewer, more = (made.chains[cell.key] for cell in made.cells)
    assert set(fewer) < set(more)


def test_the_plan_says_which_timings_depend_on_how_long_the_first_one_takes():
    made = planned("-m", "model=tiny-gpt2", "weights=random", "runtime=reference", "chunks=1,2", "latency.repeats=auto")
    assert (
        "8 timings          for 2 cells; 6 of them only where the first one takes up to 30 s (latency.repeats=auto)"
        in overview.describe(made, lambda task: False)
    )


def find_task(made: Plan, stage: str) -> Task:
    return next(task for task in made.tasks.values() if task.stage == stage)


def timings(made: Plan) -> dict[int, Task]:
    """Round -> the timing of it, of plans with one program."""
    return {task.round: task for task in made.tasks.values() if task.stage == "latency"}


def test_auto_plans_four_processes_of_which_three_depend_on_the_first():
    made = planned("model=tiny-gpt2", "weights=random", "runtime=reference", "latency.repeats=auto")
    first, *further = timings(made).values()
    assert first.more_of == "" and [task.more_of for task in further] == [first.key] * 3
    explicit = timings(planned("model=tiny-gpt2", "weights=random", "runtime=reference", "latency.repeats=4"))
    assert [task.key for task in explicit.values()] == [first.key, *(task.key for task in further)]
    assert not any(task.more_of for task in explicit.values())


@pytest.mark.parametrize("order", ["auto,2", "2,auto"])
def test_a_timing_that_one_cell_asks_for_outright_is_taken_whatever_another_one_leaves_open(order):
    made = planned("-m", "model=tiny-gpt2", "weights=random", "runtime=reference", f"latency.repeats={order}")
    assert [(number, bool(task.more_of)) for number, task in sorted(timings(made).items())] == [
        (1, False),
        (2, False),
        (3, True),
        (4, True),
    ]


@pytest.mark.parametrize(("took", "expected"), [(29.0, [29.0] * 4), (31.0, [31.0, 0.0, 0.0, 0.0])])
def test_a_program_known_to_be_long_is_expected_to_be_timed_once(took, expected):
    args = ["-m", "model=tiny-gpt2", "weights=random", "runtime=reference"]
    first = timings(planned(*args))[1]
    seen = {"latency": [Past("latency", first.work, took, 1, first.sort, first.rule_s)]}
    assert [t.seconds for t in timings(planned(*args, "latency.repeats=auto", history=seen)).values()] == expected
    both = timings(planned(*args, "latency.repeats=auto,2", history=seen))
    assert [both[number].seconds for number in (1, 2)] == [took, took]


def test_the_throughput_preset_is_the_notebooks_run_beside_pytorch():
    """experiments-coreml-ane-distilbert: 1,821 sentences; off a Mac its GPU is refused, the rest runs."""
    made = planned("-m", "+sweep=throughput_sst2", "weights=random")
    runs = [task for task in made.tasks.values() if task.stage == "throughput"]
    assert {task.params["throughput"] for task in runs} == {1821} and all(task.alone for task in runs)
    assert {task.params["runtime"] for task in runs} == {"torch_eager", "reference"} and len(runs) == 4
    assert set(made.refused.values()) == {
        "runtime=torch_mps needs a Mac with Apple silicon; runtime=reference runs anywhere"
    }


CUT = ["-m", "model=tiny-gpt2", "weights=random", "runtime=reference"]


@pytest.mark.parametrize(
    ("axes", "chunkings"),
    [
        (["chunks=2", "chunk_by=bytes,layers,time"], 3),
        (["chunks=3", "own_chunks=none,embeddings,head,both"], 4),
        (["chunks=2", "pipeline=manual,coreml,bisect"], 3),
        (["chunks=2", "limits_for=m1,a17_pro"], 1),
        (["chunks=2", "chunk_by=time", "limits_for=m1,a17_pro"], 2),
        (["chunks=auto", "limits_for=m1,a17_pro,a14"], 3),
        (["chunks=auto", "limits_for=m1,m1_pro"], 1),
        (["chunks=1", "chunk_by=bytes,layers", "pipeline=manual,coreml"], 0),
        (["chunks=2", "copies=1,2", "copies_order=forward,reverse"], 1),
    ],
)
def test_what_enters_the_key_of_a_chunking(axes, chunkings):
    made = planned(*CUT, *axes)
    assert counts(made).get("chunk", 0) == chunkings and not made.refused
    assert counts(made)["convert"] == 1


def test_copies_are_timed_apart_and_nothing_else_is():
    made = planned(*CUT, "copies=1,3", "copies_kind=identical,different", "copies_order=forward,reverse")
    assert counts(made)["latency"] == 1 + 4 and counts(made)["score"] == 1
    sized = planned(*CUT, "copies=1,2", "copies_sizes=null,[1],[0.5,1]", "chunks=1,2")
    assert counts(sized)["latency"] == 2 * 2 + 2 and len(sized.refused) == 2 * 4 - 2
    eager = planned(
        "-m", "model=tiny-gpt2", "weights=random", "runtime=torch_eager", "copies=1,2", "chunk_by=bytes,time"
    )
    assert len(eager.refused) == 2 and counts(eager)["latency"] == 1


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["chunks=4", "pipeline=bisect"], "cuts in two and chunks=4; use chunks=2, or pipeline=manual"),
        (["chunks=auto", "pipeline=bisect"], "cuts in two and chunks=auto"),
        (["chunks=2", "pipeline=bisect", "chunk_by=time"], "knows neither own_chunks nor chunk_by"),
        (["chunks=2", "own_chunks=both"], "those are among the chunks, so chunks=3 or more, or auto"),
        (["chunks=1", "own_chunks=head"], "so chunks=2 or more, or auto"),
        (["chunks=2", "own_chunks=embeddings", "embeddings=out"], "looks up no embeddings"),
        (["model=tiny-bert", "chunks=2", "own_chunks=head"], "has no vocabulary head or classifier"),
        (["model=probe-tiny", "chunks=2", "own_chunks=embeddings"], "looks up no embeddings"),
        (["model=probe-tiny", "head=last"], "for the models of blocks that are built here"),
        (["chunks=2", "pipeline=coreml", "cache=stateful"], "it holds neither states nor several functions"),
        (
            ["model=pythia-2.8b", "chunks=auto", "limits_for=m1"],
            "5.55 GB when they are in use, are above the 3.38 GB that m1 maps at once",
        ),
        (["copies=16", "copies_kind=different"], "at most 15 are told apart"),
    ],
)
def test_cuts_and_copies_that_cannot_be(args, reason):
    made = planned(
        *[part for part in CUT[1:] if not (part.startswith("model=") and args[0].startswith("model="))], *args
    )
    (found,) = made.refused.values()
    assert reason in found


def test_auto_is_estimated_before_there_is_a_program():
    made = planned("-m", "model=gpt2-xl", "weights=random", "runtime=reference", "chunks=auto", "limits_for=m1,a17_pro")
    estimates = [note for note in made.notes if note.startswith("chunks=auto")]
    assert ["about 2 (estimated: 3.1" in estimates[0], "about 4 (estimated: 3.1" in estimates[1]] == [True, True]
    made = planned(
        "-m",
        "model=gpt2-xl",
        "weights=random",
        "runtime=reference",
        "chunks=auto",
        "limits_for=a17_pro",
        "precision=p4",
    )
    assert any("about 1 (estimated: 0.78 GB" in note for note in made.notes), "four bits a weight"
    with pytest.raises(ConfigError, match="limits_for: chip=m99: unknown"):
        planned(*CUT, "chunks=auto", "limits_for=m99")


@pytest.mark.parametrize(
    ("args", "timings"),
    [
        (["model=gpt2"], 1),
        (["model=gpt2-xl"], 0),
        (["model=gpt2-xl", "chunks=1,2"], 0),
        (["model=gpt2-xl", "seq_len=32"], 1),
        (["model=gpt2-xl", "latency.max_seconds=60"], 1),
        (["model=gpt2-xl", "copies=2"], 1),
        (["model=gpt2-xl", "latency.repeats=2"], 2),
        (["model=gpt2-xl", "runtime=reference"], 4),
    ],
)
def test_a_check_that_would_be_one_call_is_left_to_the_score(args, timings):
    tasks = planned("-m", "weights=random", "latency.repeats=auto", *args).tasks.values()
    assert sum(task.stage == "latency" for task in tasks) == timings
    assert sum(task.stage == "score" for task in tasks) == 1


def test_a_host_that_is_no_apple_chip_has_the_limits_of_an_m1(monkeypatch):
    from ane_sweep.machine import host
    from ane_sweep.planner import chunking

    (cell,) = planned(*CUT, "chunks=auto").cells
    for brand, chip in {"Intel(R) Xeon(R)": "m1", None: "m1", "Apple M4 Pro": "m4_pro", "Apple M99": "m1"}.items():
        monkeypatch.setattr(host, "chip", lambda brand=brand: brand)
        assert chunking.limits(cell).chip == chip


def test_a_part_of_a_plan_holds_all_that_its_cells_need_and_nothing_else():
    made = planned(
        "-m", "model=tiny-gpt2", "weights=random", "runtime=reference", "variant=original,split_einsum", "chunks=1,99"
    )
    wanted = {cell.key for cell in made.cells if cell.variant == "original"}
    part = made.only(wanted)
    assert {cell.key for cell in part.cells} == wanted and len(part.chains) == len(part.refused) == 1
    assert set(part.tasks) == {task for key in part.chains for task in made.list_tasks(key)} < set(made.tasks)
    assert part.key != made.key == made.only({cell.key for cell in made.cells}).key


def test_bisect_model_is_expected_to_take_the_memory_that_it_takes():
    made = planned("-m", "model=gpt2", "weights=random", "runtime=reference", "chunks=2", "pipeline=manual,bisect")
    ours, theirs = (task.memory_bytes for task in made.tasks.values() if task.stage == "chunk")
    package = 2 * 124_439_808
    assert 0.9 * (0.5e9 + 3 * package) < theirs < 1.5 * (0.5e9 + 3 * package) and ours < 2 * package


def test_a_score_in_the_reference_runtime_is_expected_to_hold_its_budget_and_a_layer():
    def expected(*words):
        made = planned("weights=random", "runtime=reference", *words)
        return {task.stage: task.memory_bytes / 2**30 for task in made.tasks.values()}

    assert 1.15 < expected("model=gpt2-xl")["score"] < 1.3 * 1.15, "1.15 GiB measured"
    assert expected("model=gpt2-xl", "numerics=ane")["score"] > 6
    assert expected("model=pythia-6.9b")["score"] < 4


def test_a_task_too_large_for_its_limit_or_the_host_is_said_with_figures_and_choices():
    made, gib = planned("-m", "model=pythia-6.9b", "weights=random", "runtime=reference", "numerics=ane"), 2**30
    largest = max(made.tasks.values(), key=lambda task: task.memory_bytes)
    need, stage = largest.memory_bytes, largest.stage
    assert need > 8e9
    text = overview.describe(made, lambda task: False, memory=(5 * gib, 7 * gib))
    (note,) = [line for line in text.splitlines() if "of memory" in line]
    assert note.startswith(
        f"note: {stage} pythia-6.9b is expected to use {need / 1e9:.3g} GB of memory; it may use 5.37 GB"
    )
    assert "this host has 7.52 GB" in note and "out_of_memory" in note and "a host with more memory" in note
    assert "2 more tasks are too large" in note
    text = overview.describe(made, lambda task: False, memory=(5 * gib, 100 * gib))
    assert f"a larger memory_gib or limits.{stage}.memory_gib" in text
    assert "of memory" not in overview.describe(made, lambda task: False, memory=(60 * gib, 64 * gib))
    assert "of memory" not in overview.describe(made, lambda task: task.stage != "predict", memory=(5 * gib, 7 * gib))
    made = planned("model=pythia-6.9b", "weights=random", "runtime=reference")
    assert "lie in files" in overview.describe(made, lambda task: False, memory=(5 * gib, 7 * gib))
    made = planned("model=tiny-gpt2", "weights=random", "limits.convert.memory_gib=0.3")
    assert "it may use 322 MB" in overview.describe(made, lambda task: False, memory=(5 * gib, 7 * gib))


def test_a_long_wait_for_rounded_products_is_said_before(capsys):
    from ane_sweep.__main__ import main

    words = ["plan", "model=gpt2", "weights=random", "seq_len=512", "runtime=reference"]
    assert main([*words, "numerics=ane"]) == 0
    assert "numerics=ane rounds every product by itself" in capsys.readouterr().out
    assert main(words) == 0
    assert "rounds every product" not in capsys.readouterr().out
