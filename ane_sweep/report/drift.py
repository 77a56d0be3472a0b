"""The search for the ops that cost the worst cell its accuracy: a separate task, requested by `report --drift`.

At the end of a sweep it runs automatically only if a cell is below its precision's gate and its program is small. Its
result stays in the run's folder (drift.json) for every later report.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ane_sweep import installed, outward, terminal
from ane_sweep.bridge import conversion, disk, kept
from ane_sweep.bridge.record import Record
from ane_sweep.bridge.runtimes import program_kind
from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import Limits, TaskRequest
from ane_sweep.errors import AneSweepError, ConfigError, StageError
from ane_sweep.machine import memory
from ane_sweep.placement.types import Count
from ane_sweep.report import figures
from ane_sweep.report.blocks import Block, Grid, Para, Plots
from ane_sweep.runner import isolate
from ane_sweep.store.cache import Store

FILE_NAME = "drift.json"
COUNT = 10
SMALL_BYTES = 60_000_000
TIMEOUT_S, SMALL_TIMEOUT_S = 3600, 60
# What computes the cell's figures is the last of these; the first is what the others were made of.
PROGRAMS = [name for name, stage in reversed(STAGES.items()) if stage.leaves == "program"]


@dataclass(frozen=True)
class Op:
    """An op of the program: the distance of its value from the exact one, and the op's own share of it."""

    name: str
    type: str
    index: Count
    psnr_db: int | float
    own: int | float | None
    jump: int | float | None
    drift: int | float | None


@dataclass(frozen=True)
class ModuleLoss:
    """The drift in a torch module: see reference/drift_by_module.py."""

    path: str
    depth: Count
    values: Count
    before: int | float
    drift: int | float
    psnr_db: int | float


@dataclass(frozen=True)
class Drift:
    """The content of drift.json: see stages/drift.py."""

    model: str
    numerics: str
    psnr_db: int | float
    values: list[tuple[int | float, int | float]]
    grown: list[Op]
    lossy: list[Op]
    blocks: list[Op]
    left_out: str = ""
    modules: list[ModuleLoss] = field(default_factory=list)
    cell_key: str | None = None

    def with_texts(self, say: Callable[[str], str] = outward.make_public) -> "Drift":
        """Return a copy with `say` applied to every text."""
        return conversion.convert(outward.map_texts(msgspec.to_builtins(self), say), Drift)


def worst_cell(records: Sequence[Record]) -> int | None:
    """Return the position of the cell with the lowest PSNR among those whose program can be examined here, or None."""
    rated = [
        (psnr, n)
        for n, record in enumerate(records)
        if (psnr := record.value("psnr_db")) is not None
        and program_kind(record.realised.get("runtime")).packages
        and any(stage.stage in PROGRAMS for stage in record.stages)
    ]
    return min(rated, default=(0, None))[1]


def called_for(records: Sequence[Record]) -> bool:
    """Return True if the worst cell is below its gate and small enough to be examined without a request."""
    n = worst_cell(records)
    size = None if n is None else records[n].value("package_bytes")
    return n is not None and "PSNR" in (records[n].reason or "") and size is not None and size <= SMALL_BYTES


def look(
    folder: Path, records: Sequence[Record], store: Store, memory_bytes: int, timeout_s: float = TIMEOUT_S
) -> None:
    """Run stage drift on the worst cell and write drift.json to the run's folder.

    Raises ConfigError if no cell can be examined, StageError if the task failed.
    """
    installed.need_worker("--drift")
    n = worst_cell(records)
    if n is None:
        raise ConfigError("--drift: no cell of this sweep has a PSNR and a program of Core ML")
    inputs, place = _inputs(records[n], store), folder / "tasks" / "drift"
    disk.make_folder(folder, "tasks")
    disk.remove_tree(place)  # an earlier look
    (place / "out").mkdir(parents=True)
    key, limits = records[n].cell_key, Limits(memory_bytes)
    task = TaskRequest("drift", key, {"count": COUNT}, inputs, place / "out", place / "tmp", limits)
    result = isolate.run_task(task, place, timeout_s=timeout_s, watch_memory=True)
    if result.status != "ok":
        raise StageError(f"drift of the worst cell {result.status}: {result.reason}")
    facts = {"cell_key": records[n].cell_key, "psnr_db": records[n].value("psnr_db"), "model": records[n].cell["model"]}
    disk.write_json(folder / FILE_NAME, {**facts, **result.realised, **result.facts})


