"""Checks of cells before anything runs: unknown names, impossible combinations, dubious ones."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from ane_sweep import data
from ane_sweep.bridge import axes, families, programs, recipes, shapes
from ane_sweep.bridge.axes import TARGETS
from ane_sweep.bridge.cell import DECLARED, Cell
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.plan import Place, Source
from ane_sweep.bridge.runtimes import RUNTIMES, cannot, program_kind
from ane_sweep.errors import ConfigError, suggestion
from ane_sweep.machine import host, stand_in, usb
from ane_sweep.mil import effects
from ane_sweep.placement import chips
from ane_sweep.planner import chunking, compressing, packages, rewriting


def resolved_runtime(cell: Cell, place: Place | None = None) -> str:
    """Return the cell's runtime; `auto` picks the first of its toolchain that can run here or at `place`: coreml, else the
    reference runtime. If none can, it is the first, whose refusal says why.
    """
    if cell.runtime != "auto":
        return cell.runtime
    known = sorted((traits.auto, name) for name, traits in RUNTIMES.items() if traits.auto)
    wanted = [name for _, name in known if program_kind(name).toolchain == cell.toolchain]
    return next((name for name in wanted if _cannot(name, place) is None), wanted[0])


def _cannot(runtime: str, place: Place | None) -> str | None:
    return cannot(runtime) if place is None else place.cannot.get(runtime)


def elsewhere(cell: Cell, source: Source, runtime: str, place: Place | None) -> str | None:
    """Return the reason why the requested machine cannot measure a cell, or None if it can."""
    if place is not None and cell.device == "usb":
        return "device=usb: a fleet's workers measure themselves; run it on the Mac that has the phone, with executor=local"
    if (
        place is not None
        and RUNTIMES[runtime].needs == "checkpoint"
        and (source.folder or source.beside or source.fetch)
    ):
        return (
            f"runtime={runtime} with executor=dask: it builds {cell.model} from files that only this machine has; use "
            "runtime=reference or coreml, whose program is sent, or executor=local"
        )
    chip = host.chip_name(host.chip())
    if place is not None or cell.machine in (None, chip):
        return None
    return (
        f"machine={cell.machine}: executor=local measures on this machine alone, whose chip is {chip}; use machine=null, or "
        "executor=dask executor.address=tls://HOST:8786 (ane-sweep help fleet)"
    )


def unknown_names(cell: Cell) -> list[str]:
    found = []
    if cell.family not in families.names():
        found.append(
            f"model={cell.model}: unknown family {cell.family!r}{suggestion(cell.family, families.names())}; "
            f"known: {', '.join(families.names())}. "
            f"A new one is ane_sweep/worker/models/{cell.family}.py and conf/model/NAME.yaml"
        )
    elif said := families.problem(cell.family):
        found.append(said)
    if said := RUNTIMES.problem(cell.runtime):
        found.append(said)
    elif cell.runtime != "auto" and cell.runtime not in RUNTIMES:
        found.append(
            f"runtime={cell.runtime}: unknown{suggestion(cell.runtime, ['auto', *RUNTIMES])}; choices: auto, {', '.join(RUNTIMES)}. "
            f"A new one is ane_sweep/worker/runtimes/{cell.runtime}.py"
        )
    if cell.limits_for is not None:
        found += [f"limits_for: {problem.removeprefix('chips: ')}" for problem in unknown_chips([cell.limits_for])]
    return found


def unknown_chips(names: Sequence[str]) -> list[str]:
    found = []
    for name in names:
        try:
            chips.get(name)
        except ConfigError as error:
            found += [f"chips: {problem}" for problem in error.problems]
    return found


def refusal(cell: Cell, source: Source, runtime: str, place: Place | None = None) -> str | None:
    """Return the reason why this combination is impossible, with a remedy, or None if it can be tried.

    These are the rules that need the planner; each axis declares its own rules.
    """
    honours = RUNTIMES[runtime].honours
    if cell.variant not in (known := families.variants(cell.family)):
        if rewriting.takes_variant(cell):
            if RUNTIMES[runtime].needs != "program":
                return f"variant={cell.variant} of {cell.model} rewrites its program, and runtime={runtime} has none: variant=original"
        elif cell.model_settings.is_given:
            return f"variant={cell.variant} rewrites the models that are built here; {cell.model} is taken as it is: variant=original"
        else:
            return f"{cell.family} has no variant {cell.variant}; it has {', '.join(known)}"
    asked: axes.Asked = {
        **cell.as_dict(),
        "task": cell.model_settings.task,
        "compute": cell.precision_settings.compute,
        "ios_target": cell.ios_target,
        "runtime": runtime,
        "honours": honours,
        "longest": source.max_seq_len,
        "vocabulary": cell.kind.count_ids(source.arch),
    }
    if reason := axes.refusal(_REFUSING, asked):
        return reason
    count = cell.model_settings.texts.count
    if cell.kind.reads == "sentences" and count > len(data.sentences()):
        return f"model.texts.count={count} is more than the {len(data.sentences())} sentences that are scored on"
    if cell.latency["repeats"] == 0 and (timed := [name for name in _TIMED if cell.value(name) != _TIMED[name]]):
        return f"{timed[0]}={cell.value(timed[0])} is a timing, and latency=off times nothing: leave one of them out"
    if reason := _cannot(runtime, place):
        there = f" on {' or '.join(place.names)}" if place else ""
        is_ours = program_kind(runtime).toolchain == DECLARED["toolchain"].plain
        instead = "; runtime=reference runs anywhere" if is_ours else ""
        return f"runtime={runtime} {reason}{there}{instead}"
    if reason := _refuse_kind(cell, source, runtime):
        return reason
    if "chunks" in honours and (reason := chunking.refusal(cell, source)):
        return reason
    if cell.device == "usb" and (reason := usb.refusal()):
        return reason
    if source.kind == packages.KIND:
        if reason := packages.refusal(cell, source, runtime):
            return reason
        return precision_refusal(cell, source.arch["target"], f"{source.source} is of")
    return precision_refusal(cell, cell.ios_target, "not")


def _refuse_kind(cell: Cell, source: Source, runtime: str) -> str | None:
    """Return why the runtime's kind of program does not offer what the cell needs, or None if it does."""
    if RUNTIMES[runtime].needs != "program":
        return None
    kind, about, found = RUNTIMES[runtime].program, program_kind(runtime), None
    if source.kind == packages.KIND:
        found = programs.refuse(kind, "adopt", f"model={cell.model} is a package")
    if rewriting.choose(cell):
        found = found or programs.refuse(kind, "rewrite", f"rewrite={format_value(cell.rewrite)}")
    found = found or compressing.refusal(cell, kind, source.kind == packages.KIND)
    for name in about.lacks:
        if (value := cell.value(name)) != (plain := DECLARED[name].plain):
            found = found or f"{name}={value}: {about.title} is made without it; {name}={plain}"
    inputs = source.arch.get("inputs")
    if kind != programs.DEFAULT and isinstance(inputs, dict) and any(one.flexible for one in shapes.read(inputs)):
        found = found or f"model.inputs: {about.title} is made for inputs of one shape; name one, or toolchain=coreml"
    if cell.precision_settings.fp32_ops and not about.packages:
        packaged = programs.PROGRAMS[programs.DEFAULT].title
        found = found or f"precision={cell.precision}: fp32_ops select ops of {packaged}"
    if chunking.is_cut(cell):
        found = found or programs.refuse(kind, "chunk", f"chunks={cell.chunks}")
    return found


