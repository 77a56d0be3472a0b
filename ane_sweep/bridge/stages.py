"""The declarations of stages: the literal STAGE of each module stages/NAME.py. The dependencies between stages are in tasks.py."""

from dataclasses import dataclass
from typing import Literal

from ane_sweep.bridge.declared import Declared


@dataclass(frozen=True)
class Stage:
    """One stage of a cell, as planner and runner see it.

    order        its rank in every list of stages
    many         the plural for its tasks in messages: "conversions"
    timeout_s, memory_gib   the defaults of `limits`
    base_gib, per_byte      estimated memory: GiB of an idle process, and bytes per byte of fp32 parameters
    leaves       the content of its folder, for the estimate of disk space: a changed program, the same program in
                 another form, the model's outputs, or installed packages
    compressed   whether the program that it leaves has compressed weights, if the cell has a recipe
    planned      False: not part of a cell's plan; a report requests it
    stored       its result is cached. Timings and Core ML's answers about this machine are never reused, and
                 checkpoints are in the hub's own cache
    artifact     its files are named in the record
    network      it may use the network
    alone        no other task runs at the same time
    last         it loads the machine for long: it runs when everything else is done
    runs_program its process compiles or runs the program: Core ML's output there is evidence for the verdict, and it
                 runs alone if the runtime is `alone`
    on_coreml    it calls Core ML, with any runtime
    compiles_for_ane        Core ML compiles for the Neural Engine in it, which can take hours and kill the process
    pooled       it times: figures of its processes are pooled
    fatal        False: if it fails the cell keeps its figures, with a warning
    base_s, per_gb_s   estimated seconds of a process that does little, and for each GB of fp32 parameters (planner/durations.py)
    limited      False: it is short, so the user cannot set its limits, and cells hold none for it
    reads        data files that affect its result, as patterns below the package
    warm         modules that its process always loads: it is forked from a process that has them
                 (runner/fork_server.py). Empty: it starts cold
    holds        the part of one of our models that it holds in memory at once: all of it, "few blocks" (worker/grow/),
                 "a layer" (worker/models/_turns.py), "a weight" (worker/compress/streaming.py), "kept weights" (reference/constants.py)
                 or "nothing" (but for pipeline=bisect)
    outputs, scores   how often it holds the outputs of an input, and the attention scores of a layer, in fp32
    parts        the parts of a program kind that it calls: modules of the kind's folder (worker/programs/)
    packages     it reads programs as packages, through mil/: other program kinds lack this stage
    """

    order: int
    many: str
    timeout_s: int
    base_gib: float
    per_byte: float
    memory_gib: int | float | None = None
    leaves: Literal["nothing", "program", "same program", "outputs", "packages"] = "nothing"
    compressed: bool = False
    planned: bool = True
    stored: bool = True
    artifact: bool = False
    network: bool = False
    alone: bool = False
    last: bool = False
    runs_program: bool = False
    on_coreml: bool = False
    compiles_for_ane: bool = False
    pooled: bool = False
    fatal: bool = True
    base_s: float = 10.0
    per_gb_s: float = 30.0
    limited: bool = True
    reads: tuple[str, ...] = ()
    warm: tuple[str, ...] = ()
    holds: Literal["all", "few blocks", "a layer", "a weight", "kept weights", "nothing"] = "all"
    outputs: float = 2
    scores: float = 2
    parts: tuple[str, ...] = ()
    packages: bool = False


ALL = Declared("ane_sweep.worker.stages", "STAGE", Stage, lambda stage: stage.order)
STAGES = {name: stage for name, stage in ALL.items() if stage.planned}


def limits() -> dict[str, dict[str, float | None]]:
    """Return the defaults of the configuration's block `limits`, as the stages declare them."""
    return {name: limit(stage) for name, stage in STAGES.items() if stage.limited}


def limit(stage: Stage) -> dict[str, float | None]:
    return {"timeout_s": stage.timeout_s, "memory_gib": stage.memory_gib}
