"""From cells to tasks: a DAG in which cells that need the same thing share one task. Pure functions.

What enters each task's key is the sharing: see `_tasks`. A key also holds the digest of the stage's own code and the
versions of the packages that do the work, so nothing stale is ever reused.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ane_sweep import data, estimates, models, runtimes
from ane_sweep.cell import AXES, TARGETS, Cell, digest
from ane_sweep.checkpoints import Source
from ane_sweep.errors import ConfigError
from ane_sweep.models import _options
from ane_sweep.placement import chips

PACKAGE = Path(__file__).parent
TOOLCHAIN = ("torch", "coremltools", "transformers", "numpy")
CODE = {  # stage -> the code that decides its result, beside stages/NAME.py and what `_code` adds
    "fetch": [],
    "reference": ["models/*.py", "data/*"],
    "convert": ["models/*.py"],
    "chunk": ["mil/**/*.py"],
    "predict": ["placement/**/*", "mil/**/*.py"],
    "compile": [],
    "place": ["placement/path.py"],
    "latency": ["stages/_*.py", "runtimes/**/*.py", "mil/**/*.py"],
    "score": ["stages/_*.py", "runtimes/**/*.py", "mil/**/*.py"],
}


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
    runtimes: dict[str, str] = field(default_factory=dict)
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
    versions = {name: toolchain.get(name) for name in TOOLCHAIN}
    shared = Shared(axes, host, versions, list(predict_for), Costs(history or {}))
    plan = Plan(list(cells), axes, sources=dict(sources), notes=list(notes))
    problems = dict.fromkeys(problem for cell in cells for problem in _unknown_names(cell))
    problems |= dict.fromkeys(_unknown_chips(predict_for))
    if problems:
        raise ConfigError(list(problems))
    plan.notes += _notes(plan)
    for cell in cells:
        runtime = resolved_runtime(cell)
        plan.runtimes[cell.key] = runtime
        source = sources[cell.key]
        if reason := refusal(cell, source, runtime):
            plan.refused[cell.key] = reason
            continue
        tasks = _tasks(cell, source, runtime, shared)
        for task in tasks:
            known = plan.tasks.setdefault(task.key, task)
            for limit, value in task.limits.items():  # cells that share a task under different limits: the widest holds
                known.limits[limit] = None if None in (known.limits[limit], value) else max(known.limits[limit], value)
        plan.chains[cell.key] = [task.key for task in tasks]
    return plan


def resolved_runtime(cell: Cell) -> str:
    """`auto` is coreml where it can run, else the reference runtime."""
    if cell.runtime != "auto":
        return cell.runtime
    return "coreml" if runtimes.get("coreml").available() is None else "reference"


def _unknown_names(cell: Cell) -> list[str]:
    found = []
    if cell.family not in models.names():
        found.append(
            f"model={cell.model}: unknown family {cell.family!r}; known: {', '.join(models.names())}. "
            f"A new one is ane_sweep/models/{cell.family}.py and conf/model/NAME.yaml"
        )
    if cell.runtime != "auto" and cell.runtime not in runtimes.names():
        found.append(
            f"runtime={cell.runtime}: unknown; choices: auto, {', '.join(runtimes.names())}. "
            f"A new one is ane_sweep/runtimes/{cell.runtime}.py"
        )
    return found


def _unknown_chips(names: Sequence[str]) -> list[str]:
    found = []
    for name in names:
        try:
            chips.get(name)
        except ConfigError as error:
            found += [f"chips: {problem}" for problem in error.problems]
    return found


def refusal(cell: Cell, source: Source, runtime: str) -> str | None:
    """Why this combination is impossible, in one sentence with the way out; None when it can be tried."""
    if cell.seq_len > source.max_seq_len:
        return f"seq_len={cell.seq_len} is beyond the {source.max_seq_len} positions of {cell.model}"
    if cell.variant not in (known := models.variants(cell.family)):
        return f"{cell.family} has no variant {cell.variant}; it has {', '.join(known)}"
    built = _options.refusal(
        built_with(cell),
        model=cell.model,
        task=cell.model_options["task"],
        variant=cell.variant,
        compute=cell.precision_options["compute"],
        seq_len=cell.seq_len,
        longest=source.max_seq_len,
    )
    if built:
        return built
    count = cell.model_options["inputs"]["count"]
    if cell.model_options["task"] != "causal_lm" and count > len(data.sentences()):
        return f"model.inputs.count={count} is more than the {len(data.sentences())} sentences that are scored on"
    if reason := runtimes.get(runtime).available():
        return f"runtime={runtime} {reason}; runtime=reference runs anywhere"
    honours = runtimes.get(runtime).HONOURS
    if "chunks" in honours and cell.chunks > source.cut_points + 1:
        return (
            f"chunks={cell.chunks} is more than {cell.model} can be cut into: it has {source.cut_points} cut points "
            f"({source.layers} layers), so chunks=1..{source.cut_points + 1}"
        )
    least = cell.precision_options["min_target"]
    if TARGETS.index(cell.ios_target) < TARGETS.index(least):
        return f"precision={cell.precision} needs target={least} or newer, not {cell.target}"
    return None


def built_with(cell: Cell) -> _options.Options:
    """The options of models/_options.py that a cell asks for."""
    return _options.Options(**{name: getattr(cell, name) for name in _options.NAMES})


def _notes(plan: Plan) -> list[str]:
    """Legal, but worth a word before the first process."""
    notes = [note for source in plan.sources.values() for note in source.notes]
    pointless = [c for c in plan.cells if c.precision_options["compute"] == "fp32" and c.compute_units == "cpu_and_ne"]
    if pointless:
        notes.append(
            f"precision=fp32 with compute_units=cpu_and_ne is pointless ({len(pointless)} cells): the Neural Engine takes no fp32 op, "
            "all will run on the CPU; use precision=fp16"
        )
    for name in dict.fromkeys(resolved_runtime(cell) for cell in plan.cells):
        unused = [axis for axis in plan.axes if axis in _APPLICABLE and axis not in runtimes.get(name).HONOURS]
        for axis in unused:
            notes.append(
                f"{axis} not applicable: runtime={name} does not know it, so cells that differ only in it share their work"
            )
    return list(dict.fromkeys(notes))


_APPLICABLE = ("chunks", "compute_units", "precision", "target")


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
    options = built_with(cell)
    count = cell.model_options["inputs"]["count"]
    compute = cell.precision_options["compute"]
    tasks: list[Task] = []

    def add(stage: str, params: dict[str, Any], inputs: Mapping[str, Task | None], **more: Any) -> Task:
        upstream = {role: task.key for role, task in inputs.items() if task is not None}
        checkpoint = {"checkpoint": source.folder} if "checkpoint" in inputs and source.folder else {}
        version = code_digest(stage, cell.family if "model" in params else None)
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
    silent = _UNLABELLED.get(stage, {axis for axis in _APPLICABLE if axis not in honours})
    named = [axis for axis in axes if axis != "model" and axis not in silent and not axis.startswith("limits.")]
    values = [
        str(cell.value(axis)) if axis in ("variant", "precision") else f"{axis}={cell.value(axis)}" for axis in named
    ]
    return " ".join([stage, cell.model, *values])


def _needs_macos() -> str | None:
    """Compile and place ask Core ML itself, whatever runtime then executes the program."""
    return runtimes.get("coreml").available()


@cache
def code_digest(stage: str, family: str | None) -> str:
    """sha256 of the code that decides a stage's result: the stage's version, which nobody can forget to raise.

    Families other than the task's own are left out, so that adding one invalidates nothing.
    """
    files = {PACKAGE / "stages" / f"{stage}.py"}
    for pattern in [*CODE[stage], *(["models/*.py"] if family else [])]:
        files |= {path for path in PACKAGE.glob(pattern) if path.is_file() and "__pycache__" not in path.parts}
    others = {PACKAGE / "models" / f"{name}.py" for name in models.names() if name != family}
    sha256 = hashlib.sha256()
    for path in sorted(files - others):
        sha256.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return sha256.hexdigest()
