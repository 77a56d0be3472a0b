"""The params that a plan sends are those that the stages declare, key for key."""

import importlib
from collections import defaultdict

import pytest
from tiny import ONCE

from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import Task
from ane_sweep.machine import coreai
from ane_sweep.planner import checkpoints, checks, config, plan
from ane_sweep.worker.params import Params, RuntimeParams

MATRICES = (
    ("runtime=coreml,reference,torch_eager", "precision=fp16,p4,mixed4,w8a8,fp16_softmax_fp32", "throughput=10"),
    ("runtime=coreml", "chunks=2", "pieces=1"),
    ("runtime=coreml", "cache=stateful", "target=iOS18"),
    ("runtime=reference", "chunks=auto", "copies=2"),
    ("runtime=reference", "cuts=[0.5]", "converter=8.3.0", "torch_version=2.7.0"),
    ("runtime=reference", "chunks=2", "chunk_by=time"),
    ("runtime=coreml", "compiler=coremlc", "rewrite=ane"),
    ("runtime=reference", "precision=p4", "compressor=coreai_opt"),
)
# Read by bridge/building.py, as a type of its own.
OPTIONS = "options"
# Sent where this plan has no cause to: for another kind of program, by a connected phone, after `ane-sweep calibrate` of
# this machine, where runtime=auto is not coreml, and by the runner. Never planned here: a package of the user's, a download, a scored file.
ELSEWHERE = {"program", "tools", "identity", "chip", "measured", "gate", "check"}
NOT_PLANNED = {"adopt", "fetch", "examples", "evaluate"}
# stage -> fields of runtimes that it never has
RUNS_ELSEWHERE = {"evidence": {"model", "weights", "seq_len", "variant", "numerics", "effects"}}


@pytest.fixture
def sent(monkeypatch) -> dict[str, list[Task]]:
    """Return the tasks of all plans by stage, as if this host had Core ML."""
    monkeypatch.setattr(checks, "cannot", lambda runtime: None)
    monkeypatch.setattr(coreai, "find_missing", lambda modules=(): None)
    found = defaultdict(list)
    for words in MATRICES:
        request = config.load([ONCE, "-m", "model=tiny-gpt2", "weights=random", *words])
        sources = {
            cell.key: checkpoints.resolve(cell.model_options, "random", seed=0, allow_pickle=False, digests=None)
            for cell in request.cells
        }
        made = plan.make_plan(request.cells, request.axes, sources, host="host", toolchain={})
        assert made.tasks, words
        for task in made.tasks.values():
            found[task.stage].append(task)
    return found


def find_params(stage: str, tasks: list[Task]) -> type[Params]:
    """Return the type that a stage reads its params as: its own, the runtimes' if it runs a program, or none."""
    plain = RuntimeParams if any("runtime" in task.params for task in tasks) else Params
    return getattr(importlib.import_module(f"ane_sweep.worker.stages.{stage}"), "Params", plain)


def test_every_key_that_is_sent_is_a_field_and_every_field_is_sent(sent):
    assert STAGES.keys() - sent.keys() <= NOT_PLANNED
    wrong = {}
    for stage, tasks in sent.items():
        keys = {key for task in tasks for key in task.params} - {OPTIONS}
        fields = set(find_params(stage, tasks).__struct_fields__)
        idle = ELSEWHERE | RUNS_ELSEWHERE.get(stage, set())
        wrong[f"sent by the planner, not in Params of worker/stages/{stage}.py"] = keys - fields
        wrong[f"in Params of worker/stages/{stage}.py, sent by nobody"] = fields - keys - idle
    assert not {text: names for text, names in wrong.items() if names}


def test_the_params_of_every_planned_task_can_be_read(sent):
    for stage, tasks in sent.items():
        for task in tasks:
            find_params(stage, tasks).read(task.params)
