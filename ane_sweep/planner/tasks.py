"""A cell's tasks: the processes that it needs, and the content of each task's key. Tasks with equal keys are shared.

Each task is made by one call of `Chain.add`. Its key consists of its `params`, its input tasks, the digest of the
stage's code and the versions of the packages used.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from ane_sweep import data
from ane_sweep.bridge import recipes
from ane_sweep.bridge.axes import LOADS, RUNS
from ane_sweep.bridge.building import DECODE, PREFILL
from ane_sweep.bridge.cell import BASELINES, DECLARED, Cell, digest
from ane_sweep.bridge.examples import Examples
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.plan import Place, Source
from ane_sweep.bridge.programs import DEFAULT, offers
from ane_sweep.bridge.rewrites import REWRITES
from ane_sweep.bridge.runtimes import RUNTIMES, collect_host_facts
from ane_sweep.bridge.stages import STAGES, limit
from ane_sweep.bridge.task import CHEAP_S, Task
from ane_sweep.machine import apple, calibrated, usb
from ane_sweep.planner import checks, chunking, converters, estimates, packages, rewriting, scoring, timing, versions
from ane_sweep.planner.compressing import choose_recipe, describe_codes
from ane_sweep.planner.durations import call_seconds, count_gmacs, rule_seconds
from ane_sweep.planner.peaks import needed_bytes
from ane_sweep.store import files

Params = dict[str, object]  # what enters a task's key
Inputs = Mapping[str, Task | None]  # the tasks that it reads, by role


@dataclass(frozen=True)
class Shared:
    """Values that all cells of a plan share."""

    axes: list[str]
    host: str
    versions: Mapping[str, str | None]
    chips: list[str]
    costs: estimates.Costs
    examples: Mapping[str, Examples] = field(default_factory=dict)
    place: Place | None = None

    def at(self, place: Place) -> "Shared":
        """Return a copy for a cell measured at a place of a fleet."""
        return replace(self, host=place.key, place=place)


@dataclass
class Chain:
    """One cell's tasks, each after the tasks that it reads."""

    cell: Cell
    source: Source
    runtime: str
    shared: Shared
    gmacs: float  # billions of multiply-adds of one prediction
    tasks: list[Task] = field(default_factory=list)
    beside: dict[str, Task] = field(default_factory=dict)  # units -> a timing to compare with; not the cell's own

    def add(
        self,
        stage: str,
        params: Params,
        inputs: Inputs,
        *,
        round: int = 0,
        loaded: int = 1,
        after: tuple[str, ...] = (),
        more_of: str = "",
        beside: Mapping[str, Path] | None = None,
        code: tuple[str, ...] = (),
    ) -> Task:
        """Add a task for `loaded` copies of the program and return it. The role `checkpoint` defaults to the folder with
        the weights; `beside` are further local files, which params identify by content; `code` are modules that the
        stage finds by name. A timing without a round is a check, which may run beside other tasks."""
        cell, source, costs, place = self.cell, self.source, self.shared.costs, self.shared.place
        declared, traits = STAGES[stage], RUNTIMES[self.runtime]
        its_own, plain = _entering(stage, traits.honours, tuple(checks.applicable(cell, self.shared.axes)))
        if traits.program != DEFAULT and (declared.parts or declared.runs_program):
            params = {**params, "program": traits.program, "tools": converters.list_tools(traits.program)}
        if changed := {name: getattr(cell, name) for name in plain if getattr(cell, name) != plain[name]}:
            params = {**params, "options": changed}
        varies = its_own.union(*[task.varies for task in inputs.values() if task is not None])
        upstream = {role: task.key for role, task in inputs.items() if task is not None}
        # Weights are in params by their content: whether they had to be fetched makes nothing else of them.
        made_of = {role: key for role, key in upstream.items() if role != "checkpoint"}
        work = source.parameter_bytes * loaded
        positions, placed = _positions(cell, source), place.label if place and "host" in params else ""
        sort = f"{placed or ('a fleet' if place else self.shared.host[:16])} {cell.model_settings.path or ''}".rstrip()
        seconds = costs.seconds(stage, rule_s := rule_seconds(stage, cell, source, work, self.gmacs, params), sort)
        rewritten = (*(f"ane_sweep.worker.rewrites.{name}" for name in changed if name in REWRITES), *code)
        version = versions.code_digest(
            stage, cell.family if "model" in params else None, params.get("runtime"), traits.program, rewritten
        )
        needed = needed_bytes(stage, cell, work, source.arch, positions, params.get("runtime"))
        task = Task(
            stage=stage,
            key=digest([files.VERSION, stage, version, params, made_of, dict(self.shared.versions), None]),
            params=params,
            inputs=upstream,
            folders={**(_folders(source) if "checkpoint" in inputs else {}), **(beside or {})},
            limits=dict(cell.limits[stage]) if declared.limited else limit(declared),
            label=label(stage, cell, [axis for axis in self.shared.axes if axis in varies]),
            work=work,
            memory_bytes=costs.memory_bytes(stage, work, needed),
            disk_bytes=estimates.disk_bytes(stage, cell, source, positions, params),
            seconds=0.0 if more_of and (rule_s if seconds is None else seconds) > CHEAP_S else seconds,
            alone=(declared.alone and not (declared.pooled and round == 0)) or (declared.runs_program and traits.alone),
            unavailable=(place.no_coreml if place else apple.no_coreml()) if declared.on_coreml else None,
            round=round,
            after=after,
            more_of=more_of,
            place=placed,
            varies=varies,
            sort=sort,
            rule_s=rule_s,
        )
        self.tasks.append(task)
        return task


