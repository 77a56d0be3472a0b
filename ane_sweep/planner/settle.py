"""The inputs of a plan besides its cells: every model's weights, the durations of past tasks, and this host."""

from collections.abc import Callable, Mapping
from pathlib import Path

from ane_sweep.bridge.cell import Cell, canonical_json
from ane_sweep.bridge.executors import find_places
from ane_sweep.bridge.plan import Plan, Source
from ane_sweep.bridge.stages import STAGES
from ane_sweep.errors import Away, ConfigError
from ane_sweep.machine import host
from ane_sweep.planner import checkpoints, exported, modules, onnx_files, packages, scoring
from ane_sweep.planner import plan as planning
from ane_sweep.planner.matrix import Request
from ane_sweep.store.cache import Store

# Family of a model that is given by its path -> (option, weights, seed, digests) -> what it is made from
GIVEN: dict[str, Callable[[Mapping[str, object], str, int, Path], Source]] = {
    "module": modules.resolve_checked,
    "package": packages.resolve,
    "onnx": onnx_files.resolve,
    "exported": exported.resolve,
}


def plan_for(request: Request, store: Store, out: Path, *, to_show: bool = False) -> Plan:
    """Resolve every model's weights, then plan. Raises ConfigError with every problem of every model.

    to_show   the plan is only shown: weights on an unreachable hub are planned as if available
    """
    alike = {cell.key: weights_identity(cell) for cell in request.cells}
    firsts: dict[tuple[object, ...], Cell] = {}
    for cell in request.cells:
        firsts.setdefault(alike[cell.key], cell)
    settled: dict[tuple[object, ...], Source] = {}
    problems: list[str] = []
    away: dict[str, Away] = {}
    for key, cell in firsts.items():
        try:
            settled[key] = _source(cell, out / "cache" / "digests.json")
        except Away as error:
            away[error.model] = error
            settled[key] = checkpoints.absent(cell.model_settings, error)
        except ConfigError as error:
            problems += error.problems
    try:
        examples = scoring.read_examples(request.cells)
    except ConfigError as error:
        problems += error.problems
    if away and not to_show:
        problems.insert(0, _nothing_at_hand(list(away.values())))
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    past = store.past()
    places = find_places(request.settings, {cell.machine for cell in request.cells}, wait=not to_show)
    return planning.make_plan(
        request.cells, request.axes, {key: settled[same] for key, same in alike.items()},
        host=host.digest(), toolchain=host.toolchain(), predict_for=request.settings.chips,
        history={stage: [entry for entry in past if entry.stage == stage][-500:] for stage in STAGES},
        notes=[*request.notes, *([_as_if_fetched(list(away.values()))] if away else [])],
        examples=examples, places=places,
    )  # fmt: skip


def _nothing_at_hand(away: list[Away]) -> str:
    if len(away) == 1:
        return away[0].problems[0]
    names = ", ".join(one.model for one in away)
    return (
        f"no weights of {names}: not in the hub's cache, and {away[0].why}. The same command with weights=random runs on "
        "random ones, labelled in every result; weights=FOLDER takes a folder with one sub-folder per model"
    )


def _as_if_fetched(away: list[Away]) -> str:
    names = ", ".join(one.model for one in away)
    return (
        f"no weights of {names} here, and {away[0].why}: planned as if it could; the same command with weights=random runs "
        "on random ones"
    )


def _source(cell: Cell, digests: Path) -> Source:
    """Return the weights of a cell's model. `digests` caches those of large files. Raises ConfigError."""
    if cell.model_settings.is_given:
        return GIVEN[cell.family](cell.model_options, cell.weights, cell.seed, digests)
    return checkpoints.resolve(
        cell.model_options, cell.weights, seed=cell.seed, allow_pickle=cell.allow_pickle, digests=digests
    )


def weights_identity(cell: Cell) -> tuple[object, ...]:
    """Return a key such that cells with equal keys have the same weights; an axis may change the architecture."""
    options = {name: value for name, value in cell.model_options.items() if name != "texts"}
    return cell.weights, cell.seed, cell.allow_pickle, canonical_json(options)
