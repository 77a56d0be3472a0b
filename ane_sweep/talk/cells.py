"""The cells of a session: those of a matrix, whose programs are made and cached as in a sweep, or those of a run."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ane_sweep import engine, installed
from ane_sweep.bridge.cell import AXES, Cell
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.bridge.plan import Outcome, Plan
from ane_sweep.bridge.record import Record, StageStatus
from ane_sweep.bridge.runtimes import RUNTIMES
from ane_sweep.bridge.settings import RunSettings
from ane_sweep.bridge.task import Task
from ane_sweep.bundles import delivery
from ane_sweep.compare import sides
from ane_sweep.errors import ConfigError, StageError, suggestion
from ane_sweep.planner import checks, config, schema
from ane_sweep.planner.matrix import Request, varying
from ane_sweep.planner.settle import plan_for
from ane_sweep.runner import display
from ane_sweep.store import runs
from ane_sweep.store.cache import Store, open_store


@dataclass(frozen=True)
class Partner:
    """A cell that is ready for a session: its label, and the params and inputs of its worker."""

    name: str
    cell: Cell
    params: dict[str, Any]
    inputs: dict[str, Path]
    weights: str

    def to_dict(self) -> dict[str, object]:
        runtime = self.params["runtime"]
        return {"name": self.name, "weights": self.weights, "runtime": runtime, "cell": self.cell.as_dict()}


@dataclass(frozen=True)
class _Chosen:
    cell: Cell
    word: str = ""
    record: Record | None = None


class _PreparationTerminal(engine.Terminal):
    """A terminal that shows progress only if some task is not in the cache."""

    def __init__(self, store: Store):
        self.store = store

    def watch(self, plan: Plan) -> engine.View:
        return engine.QuietView(self.tell) if all(map(self.store.has, plan.tasks.values())) else display.make(plan)


@contextmanager
def prepare_partners(
    verb: str,
    words: Sequence[str],
    matrix: Sequence[str],
    own: Sequence[str],
    out: Path,
    count: int,
    tokenizer: str | None,
) -> Iterator[tuple[list[Partner], Path]]:
    """Prepare `count` cells and yield them with a scratch folder, while the cache is locked.

    words, matrix   RUN:axis=value words, and keys of a sweep; `own` are the verb's own keys, suggested for misspelt
                    ones
    tokenizer       a folder; None: the checkpoint's own

    Raises ConfigError; StageError if a program could not be made.
    """
    installed.need_worker(f"ane-sweep {verb}")
    _check_spelling(matrix, own)
    request = config.load(["-m", *matrix])
    chosen = [one for word in words for one in _cells_of_run(out, word)]
    chosen += [_Chosen(cell) for cell in request.cells] if matrix or not words else []
    _check_count(chosen, count, request.axes)
    for one in chosen:
        check_kind(one.cell, verb)
    with open_store(out) as store:
        cells = {one.cell.key: one.cell for one in chosen}
        plan = plan_for(Request(list(cells.values()), request.axes, request.settings, request.notes), store, out)
        if plan.refused:
            raise ConfigError(list(dict.fromkeys(plan.refused.values())))
        for cell in plan.cells if tokenizer is None else ():
            source = plan.sources[cell.key]
            if source.tokenizer is None and source.kind != "random":  # random weights take bytes for tokens
                raise ConfigError(
                    f"model={cell.model}: {source.source} has no tokenizer (tokenizer.json, or vocab.txt, or vocab.json and "
                    "merges.txt); tokenizer=FOLDER takes one from another place"
                )
        folder = store.scratch("talk")
        packages = [_packages_of_run(one, plan, store) for one in chosen]
        outcomes = _prepare(plan, chosen, store, request.settings, folder)
        axes = [axis for axis in varying(AXES, list(cells.values())) if axis != "model"]
        partners = [_make_partner(one, plan, axes, outcomes, inputs) for one, inputs in zip(chosen, packages)]
        yield [replace(one, params={**one.params, "tokenizer": tokenizer}) for one in partners], folder


def check_kind(cell: Cell, verb: str) -> None:
    """Check that the verb accepts the cell. Raises ConfigError for another kind of model, or a program that gives no next token."""
    if cell.kind.talks != verb:
        example = next(kind.example for kind in KINDS.values() if kind.talks == verb)
        raise ConfigError(f"model={cell.model} {cell.kind.does}; ane-sweep {verb} takes {example}")
    if cell.head == "last" and cell.cache == "none":
        raise ConfigError(
            "head=last gives logits of the window's last position alone, which is padding until the window is full; use "
            "head=all, or cache=stateful"
        )


def _check_spelling(matrix: Sequence[str], own: Sequence[str]) -> None:
    for word in matrix:
        name = word.partition("=")[0].lstrip("+~")
        if name == "stop":
            raise ConfigError(f"{word}: unknown here (did you mean '--stop'?)")
        head = name.split(".")[0]
        if name not in schema.KEYS and head not in schema.GROUP_KEYS and (meant := suggestion(name, own)):
            raise ConfigError(f"{word}: unknown here{meant}")


def _cells_of_run(out: Path, word: str) -> list[_Chosen]:
    """Return the cells that a word selects. Raises ConfigError, RunNotFound."""
    chosen = []
    for record in sides.side(out, word).records:
        try:
            chosen.append(_Chosen(Cell(**record.cell), word, record))
        except TypeError:
            raise ConfigError(
                f"{word}: {record.sweep} is of another version of ane-sweep, whose cells have other axes; run it again"
            ) from None
    return chosen


def _check_count(chosen: list[_Chosen], count: int, axes: list[str]) -> None:
    if len(chosen) == count:
        return
    if count == 1 and chosen and chosen[0].record:
        delivery.select_cell([one.record for one in chosen if one.record], chosen[0].word)  # raises with the choices
    names = "; ".join(one.cell.label(["model", *(axis for axis in axes if axis != "model")]) for one in chosen[:12])
    if count == 1:
        raise ConfigError(f"{len(chosen)} cells ({names}): one is talked to; --compare takes two")
    raise ConfigError(
        f"--compare takes two cells, and these are {len(chosen)} ({names}): two runs' cells, or a list of two"
    )


def _program_roles(parts: Mapping[str, Task]) -> dict[str, str]:
    """Return {role: key} of the input tasks of a program as the cell cuts it, without the reference outputs."""
    roles = dict(parts["score"].inputs)
    del roles["reference"]
    return roles | ({"program": parts["chunk"].key} if "chunk" in parts else {})


def _tasks_by_stage(plan: Plan, cell: Cell) -> dict[str, Task]:
    return {plan.tasks[key].stage: plan.tasks[key] for key in plan.chains[cell.key]}


def _list_needed(plan: Plan, one: _Chosen) -> list[str]:
    """Return the keys of the needed tasks in order: the program, everything it is made from, and the checkpoint."""
    parts = _tasks_by_stage(plan, one.cell)
    roots = [parts["fetch"].key] if "fetch" in parts else []
    if one.record is None:
        roots += _program_roles(parts).values()
    needed: set[str] = set()
    while roots:
        needed.add(key := roots.pop())
        roots += set(plan.tasks[key].inputs.values()) - needed
    return [key for key in plan.tasks if key in needed]


def _prepare(
    plan: Plan, chosen: list[_Chosen], store: Store, settings: RunSettings, folder: Path
) -> Mapping[str, Outcome]:
    """Run the needed tasks and return their outcomes. Raises StageError for the first that failed."""
    needed = {one.cell.key: _list_needed(plan, one) for one in chosen}
    keys = [key for key in plan.tasks if any(key in tasks for tasks in needed.values())]
    if not keys:
        return {}
    part = replace(plan, tasks={key: plan.tasks[key] for key in keys}, chains=needed, beside={})
    run = runs.Run(folder / "prepared", {})
    outcomes = engine.run_remaining(part, run, settings, store, _PreparationTerminal(store))
    for key in keys:
        if not outcomes[key].done and outcomes[key].status is not StageStatus.BLOCKED:
            raise StageError(f"{plan.tasks[key].label}: {outcomes[key].status}: {outcomes[key].reason}")
    return outcomes


def _packages_of_run(one: _Chosen, plan: Plan, store: Store) -> dict[str, Path]:
    """Return the packages of a run's cell. Raises ConfigError; StoreError if they are missing or damaged."""
    if one.record is None:
        return {}
    if one.record.weights.digest != plan.sources[one.cell.key].digest:
        raise ConfigError(
            f"{one.word}: the weights of model={one.cell.model} have changed since {one.record.sweep} was made; run it again"
        )
    if RUNTIMES[checks.resolved_runtime(one.cell)].needs != "program":
        return {}
    packages = {"program": delivery.find_program(one.record, store)}
    made = {stage.stage: stage.key for stage in one.record.stages if stage.status in ("ok", "cached") and stage.key}
    if (key := made.get("compile")) and (folder := store.intact("compile", key)):
        packages["compiled"] = folder
    return packages