def tasks_of(cell: Cell, source: Source, runtime: str, shared: Shared) -> Chain:
    """Return the cell's tasks in order, including the additional timings for the verdict."""
    chain = Chain(cell, source, runtime, shared, count_gmacs(cell, source, _positions(cell, source)))
    fetched = chain.add("fetch", dict(source.fetch), {}) if source.fetch else None
    weights = {"kind": source.kind, "digest": source.digest, "allow_pickle": cell.allow_pickle}
    if source.kind in ("random", "own"):
        weights["seed"] = cell.seed
    # the parameters of every stage that builds the model in torch; inputs may fix seq_len
    built: Params = {"model": _model(cell, source), "weights": weights, "seq_len": _positions(cell, source)}
    texts = {"count": cell.model_settings.texts.count, "seed": cell.seed, "text": data.text_digest()}
    texts["tokenizer"] = source.tokenizer
    reference = chain.add("reference", {**built, "texts": texts}, {"checkpoint": fetched})
    model = _model(cell, source)
    examples = _add_examples(chain, built, fetched)
    if RUNTIMES[runtime].needs == "program":
        whole, program = _add_program(chain, built, fetched, reference)
        if cell.pieces:
            whole = program = reference = chain.add(
                "pieces", chunking.pieces(cell), {"program": program, "reference": reference}
            )
            model["task"] = "tensors"  # of what one chunk hands to the next nothing is known
        compiled = _add_placement(chain, program)
        upstream: dict[str, Task | None] = {"reference": reference, "program": program}
        if RUNTIMES[runtime].coreml:
            upstream["compiled"] = compiled
            several: Params = {"functions": [PREFILL, DECODE]} if cell.cache != "none" else {}
            chain.add("load", {**_on_coreml(chain), **several}, upstream)
        is_proven = cell.pipeline == "manual" and checks.numerics(cell)["numerics"] in RUNTIMES[runtime].exact
        _add_figures(chain, {}, upstream, {**upstream, "program": whole if is_proven else program}, model, examples)
    else:
        params, upstream = {**built, "variant": _variant(cell)}, {"reference": reference, "checkpoint": fetched}
        _add_figures(chain, params, upstream, upstream, model, examples)
    return chain


def _variant(cell: Cell) -> str:
    return "original" if rewriting.takes_variant(cell) else cell.variant


def _model(cell: Cell, source: Source) -> Params:
    return {"family": cell.family, "task": cell.model_settings.task, "arch": dict(source.arch)}


def _positions(cell: Cell, source: Source) -> int:
    if cell.model_settings.is_given:
        return 0
    return source.max_seq_len if cell.kind.length == "architecture" else cell.seq_len


def _folders(source: Source) -> dict[str, Path]:
    """Return the files of a model's weights on this disk, by role."""
    return {**({"checkpoint": source.folder} if source.folder else {}), **source.beside}


