"""A program, compiled once into a flat plan.

Values live in one list; a step knows the places it reads, the places it fills, and which to empty afterwards. What
depends on constants alone is computed while compiling. Running is one loop without a lookup by name.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ane_sweep.errors import PackageError, UnsupportedOp
from ane_sweep.mil import graph
from ane_sweep.mil.graph import Op, Program
from ane_sweep.runtimes._reference import elementwise, indexing, linear, normalise, shapes  # noqa: F401  they fill OPS
from ane_sweep.runtimes._reference.site import OPS, Site, Step, from_numpy

_FOLD_BYTES = 64 << 20  # larger results of constants are recomputed at each run rather than kept


@dataclass
class Plan:
    """`start` is the table of values before a run (constants filled in); `inputs` and `outputs` map names to places."""

    where: str
    inputs: dict[str, int]
    outputs: dict[str, int]
    start: list[Any]
    steps: list[tuple[Callable[..., Any], tuple[int, ...], int | tuple[int, ...], tuple[int, ...]]]
    ops: list[Op] = field(repr=False)

    @torch.inference_mode()
    def run(self, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Outputs by name. `values` must hold every input with its declared type and shape (more does not matter)."""
        table = self.start.copy()
        for name, place in self.inputs.items():
            table[place] = values[name]
        done = 0
        try:
            for function, reads, fills, frees in self.steps:
                made = function(*[table[place] for place in reads])
                if isinstance(fills, int):
                    table[fills] = made
                else:
                    for place, value in zip(fills, made):
                        table[place] = value
                for place in frees:
                    table[place] = None
                done += 1
        except (RuntimeError, IndexError, ValueError) as error:
            if "memory" in str(error):
                raise
            raise PackageError(f"{self.where}: {self.ops[done]} failed while it ran: {error}") from error
        return {name: table[place] for name, place in self.outputs.items()}


def compile_program(program: Program) -> Plan:
    """Prepare everything that does not depend on the inputs. Raises UnsupportedOp before anything runs."""
    where = program.package.path.name
    _check_known(program, where)
    known: dict[str, Any] = {}
    built: list[tuple[Step, Op]] = []
    opset = int((re.findall(r"\d+", program.opset) or ["5"])[0])
    needed = _needed(program)
    with torch.inference_mode():
        for op in program.ops:
            if op.index not in needed:
                continue
            if op.type == "const":
                known[op.outputs[0]] = constant(program.constant(op))
                continue
            kinds = [program.tensor_type(name) for name in op.outputs]
            step = OPS[op.type](Site(_literals(op, program, known), kinds, known, where, opset))
            if not _folded(step, op, kinds, known):
                built.append((step, op))
    return _lay_out(program, where, known, built)


def _check_known(program: Program, where: str) -> None:
    missing = [op for op in program.ops if op.type != "const" and op.type not in OPS]
    if missing:
        kinds = sorted({op.type for op in missing})
        raise UnsupportedOp(
            f"{where}: the reference runtime lacks {missing[0]} (position {missing[0].index + 1} of {len(program.ops)})"
            f"; lacking in all: {', '.join(kinds)}. Run this cell with runtime=torch_eager, or runtime=coreml on a Mac"
        )


def _needed(program: Program) -> set[int]:
    """Ops that the outputs depend on."""
    wanted, needed = set(program.outputs), set()
    for op in reversed(program.ops):
        if not wanted.isdisjoint(op.outputs):
            needed.add(op.index)
            wanted |= op.reads
    return needed


def constant(value: Any) -> Any:
    """A decoded constant as a tensor; strings and lists stay as they are."""
    return from_numpy(value) if isinstance(value, np.ndarray) and value.dtype != object else value


def _literals(op: Op, program: Program, known: dict[str, Any]) -> Op:
    """Give values that are written into the op itself a name, so that builders only see names."""
    for parameter, arguments in op.inputs.items():
        for index, argument in enumerate(arguments):
            if not isinstance(argument, str):
                name = f"{op.outputs[0] if op.outputs else op.name}/{parameter}/{index}"
                known[name] = constant(graph.decode(argument, program.package))
                arguments[index] = name
    return op


def _folded(step: Step, op: Op, kinds: list, known: dict[str, Any]) -> bool:
    """Compute an op of constants now, if what it makes is small enough to keep."""
    if not all(name in known for name in step.arguments):
        return False
    if sum(kind.byte_count for kind in kinds if kind is not None) > _FOLD_BYTES:
        return False
    made = step.run(*[known[name] for name in step.arguments])
    known.update(zip(op.outputs, made if isinstance(made, tuple) else (made,)))
    return True


def _lay_out(program: Program, where: str, known: dict[str, Any], built: list[tuple[Step, Op]]) -> Plan:
    places: dict[str, int] = {}
    start: list[Any] = []

    def place(name: str) -> int:
        if name not in places:
            places[name] = len(start)
            start.append(known.get(name))
        return places[name]

    inputs = {name: place(name) for name in program.inputs}
    last: dict[str, int] = {}
    for index, (step, _) in enumerate(built):
        last.update((name, index) for name in step.arguments)
    steps = []
    for index, (step, op) in enumerate(built):
        reads = tuple(place(name) for name in step.arguments)
        fills = tuple(place(name) for name in op.outputs)
        dead = dict.fromkeys([*step.arguments, *op.outputs])
        frees = tuple(
            place(name)
            for name in dead
            if last.get(name, -1) <= index and name not in known and name not in program.outputs
        )
        steps.append((step.run, reads, fills[0] if len(fills) == 1 else fills, frees))
    outputs = {name: place(name) for name in program.outputs}
    return Plan(where, inputs, outputs, start, steps, [op for _, op in built])