def _make_partner(
    one: _Chosen, plan: Plan, axes: list[str], outcomes: Mapping[str, Outcome], packages: dict[str, Path]
) -> Partner:
    parts, source = _tasks_by_stage(plan, one.cell), plan.sources[one.cell.key]
    score, reference = parts["score"], parts["reference"].params
    runtime = checks.resolved_runtime(one.cell)
    inputs = dict(packages)
    for role, key in _program_roles(parts).items():
        if (outcome := outcomes.get(key)) is not None and outcome.folder is not None:
            inputs.setdefault(role, outcome.folder)
    fetched = outcomes[parts["fetch"].key].folder if "fetch" in parts else None
    if checkpoint := source.folder or fetched:
        inputs["checkpoint"] = checkpoint
    built = {name: reference[name] for name in ("model", "weights", "seq_len")} | {"longest": source.max_seq_len}
    options = {"options": {**reference.get("options", {}), **score.params.get("options", {})}}
    label = one.cell.label(["model", *axes])
    name = f"{one.word}: {label}" if one.word else label
    return Partner(
        name if "runtime" in axes else f"{name} runtime={runtime}", one.cell, {**built, **score.params, **options},
        inputs, source.source if source.kind == "random" else f"{source.kind}: {source.source}",
    )  # fmt: skip