def _add_examples(chain: Chain, built: Params, fetched: Task | None) -> Task | None:
    """Add the task that runs fp32 torch on the file for the cell's score."""
    if (known := chain.shared.examples.get(chain.cell.key)) is None or chain.cell.score == "none":
        return None
    params = {**built, "examples": scoring.params(chain.cell, known), "tokenizer": chain.source.tokenizer}
    return chain.add("examples", params, {"checkpoint": fetched}, beside={"data": known.path})


def _add_program(chain: Chain, built: Params, fetched: Task | None, reference: Task) -> tuple[Task, Task]:
    """Add the tasks that make the program, and compress and cut it as the cell asks. Return the tasks that leave it whole and as asked.

    A calibration depends on a part of the recipe only, so that cells share it.
    """
    cell, precision, kind = chain.cell, chain.cell.precision_settings, RUNTIMES[chain.runtime].program
    if chain.source.kind == packages.KIND:
        taken = {"package": chain.source.digest} | (
            {"function": name} if (name := chain.source.arch.get("function")) else {}
        )
        program = chain.add("adopt", taken, {"checkpoint": None})
    else:
        wide = {"fp32_ops": precision.fp32_ops} if precision.fp32_ops else {}
        made: Params = {"variant": _variant(cell), "target": cell.ios_target, "compute": precision.compute, **wide}
        made |= describe_codes(cell, kind)
        upstream: dict[str, Task | None] = {"checkpoint": fetched}
        for role, other in converters.describe_installs(cell).items():
            upstream[role] = chain.add("install", other, {})
        program = chain.add("convert", {**built, **made}, upstream)
    if names := rewriting.choose(cell):
        judged: Params = {"rewrites": names, "chip": next(iter(chain.shared.chips), "m4")}
        program = chain.add("rewrite", judged, {"program": program}, code=rewriting.modules(names))
    if (recipe := choose_recipe(cell, kind)) is not None:
        upstream = {"program": program}
        if (wanted := recipes.calibration(recipe)) is not None:
            upstream["calibration"] = chain.add("calibrate", wanted, {"program": program, "reference": reference})
        program = chain.add("compress", {"recipe": recipe}, upstream)
    if not chunking.is_cut(cell) or not offers(kind, "chunk"):
        return program, program
    work = chunking.BISECT_WORK if cell.pipeline == "bisect" else 1
    return program, chain.add("chunk", chunking.params(cell), {"program": program}, loaded=work)


def _add_placement(chain: Chain, program: Task) -> Task | None:
    """Add our prediction of the ops' units and Core ML's own plan; return the compilation. Stages compile and place
    call Core ML, whatever runtime executes the program; a kind of program without one of these stages skips it.
    """
    cell, shared = chain.cell, chain.shared
    asked: Params = {"chips": shared.chips, "compute_units": cell.compute_units}
    if measured := calibrated.digest(shared.chips):  # what `ane-sweep calibrate` found on this machine
        asked["measured"] = measured
    kind = RUNTIMES[chain.runtime].program
    if offers(kind, "predict"):
        chain.add("predict", asked, {"program": program})
    if not offers(kind, "compile"):
        if offers(kind, "place"):
            chain.add("place", _on_coreml(chain), {"program": program})
        return None
    params: Params = {"host": shared.host, "compiler": cell.compiler, "device": cell.device}
    if cell.compiler == "coremlc":
        params["xcode"] = shared.place.xcode if shared.place else apple.xcode()
    compiled = chain.add("compile", params, {"program": program})
    upstream = {"program": program, "compiled": compiled}
    if offers(kind, "place"):
        chain.add("place", _on_coreml(chain), upstream)
    return compiled


def _on_coreml(chain: Chain) -> Params:
    """Return the host, tools and units with which Core ML loads a program."""
    return {"compute_units": chain.cell.compute_units, "host": chain.shared.host, **_device(chain.cell)}


def _device(cell: Cell) -> Params:
    """Return the device of Core ML's stages; an iPhone is part of the key by the digest of its identity, as devices differ in speed."""
    if cell.device == "local":
        return {"device": "local"}
    (found,) = usb.connected()
    return {"device": "usb", "identity": found.identity, "chip": (found.model or found.kind).lower()}


