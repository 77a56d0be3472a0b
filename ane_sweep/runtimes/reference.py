"""reference: executes saved ML Programs on any host's CPU, op by op, with the rounding that the program declares.

fp16 programs: every op's result is rounded to fp16, sums inside an op are fp32. Its latency is that of this runtime
on this CPU and says nothing about Apple hardware.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

HONOURS = frozenset({"chunks", "precision", "target"})
NEEDS = "program"


def available() -> str | None:
    return None


class ReferenceRuntime:
    """A chain of compiled programs; tensors are handed over by name, as they are."""

    def __init__(self, paths: list[Path]):
        import torch

        from ane_sweep.mil import chain, graph
        from ane_sweep.runtimes._reference import features, plan

        programs = [graph.load(path) for path in paths]
        specs = [program.spec for program in programs]
        where = paths[0].parent if len(paths) > 1 else paths[0]
        self._inputs = features.expected(chain.inputs(specs), where)
        self._outputs = list(chain.outputs(specs, where))
        self._plans = [plan.compile_program(program) for program in programs]
        self._where = where
        dtypes = {
            value.type.tensorType.dataType
            for program in programs
            for op in program.ops
            for value in op.proto.outputs
            if op.type != "const"
        }
        is_half = graph.DTYPE_NUMBERS["fp16"] in dtypes
        self.realised: dict[str, Any] = {
            "runtime": "reference",
            "numerics": "fp16 storage, fp32 accumulation" if is_half else "fp32",
            "threads": torch.get_num_threads(),
            "compute_units": None,
            "chunks": len(paths),
        }

    def predict(self, inputs: "dict[str, np.ndarray]") -> "dict[str, np.ndarray]":
        """Outputs by name, of the types that the program declares. Inputs are cast where no meaning is lost.

        Raises errors.PackageError for a wrong name, shape or kind of input.
        """
        from ane_sweep.runtimes._reference import features

        values = features.accept(inputs, self._inputs, self._where)
        for plan in self._plans:
            values.update(plan.run(values))
        return {name: features.give(values[name]) for name in self._outputs}


def load(params: dict[str, Any], inputs: dict[str, Path]) -> ReferenceRuntime:
    """Compile the programs in `inputs["program"]`. Raises errors.PackageError, errors.UnsupportedOp."""
    from ane_sweep.mil import package

    return ReferenceRuntime(package.program_paths(inputs["program"]))
