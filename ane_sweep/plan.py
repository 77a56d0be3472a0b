"""From cells to tasks: a DAG in which cells that need the same thing share one task. Pure functions.

What enters each task's key is the sharing: see `_tasks`. A key also holds the digest of the stage's own code and the
versions of the packages that do the work, so nothing stale is ever reused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ane_sweep import checks, data, estimates, runtimes, versions
from ane_sweep.cell import AXES, Cell, digest
from ane_sweep.checkpoints import Source
from ane_sweep.checks import APPLICABLE
from ane_sweep.errors import ConfigError
from ane_sweep.host import TOOLS
from ane_sweep.models import _options


@dataclass
class Task:
    """One process. `inputs` maps a role to an upstream task's key; `folders` to a folder that already exists."""

    stage: str
    key: str
    params: dict[str, Any]
    inputs: dict[str, str]
    folders: dict[str, Path]
    limits: dict[str, Any]
    fault: str | None
    label: str
    work: int
    memory_bytes: int
    disk_bytes: int
    seconds: float | None
    alone: bool = False
    unavailable: str | None = None


@dataclass
class Plan:
    """Everything that would happen: tasks in an order that respects their inputs, and each cell's own tasks."""

    cells: list[Cell]
    axes: list[str]
    tasks: dict[str, Task] = field(default_factory=dict)
    chains: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """What makes two sweeps the same sweep: the same cells over the same tasks."""
        return digest([self.chains, self.refused])


class Costs:
    """Estimates from one history, each asked for once: a thousand cells share a handful of sizes."""

    def __init__(self, history: estimates.History):
        self.memory_bytes = cache(lambda stage, work: estimates.memory_bytes(stage, work, history))
        self.seconds = cache(lambda stage, work: estimates.seconds(stage, work, history))


def make_plan(
    cells: Sequence[Cell],
    axes: list[str],
    sources: Mapping[str, Source],
    *,
    host: str,
    toolchain: Mapping[str, str | None],
    predict_for: Sequence[str] = (),
    history: estimates.History | None = None,
    notes: Sequence[str] = (),
) -> Plan:
    """Plan every cell. Raises ConfigError for unknown families and runtimes; impossible combinations are `refused`.

    sources   cell key -> its settled weights
    host      digest of the machine that will time; enters the keys of what depends on it
    predict_for  the chips to predict placement for; more of them cost no conversion and no timing
    """
    tools = {name: toolchain.get(name) for name in TOOLS}
    shared = Shared(axes, host, tools, list(predict_for), Costs(history or {}))
    plan = Plan(list(cells), axes, sources=dict(sources), notes=list(notes))
    problems = dict.fromkeys(problem for cell in cells for problem in checks.unknown_names(cell))
    problems |= dict.fromkeys(checks.unknown_chips(predict_for))
    if problems:
        raise ConfigError(list(problems))
    plan.notes += checks.notes(plan.cells, axes, plan.sources.values())
    for cell in cells:
        runtime = checks.resolved_runtime(cell)
        source = sources[cell.key]
        if reason := checks.refusal(cell, source, runtime):
            plan.refused[cell.key] = reason
            continue
        tasks = _tasks(cell, source, runtime, shared)
        for task in tasks:
            known = plan.tasks.setdefault(task.key, task)
            for limit, value in task.limits.items():  # cells that share a task under different limits: the widest holds
                known.limits[limit] = None if None in (known.limits[limit], value) else max(known.limits[limit], value)
        plan.chains[cell.key] = [task.key for task in tasks]
    return plan


@dataclass(frozen=True)
class Shared:
    """What all cells of a plan have in common."""

    axes: list[str]
    host: str
    versions: Mapping[str, str | None]
    chips: list[str]
    costs: Costs