def _add_figures(
    chain: Chain, built: Params, inputs: Inputs, scored: Inputs, model: Params, examples: Task | None
) -> None:
    """Add scores and checks of `scored`, and timings of `inputs`. Units and numerics enter the keys only for runtimes that know them."""
    runtime, cell, traits = chain.runtime, chain.cell, RUNTIMES[chain.runtime]
    units = cell.compute_units if "compute_units" in traits.honours else None
    mode = checks.numerics(cell) if "numerics" in traits.honours else {}
    device = _device(cell) if "device" in traits.honours else {}
    runs = {
        "runtime": runtime,
        "compute_units": units,
        "host": chain.shared.host,
        **device,
        **(collect_host_facts(runtime) if chain.shared.place is None else chain.shared.place.asked.get(runtime, {})),
        **mode,
        **built,
    }
    chain.add("score", {**runs, "model": model}, scored)
    if examples is not None:
        chain.add("evaluate", {**runs, "model": model, "score": cell.score}, {**scored, "examples": examples})
    timed = _add_timings(chain, runs, inputs, scored)  # what died there, dies again
    if cell.throughput:
        chain.add("throughput", {**runs, "throughput": cell.throughput}, inputs, after=timed)
    if traits.coreml and cell.evidence == "auto" and cell.device == "local":  # power and log are this Mac's
        chain.add("evidence", runs, inputs, after=timed)


def _add_timings(chain: Chain, runs: Params, inputs: Inputs, scored: Inputs) -> tuple[str, ...]:
    """Add a cell's timings, and those that its verdict compares with. Return the key of the first one, or nothing.

    A check of one call would show what the score has shown: that the program runs here. So it is not added.
    """
    cell, planned, first = chain.cell, timing.plan_timing(chain.cell, chain.runtime), ""
    params = {**runs, **chunking.copies(cell), "policy": planned.policy}
    if planned.is_check:
        params["check"] = True
        each = call_seconds(STAGES["latency"], cell, chain.source, chain.gmacs, params)
        if cell.copies == 1 and each >= planned.policy["max_seconds"]:
            return ()
        return (chain.add("latency", params, scored, loaded=cell.copies).key,)
    for number in range(1, planned.repeats + 1):  # cells that ask for fewer share the first ones
        task = chain.add(
            "latency", {**params, "round": number}, inputs, round=number, loaded=cell.copies,
            more_of=first if planned.is_auto else "",
        )  # fmt: skip
        first = first or task.key
    if first and RUNTIMES[chain.runtime].coreml and cell.evidence == "auto":
        _add_baselines(chain, {**params, "round": 1}, inputs)
    return (first,) if first else ()


def _add_baselines(chain: Chain, params: Params, inputs: Inputs) -> None:
    """Add the first timing round of the same program on the other units, with which a verdict compares.

    These tasks equal those of cells that request these units, so that they run only once.
    """
    if chain.cell.compute_units == "cpu_only":
        return
    for units in BASELINES:
        if units != chain.cell.compute_units:
            other = Chain(
                replace(chain.cell, compute_units=units), chain.source, chain.runtime, chain.shared, chain.gmacs
            )
            task = other.add("latency", {**params, "compute_units": units}, inputs, round=1, loaded=chain.cell.copies)
            named = "compute_units" in chain.shared.axes
            chain.beside[units] = task if named else replace(task, label=f"{task.label} compute_units={units}")


@cache
def _entering(
    stage: str, honours: tuple[str, ...], axes: tuple[str, ...]
) -> tuple[frozenset[str], Mapping[str, object]]:
    """Return the varying axes that change a stage's own work, and the defaults of all axes in its params."""
    its, loads = STAGES[stage], STAGES[stage].runs_program
    kinds = {stage, *([LOADS] if loads else []), *([RUNS] if loads and not its.on_coreml else [])}
    idle = checks.idle(honours) if RUNS in kinds else ()
    found = {name: axis for name, axis in DECLARED.items() if kinds & {*axis.enters, *axis.shapes} and name not in idle}
    varies = frozenset(axis for axis in axes if axis.partition(".")[0] in found)
    return varies, {name: axis.plain for name, axis in found.items() if kinds & {*axis.enters}}


def label(stage: str, cell: Cell, axes: Iterable[str]) -> str:
    """Return a task's label, e.g. `convert gpt2 split_einsum fp16`: the stage, the model, and the varying axes that affect it."""
    named = [axis for axis in axes if axis != "model"]
    values = [
        str(cell.value(axis)) if axis in ("variant", "precision") else f"{axis}={format_value(cell.value(axis))}"
        for axis in named
    ]
    return " ".join([stage, cell.model, *values])
