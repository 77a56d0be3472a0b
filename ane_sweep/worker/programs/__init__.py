"""Kinds of programs, one folder each, with everything that one toolchain does to a model. The folder's name is the
kind.

    KIND/__init__.py  PROGRAM, a literal that is read without importing it: see bridge/programs.py
    KIND/convert.py   a Converter: converts a torch module to a program
    KIND/size.py      a Sizer: measures a program
    KIND/compress.py  a Compressor: compresses its weights
    KIND/calibrate.py a Calibrator: makes the measurements that some recipes need
    KIND/compile.py   a ProgramCompiler: compiles it for this machine
    KIND/place.py     a Placer: asks the toolchain where each op would run
    KIND/run.py       a runtime of the kind's name, with RUNTIME as in runtimes/ and `program` its kind; further runtimes
                      of a kind are modules of runtimes/

A kind without a part lacks the stages that declare this part (`parts` of bridge/stages.py). Only `convert` and `size`
are required. The kind of a cell is that of its runtime; a task names it in params["program"], unless it is the default.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, TypedDict

from ane_sweep.bridge import building, recipes
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.bridge.programs import PROGRAMS
from ane_sweep.placement.types import Placement
from ane_sweep.worker.models._ports import Ports
from ane_sweep.worker.params import ConvertParams, SensitivityParams

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

Facts = dict[str, int | str]


@dataclass(frozen=True)
class ConversionJob:
    """One function to convert: a module, its ports and states, and the settings."""

    module: "nn.Module"
    ports: Ports
    states: Mapping[str, "Tensor"]
    settings: ConvertParams
    options: building.Options

    @property
    def is_own(self) -> bool:
        """Return True for a user's own module."""
        return KINDS[self.settings.model.task].length == "caller"


@dataclass(frozen=True)
class Compressed:
    """The result of a compression: settings by weight, the reasons why weights were adapted or left out, and the count
    of uncompressed numbers.
    """

    settings: Mapping[str, recipes.Recipe]
    adapted: Mapping[str, str]
    left: Mapping[str, str]
    doubts: Sequence[str]
    numbers: int


class PlannedOp(TypedDict, total=False):
    """One op of a plan.

    name (its first output), op_type, cost, preferred unit ("cpu", "gpu", "ane") or None, and the supported ones; the
    chunk, part of a pipeline and function that it is in; the compiler's notes: backend, estimated_ms by backend,
    why_not_ane
    """

    chunk: str | None
    part: str
    function: str | None
    name: str
    op_type: str
    preferred: str | None
    supported: list[str | None]
    cost: float
    backend: str | None
    estimated_ms: dict[str, float] | None
    why_not_ane: str | None


class Held(TypedDict):
    """The compiler's files that were copied for a plan, by name, and the reasons for those that were not."""

    files: list[str]
    left: list[str]


class ProgramPlan(TypedDict):
    """The plan of one compiled program: its ops in order, and the compiled files."""

    rows: list[PlannedOp]
    compiled: Held


class Converter(Protocol):
    """The interface of a kind's convert.py."""

    def convert(self, jobs: Mapping[str, ConversionJob], target: Path) -> Facts:
        """Write a program of one function, or of several by name. Return facts: ops, parameter_bytes, numbers.

        `numbers` counts the floating-point numbers in its weights; a kind may add facts such as grown_blocks. The
        module's weights may be lazy: `growing.materialise_tensors(module)` reads them.
        """
        ...


class Sizer(Protocol):
    """The interface of a kind's size.py."""

    def measure_bytes(self, program: Path) -> int: ...
    def compute_bits_per_weight(self, program: Path, numbers: int) -> float: ...


class Compressor(Protocol):
    """The interface of a kind's compress.py. `program` is the folder of the artifact."""

    def compress(self, program: Path, recipe: recipes.Recipe, calibration: Path | None, target: Path) -> Compressed:
        """Write the program with its weights compressed. Raises StageError if it cannot hold the recipe."""
        ...


class Calibrator(Protocol):
    """The interface of a kind's calibrate.py. `program` is the folder of the artifact."""

    def measure_ranges(self, program: Path, samples: "list[dict[str, np.ndarray]]") -> Mapping[str, object]:
        """Return the range of each activation over the samples."""
        ...

    def measure_sensitivity(
        self, program: Path, samples: "list[dict[str, np.ndarray]]", valid: "np.ndarray", wanted: SensitivityParams
    ) -> "SensitivityCurve":
        """Return the outputs' error for each weight at each width; `valid` marks the positions to compare."""
        ...


class SensitivityCurve(TypedDict):
    """The result of measure_sensitivity. `curve`: size and accuracy of mixed widths."""

    curve: list[dict[str, object]]


class ProgramCompiler(Protocol):
    """The interface of a kind's compile.py. `program` is the folder of the artifact."""

    def compile_programs(self, program: Path, out: Path, compiler: str) -> str | None:
        """Compile all programs into `out`; return the compiler's version, or None if unknown."""
        ...


class Placer(Protocol):
    """The interface of a kind's place.py. `SOURCE` names the plan in figures; `IS_PRICED`: it says what each op costs."""

    SOURCE: str
    IS_PRICED: bool

    def plan(self, params: dict[str, object], inputs: Mapping[str, Path], keep: Path) -> list[ProgramPlan]:
        """Return the plan of each program and function, in the order they run; compiled files are copied to `keep`."""
        ...

    def describe_compiled(
        self, plans: Sequence[ProgramPlan], folder: Path, summary: Placement, program: Path
    ) -> dict[str, object]:
        """Return facts of the compiled files for the record; `tasks` is their number, or None if unknown."""
        ...


def part(kind: str, name: str) -> ModuleType:
    """Import a part of a program kind; the caller knows the protocol that it follows."""
    return importlib.import_module(f"{__name__}.{kind}.{name}")


def name_file(kind: str) -> str:
    """Return the name of the program file that a stage writes."""
    return f"model{PROGRAMS[kind].suffix}"
