"""A flat plan, and running it: one loop without a lookup by name.

Values live in one list; a step knows the places it reads, the places it fills, and which to empty afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ane_sweep import native_errors
from ane_sweep.errors import PackageError
from ane_sweep.mil.graph import Op
from ane_sweep.reference.numerics import Mode
from ane_sweep.reference.site import Step


@dataclass
class PlanSession:
    """What all plans of one model share. `watch(op, {output: value})` is called after every step while it is set."""

    where: str
    package: Any
    opset: int
    mode: Mode
    watch: Callable[[Op, dict[str, Any]], None] | None = None


@dataclass
class ExecutionPlan:
    """`start` is the table of values before a run (constants filled in); `inputs` and `outputs` map names to places.

    Of a nested block, `own` are the inputs that it declares, `free` those that it reads from around itself, and
    `listed` its outputs in order (one name may stand twice).
    """

    session: PlanSession
    inputs: dict[str, int]
    outputs: dict[str, int]
    start: list[Any]
    steps: list[tuple[Callable[..., Any], tuple[int, ...], int | tuple[int, ...], tuple[int, ...]]]
    ops: list[Op] = field(repr=False)
    own: list[str] = field(default_factory=list)
    free: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        return self.session.where

    def run(self, values: MutableMapping[str, Any]) -> dict[str, Any]:
        """Outputs by name. `values` must hold every input with its declared type (more does not matter)."""
        if self.session.watch is not None:
            return self._run_watched(values)
        table = self.begin(values)
        self.advance(table, 0, len(self.steps))
        return self.ended(table)

    def begin(self, values: MutableMapping[str, Any]) -> list[Any]:
        """The table of values before the first step."""
        table = self.start.copy()
        for name, place in self.inputs.items():
            table[place] = values[name]
        return table

    @torch.inference_mode()
    def advance(self, table: list[Any], first: int, last: int) -> None:
        """Run the steps from `first` to before `last`, in place; what no later step reads is dropped on the way."""
        done = first
        try:
            for function, reads, fills, frees in self.steps[first:last]:
                made = function(*[table[place] for place in reads])
                if isinstance(fills, int):
                    table[fills] = made
                else:
                    for place, value in zip(fills, made):
                        table[place] = value
                for place in frees:
                    table[place] = None
                done += 1
        except FAILURES as error:
            raise _explain_failure(error, self.where, self.ops[done]) from error

    def ended(self, table: list[Any]) -> dict[str, Any]:
        """Outputs by name, after the last step."""
        return {name: table[place] for name, place in self.outputs.items()}

    def _run_watched(self, values: MutableMapping[str, Any]) -> dict[str, Any]:
        walk = self.walk(values)
        try:
            while True:
                made = next(walk)
                if self.session.watch is not None:
                    self.session.watch(made.op, made.values)
        except StopIteration as end:
            return end.value

    @torch.inference_mode()
    def walk(self, values: MutableMapping[str, Any]) -> Generator[StepResult, None, dict[str, Any]]:
        """The same run, step by step: yields each step as it was made, and returns the outputs."""
        table = self.begin(values)
        for op, (function, reads, fills, frees) in zip(self.ops, self.steps):
            arguments = [table[place] for place in reads]
            try:
                with torch.inference_mode():
                    made = function(*arguments)
            except FAILURES as error:
                raise _explain_failure(error, self.where, op) from error
            results = (made,) if isinstance(fills, int) else tuple(made)
            for place, value in zip((fills,) if isinstance(fills, int) else fills, results):
                table[place] = value
            yield StepResult(op, dict(zip(op.outputs, results)), function, arguments)
            for place in frees:
                table[place] = None
        return self.ended(table)


@dataclass(frozen=True)
class StepResult:
    """A step of a walk: what the op made by name, and what it was made with."""

    op: Op
    values: dict[str, Any]
    run: Callable[..., Any]
    arguments: list[Any]


FAILURES = (
    RuntimeError,
    IndexError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    ZeroDivisionError,
    OverflowError,
)


def _explain_failure(error: Exception, where: str, op: Op) -> Exception:
    """The error of a step, saying which op it was; running out of memory stays what it is."""
    if native_errors.is_out_of_memory(error):
        return MemoryError(f"{where}: {op}: {error}")
    return PackageError(f"{where}: {op} failed while it ran: {error}")


def lay_out(
    session: PlanSession,
    inputs: list[str],
    outputs: list[str],
    known: MutableMapping[str, Any],
    built: list[tuple[Step, Op]],
) -> ExecutionPlan:
    """Give every value a place. Raises PackageError for values that nothing makes."""
    places: dict[str, int] = {}
    start: list[Any] = []

    def place(name: str) -> int:
        if name not in places:
            places[name] = len(start)
            start.append(known.get(name))
        return places[name]

    sources = {name: place(name) for name in inputs}
    made = set(inputs) | {name for _, op in built for name in op.outputs}
    last: dict[str, int] = {}
    for index, (step, op) in enumerate(built):
        for name in step.arguments:
            if name not in made and name not in known:
                raise PackageError(f"{session.where}: {op} reads {name!r}, which nothing makes; the file is damaged")
        last.update((name, index) for name in step.arguments)
    keep = set(outputs)
    steps = []
    for index, (step, op) in enumerate(built):
        reads = tuple(place(name) for name in step.arguments)
        fills = tuple(place(name) for name in op.outputs)
        dead = dict.fromkeys([*step.arguments, *op.outputs])
        frees = tuple(
            place(name) for name in dead if last.get(name, -1) <= index and name not in known and name not in keep
        )
        steps.append((step.run, reads, fills[0] if len(fills) == 1 else fills, frees))
    missing = [name for name in outputs if name not in made and name not in known]
    if missing:
        raise PackageError(f"{session.where}: nothing makes the output {missing[0]!r}; the file is damaged")
    return ExecutionPlan(
        session, sources, {name: place(name) for name in outputs}, start, steps, [op for _, op in built]
    )