_TIMED = {"throughput": 0, "copies": 1}  # axes that only a timing shows -> the value that asks for none
_SLOW_MINUTES = 0.5  # from so long a wait for one prediction on, it is said before

_REFUSING = {name: axis for name, axis in DECLARED.items() if axis.unhonoured or axis.only or axis.refuses}


def numerics(cell: Cell) -> dict[str, str | list[str] | None]:
    """Return the resolved mode of numerics and its effects, as parameters for a runtime that supports them."""
    name = cell.precision_settings.compute if cell.numerics == "auto" else cell.numerics
    return {"numerics": name, "effects": list(effects.select_effects(cell.effects)) if name == "ane" else None}


def idle(honours: Collection[str]) -> set[str]:
    """Return the axes that a runtime ignores if it supports only `honours`."""
    return {name for name, axis in DECLARED.items() if axis.honoured and axis.honoured not in honours}


def applicable(cell: Cell, axes: Sequence[str]) -> list[str]:
    """Return the axes that affect the cell's model under any runtime."""
    return [axis for axis in axes if axis != "seq_len" or cell.kind.length != "architecture"]


def precision_refusal(cell: Cell, has: str, instead: str) -> str | None:
    """Return why the OS `has` does not support the cell's precision, or None; `instead` begins the remedy."""
    options = cell.precision_settings
    needs = [(options.min_target, "")]
    if (recipe := recipes.canonical(options.weights)) is not None:
        target, what = recipes.least_target(recipe)
        needs.insert(0, (target, f" ({what})"))
    least, what = max(needs, key=lambda need: TARGETS.index(need[0]))
    if TARGETS.index(has) < TARGETS.index(least):
        return f"precision={cell.precision} needs target={least} or newer{what}, {instead} {cell.target if instead == 'not' else has}"
    if recipe is not None and cell.cache != "none":
        return (
            f"precision={cell.precision}: coremltools 9.0 compresses programs of one function, and cache={cell.cache} has two; "
            "use cache=none, or precision=fp16"
        )
    if options.compute == "fp32" and options.fp32_ops:
        return f"precision={cell.precision}: fp32_ops keeps ops of an fp16 program in fp32, and compute=fp32 is all of them"
    return None