def _inputs(record: Record, store: Store) -> dict[str, Path]:
    """Return the artifacts of the cell that the task needs. Raises ConfigError if the cache no longer has one."""
    keys = {stage.stage: stage.key for stage in record.stages if stage.key and stage.status in ("ok", "cached")}
    made = [stage for stage in PROGRAMS if stage in keys]
    wanted = {"program": made[0] if made else PROGRAMS[-1], "reference": "reference"}
    if len(made) > 1:
        wanted["exact"] = made[-1]
    found = {role: store.intact(stage, keys.get(stage, "")) for role, stage in wanted.items()}
    if missing := [wanted[role] for role, path in found.items() if path is None]:
        raise ConfigError(
            f"--drift: the cache no longer holds the {' and '.join(missing)} of the worst cell; run the sweep again first"
        )
    return {role: path for role, path in found.items() if path is not None}


def read(folder: Path) -> Drift | None:
    """Return drift.json of a run, or None if it is absent or has another form."""
    return kept.as_kind(disk.read_json(folder / FILE_NAME), Drift)


def blocks(found: Drift) -> list[Block]:
    """Return the blocks that show drift.json: the loss along the program as a plot, the ops that lose most, the layers."""
    marks = [(item.index, item.psnr_db, f"{item.name} ({item.type})") for item in found.grown]
    words = (
        f"{found.model}, PSNR {found.psnr_db:.1f} dB over all inputs: each value of its program on the first "
        f"input ({found.numerics}) against the same in fp32. Distances are relative to the value's peak. Where the "
        "drift grows though the op loses little by itself, what was lost before is laid bare: large values cancel."
    )
    if found.left_out:
        words += f" Values of the two programs are matched by their place in them; {found.left_out}."
    if not any(math.isfinite(db) for _, db in found.values):
        return [Para(f"{words} None of its values has a distance that can be drawn.")]
    caption = "points: where the drift grows most" if marks else "no op was found at which the drift grows"
    made: list[Block] = [Para(words), Plots([(figures.drift(found.values, marks, "drift"), caption)])]
    for items, head in ((found.grown, "where the drift grows most"), (found.lossy, "loses most by itself")):
        heads = [head, "type", "op", "PSNR dB there", "lost by itself", "growth", "drift"]
        made += [Grid(heads, list(map(_row, items)), [False, False] + [True] * 5)] if items else []
    if found.modules:
        losses = [
            [one.path, str(one.values), f"{one.before:.1e}", f"{one.drift:.1e}", f"{one.psnr_db:.1f}"]
            for one in found.modules
        ]
        heads = ["torch module", "values", "drift before it", "drift at its end", "PSNR dB at its end"]
        made.append(Grid(heads, losses, [False] + [True] * 4, fold=f"drift by torch module: {len(losses)} rows"))
    if found.blocks:
        rows = [[str(n), str(item.index), item.name, f"{item.psnr_db:.1f}"] for n, item in enumerate(found.blocks)]
        fold = f"what {len(rows)} blocks hand on, in order"
        made.append(Grid(["block", "op", "value", "PSNR dB"], rows, [True, True, False, True], fold=fold))
    return made


def _row(op: Op) -> list[str]:
    rates = ("-" if rate is None else f"{rate:.1e}" for rate in (op.own, op.jump, op.drift))
    return [op.name, op.type, str(op.index), f"{op.psnr_db:.1f}", *rates]


def look_where_called_for(folder: Path, records: list[Record], store: Store) -> None:
    """Examine the worst cell at the end of a sweep if it is below its gate and small. A failure is only a warning."""
    if not called_for(records):
        return
    try:
        look(folder, records, store, memory.memory_budget(None), SMALL_TIMEOUT_S)
    except AneSweepError as error:
        terminal.say(f"doubt: {error}")
