"""Whom to talk to: cells of a matrix, whose programs are made as a sweep makes them and shared with it; or cells of a run,
whose packages are taken as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ane_sweep import engine, installed
from ane_sweep.bridge.cell import AXES, Cell
from ane_sweep.bridge.outcome import Outcome
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.record import Record, StageStatus
from ane_sweep.bridge.runtimes import RUNTIMES
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

GENERATE, CLASSIFY = ("causal_lm", "seq2seq"), ("classifier",)
_DOES = {
    **dict.fromkeys(GENERATE, "writes text: ane-sweep generate"),
    **dict.fromkeys(CLASSIFY, "classifies texts: ane-sweep classify"),
    **dict.fromkeys(("image_classifier", "image_encoder"), "takes pictures"),
    "audio_encoder": "takes sound",
    "encoder": "leaves embeddings of texts",
    "text_encoder": "leaves embeddings of texts",
}
_WANTED = {GENERATE: "a decoder (model=gpt2)", CLASSIFY: "a classifier of texts (model=distilbert)"}


@dataclass(frozen=True)
class Partner:
    """A cell that can be talked to: how it is called, and what its worker is told and given."""

    name: str
    cell: Cell
    params: dict[str, Any]
    inputs: dict[str, Path]
    weights: str

    def told(self) -> dict[str, Any]:
        """For --json."""
        return {
            "name": self.name,
            "weights": self.weights,
            "runtime": self.params["runtime"],
            "cell": self.cell.as_dict(),
        }


@dataclass(frozen=True)
class _Chosen:
    cell: Cell
    word: str = ""
    record: Record | None = None


class _Aside(engine.Terminal):
    """Tells what is prepared where something is; what comes from the cache alone is no news."""

    def __init__(self, store: Store):
        self.store = store

    def watch(self, plan: Plan) -> engine.View:
        return _Quiet() if all(map(self.store.has, plan.tasks.values())) else display.make(plan)


class _Quiet:
    def begin(self, task: Task) -> None: ...
    def end(self, task: Task, outcome: Outcome) -> None: ...
    def freeze(self) -> None: ...
    def at(self, task: Task, machine: str) -> None: ...
    def say(self, line: str) -> None:
        engine.TERMINAL.tell(line)

    def close(self) -> None: ...


@contextmanager
def partners(
    verb: str,
    words: Sequence[str],
    matrix: Sequence[str],
    own: Sequence[str],
    out: Path,
    count: int,
    tasks: tuple[str, ...],
    tokenizer: str | None,
) -> Iterator[tuple[list[Partner], Path]]:
    """(`count` cells that can be talked to, a folder for what is left meanwhile), for as long as the cache is held.

    words, matrix   RUN:axis=value words, and keys of a sweep; `own` are the verb's own, for a misspelt one
    tokenizer       a folder; None: the checkpoint's own

    Raises ConfigError, StageError where a program could not be made.
    """
    installed.need_worker(f"ane-sweep {verb}")
    _check_spelling(matrix, own)
    request = config.load(["-m", *matrix])
    chosen = [one for word in words for one in _of_run(out, word)]
    chosen += [_Chosen(cell) for cell in request.cells] if matrix or not words else []
    _check_count(chosen, count, request.axes)
    for one in chosen:
        check_kind(one.cell, tasks, verb)
    with open_store(out) as store:
        cells = {one.cell.key: one.cell for one in chosen}
        asked = Request(list(cells.values()), request.axes, request.settings, request.notes)
        plan = plan_for(asked, store, out)
        if plan.refused:
            raise ConfigError(list(dict.fromkeys(plan.refused.values())))
        if tokenizer is None:
            _check_tokenizers(plan)
        folder = store.scratch("talk")
        given = [_from_run(one, plan, store) for one in chosen]
        outcomes = _prepared(plan, chosen, store, request.settings, folder)
        axes = [axis for axis in varying(AXES, list(cells.values())) if axis != "model"]
        found = [_partner(one, plan, axes, outcomes, inputs) for one, inputs in zip(chosen, given)]
        yield [replace(one, params={**one.params, "tokenizer": tokenizer}) for one in found], folder


def check_kind(cell: Cell, tasks: tuple[str, ...], verb: str) -> None:
    """Raises ConfigError for a model of another kind, and for a program that gives no next token."""
    task = cell.model_options["task"]
    if task not in tasks:
        does = _DOES.get(task, "gives numbers whose meaning nobody told us")
        raise ConfigError(f"model={cell.model} {does}; ane-sweep {verb} takes {_WANTED[tasks]}")
    if cell.head == "last" and cell.cache == "none":
        raise ConfigError(
            "head=last gives logits of the window's last position alone, which is padding until the window is full; use "
            "head=all, or cache=stateful"
        )


def _check_tokenizers(plan: Plan) -> None:
    """Random weights have bytes for tokens; trained ones nothing but their own."""
    for cell in plan.cells:
        source = plan.sources[cell.key]
        if source.tokenizer is None and source.kind != "random":
            raise ConfigError(
                f"model={cell.model}: {source.source} has no tokenizer (tokenizer.json, or vocab.txt, or vocab.json and "
                "merges.txt); tokenizer=FOLDER gives one of another place"
            )


def _check_spelling(matrix: Sequence[str], own: Sequence[str]) -> None:
    for word in matrix:
        name = word.partition("=")[0].lstrip("+~")
        if name == "stop":
            raise ConfigError(f"{word}: unknown here (did you mean '--stop'?)")
        head = name.split(".")[0]
        if name not in schema.KEYS and head not in schema.GROUP_KEYS and (meant := suggestion(name, own)):
            raise ConfigError(f"{word}: unknown here{meant}")


def _of_run(out: Path, word: str) -> list[_Chosen]:
    """The cells that a word means. Raises ConfigError, RunNotFound."""
    found = []
    for record in sides.side(out, word).records:
        try:
            found.append(_Chosen(Cell(**record.cell), word, record))
        except TypeError:
            raise ConfigError(
                f"{word}: {record.sweep} is of another version of ane-sweep, whose cells have other axes; run it again"
            ) from None
    return found


def _check_count(chosen: list[_Chosen], count: int, axes: list[str]) -> None:
    if len(chosen) == count:
        return
    if count == 1 and chosen and chosen[0].record:
        delivery.one([one.record for one in chosen if one.record], chosen[0].word)  # which says the choices
    names = "; ".join(one.cell.label(["model", *(axis for axis in axes if axis != "model")]) for one in chosen[:12])
    if count == 1:
        raise ConfigError(f"{len(chosen)} cells ({names}): one is talked to; --compare takes two")
    raise ConfigError(
        f"--compare takes two cells, and these are {len(chosen)} ({names}): two runs' cells, or a list of two"
    )


def _roles(score: Task) -> dict[str, str]:
    """What a program is run from, by role; what its outputs are compared with is not needed."""
    roles = dict(score.inputs)
    del roles["reference"]
    return roles


def _parts(plan: Plan, cell: Cell) -> dict[str, Task]:
    """The cell's tasks that are looked at here, by stage."""
    return {task.stage: task for key in plan.chains[cell.key] for task in (plan.tasks[key],)}