def _slow(cells: Sequence[Cell], sources: Collection[Source]) -> list[str]:
    """Return a warning with the estimated minutes if numerics=ane rounds every product of a model."""
    if not any("products" in (numerics(cell)["effects"] or ()) for cell in cells):
        return []
    largest = max((source.parameter_bytes / 4 for source in sources), default=0)
    tokens = max(1 if cell.model_settings.is_given else cell.seq_len for cell in cells)
    minutes = largest * tokens * effects.PRODUCT_NS / 6e10
    return [
        f"numerics=ane rounds every product by itself, some 250 times as long as fp16's products: a prediction of the largest model "
        f"takes at least {minutes:.1f} minutes of one core (estimated, {effects.PRODUCT_NS:g} ns a product); effects without `products` "
        "take a fraction of that"
    ] * (minutes >= _SLOW_MINUTES)


def notes(
    cells: Sequence[Cell], axes: Sequence[str], sources: Collection[Source], places: Mapping[str, Place] | None = None
) -> list[str]:
    """Return warnings about legal but dubious requests, shown before the first process starts."""
    found = [note for source in sources for note in source.notes]
    if script := stand_in.active():
        found.append(
            f"stand-in: no Mac takes part; what Core ML and macOS would say comes from the script {script.label()}"
        )
    pointless = [c for c in cells if c.precision_settings.compute == "fp32" and c.compute_units == "cpu_and_ne"]
    if pointless:
        found.append(
            f"precision=fp32 with compute_units=cpu_and_ne is pointless ({len(pointless)} cells): the Neural Engine takes no fp32 op, "
            "all will run on the CPU; use precision=fp16"
        )
    if "target" in axes and any(source.kind == packages.KIND for source in sources):
        found.append(
            "target not applicable to model=package: a package keeps the opset that it was saved with, so cells that differ only in "
            "it share their work"
        )
    if taken := list(dict.fromkeys(cell.model for cell in cells if rewriting.takes_variant(cell))):
        found.append(
            f"variant=split_einsum of {', '.join(taken)} is taken as rewrite=ane: the converted program is rewritten where the first "
            "of `chips` gains (`ane-sweep fix --list`)"
        )
    inputs: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))  # of each model, at each seq_len
    for cell in cells:
        if cell.model_settings.is_given:
            inputs[cell.model][cell.seq_len].add(repr(cell.model_settings.inputs))
    given = [model for model, by_length in inputs.items() if len({*map(frozenset, by_length.values())}) == 1]
    if given and "seq_len" in axes:
        found.append(
            f"seq_len not applicable: {', '.join(given)} brings its shapes, so cells that differ only in it share their work"
        )
    for name in dict.fromkeys(resolved_runtime(cell, (places or {}).get(cell.key)) for cell in cells):
        varied = {axis: {repr(cell.value(axis)) for cell in cells} for axis in axes}
        found += [
            f"{axis} not applicable: runtime={name} does not know it, so cells that differ only in it share their work"
            for axis in axes
            if len(varied[axis]) > 1 and axis in idle(RUNTIMES[name].honours)
        ]
    found += _slow(cells, sources)
    for cell in cells:
        if cell.kind.length == "architecture" and cell.seq_len != DECLARED["seq_len"].plain:
            found.append(f"seq_len not applicable: the input of model={cell.model} has one size, whatever seq_len is")
    return list(dict.fromkeys(found))