def _tasks(cell: Cell, source: Source, runtime: str, shared: Shared) -> list[Task]:
    """The cell's tasks in order. The `params` below, and what each is built from, are all that enters the keys."""
    module = runtimes.get(runtime)
    model = {"family": cell.family, "task": cell.model_options["task"], "arch": dict(source.arch)}
    weights = {"kind": source.kind, "digest": source.digest, "allow_pickle": cell.allow_pickle}
    if source.kind == "random":
        weights["seed"] = cell.seed
    built = {"model": model, "weights": weights, "seq_len": cell.seq_len}
    options = checks.built_with(cell)
    count = cell.model_options["inputs"]["count"]
    compute = cell.precision_options["compute"]
    tasks: list[Task] = []

    def add(stage: str, params: dict[str, Any], inputs: Mapping[str, Task | None], **more: Any) -> Task:
        upstream = {role: task.key for role, task in inputs.items() if task is not None}
        checkpoint = {"checkpoint": source.folder} if "checkpoint" in inputs and source.folder else {}
        version = versions.code_digest(stage, cell.family if "model" in params else None)
        sizes = {"task": model["task"], "count": count, "seq_len": cell.seq_len}
        limits = cell.limits[stage]
        task = Task(
            stage=stage,
            key=digest([stage, version, params, upstream, dict(shared.versions), more.get("fault")]),
            params=params,
            inputs=upstream,
            folders=checkpoint,
            limits={"timeout_s": limits["timeout_s"], "memory_gib": limits["memory_gib"]},
            label=_label(stage, cell, shared.axes, module.HONOURS),
            work=source.parameter_bytes,
            memory_bytes=shared.costs.memory_bytes(stage, source.parameter_bytes),
            disk_bytes=estimates.disk_bytes(stage, sizes, source.parameter_bytes, source.arch, compute),
            seconds=shared.costs.seconds(stage, source.parameter_bytes),
            fault=more.pop("fault", None),
            **more,
        )
        tasks.append(task)
        return task

    fetched = add("fetch", dict(source.fetch), {}) if source.fetch else None
    texts = {"count": count, "seed": cell.seed, "text": data.text_digest(), "tokenizer": source.tokenizer}
    asked = {**built, "inputs": texts, "options": options.changed(*_options.INTERFACE)}
    reference = add("reference", asked, {"checkpoint": fetched})
    units = cell.compute_units if "compute_units" in module.HONOURS else None
    runs: dict[str, Any] = {"runtime": runtime, "compute_units": units, "host": shared.host}
    upstream: dict[str, Task | None] = {"reference": reference}
    if module.NEEDS == "program":
        fault = None if cell.fault == "none" else cell.fault
        program = add(
            "convert",
            {
                **built,
                "variant": cell.variant,
                "target": cell.ios_target,
                "compute": compute,
                "options": options.changed(),
            },
            {"checkpoint": fetched},
            fault=fault,
        )
        if cell.chunks > 1:
            program = add("chunk", {"count": cell.chunks}, {"program": program})
        mac = _needs_macos()
        add("predict", {"chips": shared.chips, "compute_units": cell.compute_units}, {"program": program})
        compiled = add("compile", {"host": shared.host}, {"program": program}, unavailable=mac)
        add("place", {**runs, "compute_units": cell.compute_units}, {"program": compiled}, unavailable=mac, alone=True)
        upstream["program"] = program
    else:
        runs |= {**built, "variant": cell.variant, "options": options.changed(*_options.IN_TORCH)}
        upstream["checkpoint"] = fetched
    add("score", {**runs, "model": model}, upstream, alone=runtime == "coreml")
    add("latency", {**runs, "policy": dict(cell.latency)}, upstream, alone=True)
    return tasks


# Axes that make no difference to a stage's work, and so have no place in its label.
_UNLABELLED = {
    "fetch": {*AXES} - {"model"},
    "reference": {*AXES} - {"model", "seq_len", "weights", "seed", *_options.INTERFACE},
    "convert": {"chunks", "compute_units", "runtime"},
    "chunk": {"compute_units", "runtime"},
    "predict": {"runtime"},
}


def _label(stage: str, cell: Cell, axes: list[str], honours: frozenset[str]) -> str:
    """`convert gpt2 split_einsum fp16`: the stage, the model, and the varying axes that make a difference to it."""
    silent = _UNLABELLED.get(stage, {axis for axis in APPLICABLE if axis not in honours})
    named = [axis for axis in axes if axis != "model" and axis not in silent and not axis.startswith("limits.")]
    values = [
        str(cell.value(axis)) if axis in ("variant", "precision") else f"{axis}={cell.value(axis)}" for axis in named
    ]
    return " ".join([stage, cell.model, *values])


def _needs_macos() -> str | None:
    """Compile and place ask Core ML itself, whatever runtime then executes the program."""
    return runtimes.get("coreml").available()