def _needed(plan: Plan, one: _Chosen) -> list[str]:
    """Keys of what must be made, in order: the program with all that it is made from, and the checkpoint."""
    parts = _parts(plan, one.cell)
    roots = [parts["fetch"].key] if "fetch" in parts else []
    if one.record is None:
        roots += _roles(parts["score"]).values()
    found: set[str] = set()
    while roots:
        key = roots.pop()
        found.add(key)
        roots += [other for other in plan.tasks[key].inputs.values() if other not in found]
    return [key for key in plan.tasks if key in found]


def _prepared(
    plan: Plan, chosen: list[_Chosen], store: Store, settings: dict[str, Any], folder: Path
) -> Mapping[str, Outcome]:
    """Outcomes of the tasks that are needed. Raises StageError for the first that went wrong."""
    needed = {one.cell.key: _needed(plan, one) for one in chosen}
    keys = [key for key in plan.tasks if any(key in tasks for tasks in needed.values())]
    if not keys:
        return {}
    part = replace(plan, tasks={key: plan.tasks[key] for key in keys}, chains=needed, beside={})
    run = runs.Run(folder / "prepared", {})
    outcomes = engine.run_remaining(part, run, settings, store, _Aside(store))
    for key in keys:
        if not outcomes[key].done and outcomes[key].status is not StageStatus.BLOCKED:
            raise StageError(f"{plan.tasks[key].label}: {outcomes[key].status}: {outcomes[key].reason}")
    return outcomes


def _from_run(one: _Chosen, plan: Plan, store: Store) -> dict[str, Path]:
    """The packages that a run's cell left. Raises ConfigError, StoreError with what became of them."""
    if one.record is None:
        return {}
    if one.record.weights.digest != plan.sources[one.cell.key].digest:
        raise ConfigError(
            f"{one.word}: the weights of model={one.cell.model} are not those any more that {one.record.sweep} was made from; "
            "run it again"
        )
    if RUNTIMES[checks.resolved_runtime(one.cell)].needs != "program":
        return {}
    found = {"program": delivery.program(one.record, store)}
    made = {stage.stage: stage.key for stage in one.record.stages if stage.status in ("ok", "cached") and stage.key}
    if (key := made.get("compile")) and (folder := store.intact("compile", key)):
        found["compiled"] = folder
    return found


def _partner(
    one: _Chosen, plan: Plan, axes: list[str], outcomes: Mapping[str, Outcome], given: dict[str, Path]
) -> Partner:
    parts, source = _parts(plan, one.cell), plan.sources[one.cell.key]
    score, reference = parts["score"], parts["reference"].params
    runtime = checks.resolved_runtime(one.cell)
    inputs = dict(given)
    for role, key in _roles(score).items():
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
