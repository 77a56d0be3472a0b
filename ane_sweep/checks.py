"""What can be said about cells before anything runs: unknown names, impossible combinations, doubtful ones."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ane_sweep import chunking, data, models, recipes, runtimes, stand_in, usb
from ane_sweep.bridge.runtimes import RUNTIMES
from ane_sweep.cell import TARGETS, Cell
from ane_sweep.checkpoints import Source
from ane_sweep.errors import ConfigError
from ane_sweep.models import _options
from ane_sweep.placement import chips
from ane_sweep.runtimes import _copies
from ane_sweep.runtimes._reference import effects

COPIES = ("copies", "copies_kind", "copies_order", "copies_sizes")
# axes that a runtime may have no use for
APPLICABLE = (
    *("chunks", *chunking.AXES, *COPIES),
    *("compute_units", "precision", "target", "numerics", "effects", "compiler", "device"),
)


def resolved_runtime(cell: Cell) -> str:
    """`auto` is the first of those that offer themselves and can run: coreml, else the reference runtime."""
    if cell.runtime != "auto":
        return cell.runtime
    wanted = sorted((traits.auto, name) for name, traits in RUNTIMES.items() if traits.auto)
    return next(name for _, name in wanted if runtimes.get(name).available() is None)


def unknown_names(cell: Cell) -> list[str]:
    found = []
    if cell.family not in models.names():
        found.append(
            f"model={cell.model}: unknown family {cell.family!r}; known: {', '.join(models.names())}. "
            f"A new one is ane_sweep/models/{cell.family}.py and conf/model/NAME.yaml"
        )
    if cell.runtime != "auto" and cell.runtime not in RUNTIMES:
        found.append(
            f"runtime={cell.runtime}: unknown; choices: auto, {', '.join(RUNTIMES)}. "
            f"A new one is ane_sweep/runtimes/{cell.runtime}.py"
        )
    if cell.limits_for is not None:
        found += [f"limits_for: {problem.removeprefix('chips: ')}" for problem in unknown_chips([cell.limits_for])]
    if not all(isinstance(share, (int, float)) and 0 < share <= 1 for share in cell.copies_sizes or [1]):
        found.append(f"copies_sizes={cell.copies_sizes}: expected shares of the program, above 0 and at most 1")
    try:
        effects.chosen(cell.effects)
    except ConfigError as error:
        found += [f"effects: {problem}" for problem in error.problems]
    return found


def unknown_chips(names: Sequence[str]) -> list[str]:
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
        target=cell.ios_target,
        vocabulary=source.arch.get("vocab_size", 0),
    )
    if built:
        return built
    count = cell.model_options["texts"]["count"]
    if cell.model_options["task"] != "causal_lm" and count > len(data.sentences()):
        return f"model.texts.count={count} is more than the {len(data.sentences())} sentences that are scored on"
    if reason := runtimes.get(runtime).available():
        return f"runtime={runtime} {reason}; runtime=reference runs anywhere"
    honours = RUNTIMES[runtime].honours
    if "chunks" in honours and (reason := chunking.refusal(cell, source)):
        return reason
    if "chunks" not in honours and cell.copies > 1:
        return f"copies={cell.copies}: runtime={runtime} loads no program; use runtime=reference or coreml"
    if cell.copies_kind == "different" and cell.copies > _copies.MOST_DIFFERENT:
        return f"copies={cell.copies} copies_kind=different: at most {_copies.MOST_DIFFERENT} are told apart; use identical"
    if cell.copies_sizes and (cell.copies == 1 or cell.chunks != 1):
        return "copies_sizes: the sizes of several copies of one whole program; use copies=2 or more, and chunks=1"
    if cell.device == "usb" and "device" not in honours:
        return f"device=usb is Core ML on an iPhone or iPad; runtime={runtime} knows no device: runtime=coreml"
    if cell.device == "usb" and (reason := usb.refusal()):
        return reason
    if reason := _numerics_refusal(cell, runtime) or _cache_refusal(cell):
        return reason
    return _precision_refusal(cell)


def _cache_refusal(cell: Cell) -> str | None:
    """What knows nothing of two functions over shared states."""
    if cell.cache != "stateful":
        return None
    if cell.copies > 1:
        return f"copies={cell.copies} with cache=stateful is not built: copies are timed by whole predictions; use copies=1"
    if cell.device == "usb":
        return "device=usb with cache=stateful is not built: predictions there keep no states; use device=local"
    return None


def _numerics_refusal(cell: Cell, runtime: str) -> str | None:
    compute = cell.precision_options["compute"]
    if cell.numerics != "auto" and "numerics" not in RUNTIMES[runtime].honours:
        return f"numerics={cell.numerics}: runtime={runtime} computes as it does; numerics=auto, or runtime=reference"
    if cell.effects is not None and cell.numerics != "ane":
        return f"effects={','.join(cell.effects)} mean something with numerics=ane alone, not with {cell.numerics}"
    if cell.numerics in ("fp16", "ane") and compute == "fp32":
        return (
            f"numerics={cell.numerics} is about fp16 values, and precision={cell.precision} has none; use numerics=auto"
        )
    return None


def numerics(cell: Cell) -> dict[str, Any]:
    """The mode and its effects, settled: what a runtime that honours them is told, and what enters its keys."""
    name = cell.precision_options["compute"] if cell.numerics == "auto" else cell.numerics
    return {"numerics": name, "effects": list(effects.chosen(cell.effects)) if name == "ane" else None}


def idle(honours: Collection[str]) -> set[str]:
    """The axes that a runtime of those `HONOURS` has no use for; what is about chunks and copies goes with the chunks."""
    follow = dict.fromkeys((*chunking.AXES, *COPIES), "chunks")
    return {axis for axis in APPLICABLE if follow.get(axis, axis) not in honours}


def _precision_refusal(cell: Cell) -> str | None:
    options = cell.precision_options
    needs = [(options["min_target"], "")]
    if (recipe := recipes.canonical(options["weights"])) is not None:
        target, what = recipes.least_target(recipe)
        needs.insert(0, (target, f" ({what})"))
    least, what = max(needs, key=lambda need: TARGETS.index(need[0]))
    if TARGETS.index(cell.ios_target) < TARGETS.index(least):
        return f"precision={cell.precision} needs target={least} or newer{what}, not {cell.target}"
    if recipe is not None and cell.cache == "stateful":
        return (
            f"precision={cell.precision}: coremltools 9.0 compresses programs of one function, and cache=stateful has two; "
            "use cache=none, or precision=fp16"
        )
    if options["compute"] == "fp32" and options["fp32_ops"]:
        return f"precision={cell.precision}: fp32_ops keeps ops of an fp16 program in fp32, and compute=fp32 is all of them"
    return None


def built_with(cell: Cell) -> _options.Options:
    """The options of models/_options.py that a cell asks for."""
    return _options.Options(**{name: getattr(cell, name) for name in _options.NAMES})


def notes(cells: Sequence[Cell], axes: Sequence[str], sources: Iterable[Source]) -> list[str]:
    """Legal, but worth a word before the first process."""
    found = [note for source in sources for note in source.notes]
    if script := stand_in.active():
        found.append(
            f"stand-in: no Mac takes part; what Core ML and macOS would say comes from the script {script.label()}"
        )
    pointless = [c for c in cells if c.precision_options["compute"] == "fp32" and c.compute_units == "cpu_and_ne"]
    if pointless:
        found.append(
            f"precision=fp32 with compute_units=cpu_and_ne is pointless ({len(pointless)} cells): the Neural Engine takes no fp32 op, "
            "all will run on the CPU; use precision=fp16"
        )
    for name in dict.fromkeys(resolved_runtime(cell) for cell in cells):
        unused = [axis for axis in axes if axis in idle(RUNTIMES[name].honours)]
        for axis in unused:
            found.append(
                f"{axis} not applicable: runtime={name} does not know it, so cells that differ only in it share their work"
            )
    return list(dict.fromkeys(found))
