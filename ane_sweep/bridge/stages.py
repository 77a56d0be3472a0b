"""The declarations of stages: the literal STAGE of each module stages/NAME.py. Only the edges between stages are elsewhere, in
tasks.py.
"""

from dataclasses import dataclass
from typing import Literal

from ane_sweep.bridge.declared import Declared


@dataclass(frozen=True)
class Stage:
    """One stage of a cell, as planner and runner see it.

    order        its place in every list of stages
    many         what people call several of its tasks: "conversions"
    timeout_s, memory_gib   the defaults of `limits`
    base_gib, per_byte      estimated memory: of a process that does nothing yet; bytes per byte of the parameters in fp32
    leaves       what lies in its folder, for the estimate of disk: a program that computes other figures than the one it is
                 made of, the same program in another form, or the outputs of the model
    compressed   of a program: its weights are those of the recipe, where the cell has one
    planned      False: no part of a cell's plan, asked for by a report
    stored       its result is kept in the cache. What is timed, or asked of Core ML about this machine, is never reused, and a
                 checkpoint lies in the hub's own cache
    artifact     its files are named in the record
    network      it may use the network
    alone        nothing else runs meanwhile
    last         it loads the machine for long: when everything else is done
    runs_program its process compiles or runs the program: what Core ML prints there belongs to the verdict, and it runs alone
                 where the runtime asks for that
    on_coreml    it asks Core ML itself, whatever the runtime
    compiles_for_ane        Core ML compiles for the Neural Engine in it, which can take hours and kill
    pooled       it times: its processes' figures are pooled, and no cell is without one
    fatal        False: when it fails the cell keeps its figures, with a doubt
    guess_s, guess_per_gb   seconds that a task is taken to last where none like it was ever run: of a process that does
                 little, and for each GB of parameters in fp32
    limited      False: it is short, and the user cannot set its limits; a cell, whose key holds all limits, says nothing of it
    reads        data files that decide its result beside code, as patterns below the package
    warm         modules that its process always loads: it is forked from a parent that has them (runner/fork_server.py).
                 Nothing: it is started cold
    holds        how much of a model of families it holds at once, which the estimate of memory knows: all of it, "few blocks"
                 (worker/grow/) or "a layer" (worker/models/_turns.py)
    ignores      modules that its code reaches and that decide nothing of its result
    parts        parts of a program kind that it calls: modules of the kind's folder (worker/programs/)
    packages     it reads programs as packages, through mil/: kinds whose programs are none have no such stage
    """

    order: int
    many: str
    timeout_s: int
    base_gib: float
    per_byte: float
    memory_gib: int | float | None = None
    leaves: Literal["nothing", "program", "same program", "outputs"] = "nothing"
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
    guess_s: float = 10.0
    guess_per_gb: float = 30.0
    limited: bool = True
    reads: tuple[str, ...] = ()
    warm: tuple[str, ...] = ()
    holds: Literal["all", "few blocks", "a layer"] = "all"
    ignores: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    packages: bool = False

    def guess(self, work: int) -> float:
        """Return the estimated seconds of a task over `work` bytes of parameters (fp32), fitted to small and large models on two cores."""
        return self.guess_s + self.guess_per_gb * work / 1e9


ALL = Declared("ane_sweep.worker.stages", "STAGE", Stage, lambda stage: stage.order)
STAGES = {name: stage for name, stage in ALL.items() if stage.planned}


def limits() -> dict[str, dict[str, float | None]]:
    """Return the block `limits` of the configuration as the stages declare it."""
    return {name: limit(stage) for name, stage in STAGES.items() if stage.limited}


def limit(stage: Stage) -> dict[str, float | None]:
    return {"timeout_s": stage.timeout_s, "memory_gib": stage.memory_gib}
