"""Lay a plan out as a flat list of steps and run it: one loop without lookups by name.

All values are in one list; a step knows the indices that it reads, that it fills, and that it empties afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from ane_sweep import native_errors
from ane_sweep.errors import PackageError
from ane_sweep.mil.element_types import tensor_type
from ane_sweep.mil.graph import Op
from ane_sweep.mil.package import Package
from ane_sweep.reference import constants
from ane_sweep.reference.constants import resolve
from ane_sweep.reference.numerics import Mode
from ane_sweep.reference.site import Step

SIDE_BY_SIDE_BYTES = 256 << 20
Watch = Callable[[Op, dict[str, object]], None]  # of (op, {output: value})


@dataclass
class PlanSession:
    """State shared by all plans of one model. `watch(op, {output: value})` is called after every step while it is set."""

    where: str
    package: Package
    opset: int
    mode: Mode
    watch: Watch | None = None
    literals: dict[bytes, object] = field(default_factory=dict)  # short constants by their message: layers repeat them


@dataclass
class ExecutionPlan:
    """A flat list of steps over one table of values.

    `start` is the table before a run (constants filled in); `inputs` and `outputs` map names to places. For a nested
    block, `own` are its declared inputs, `free` the outside values that it reads, and `listed` its outputs in order (a
    name may occur twice). Values in `loose` need not be contiguous (orders.py).
    """

    session: PlanSession
    inputs: dict[str, int]
    outputs: dict[str, int]
    start: list[object]
    steps: list[tuple[Callable[..., object], tuple[int, ...], int | tuple[int, ...], tuple[int, ...]]]
    ops: list[Op] = field(repr=False)
    own: list[str] = field(default_factory=list)
    free: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    loose: set[str] = field(default_factory=set)

    @property
    def where(self) -> str:
        return self.session.where

    def run(self, values: Mapping[str, object]) -> dict[str, object]:
        """Run all steps and return outputs by name. `values` must contain every input in its declared type; others are ignored."""
        if self.session.watch is not None:
            return self._run_watched(values)
        table = self.begin(values)
        self.advance(table, 0, len(self.steps))
        return self.collect_outputs(table)

    def run_each(self, inputs: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
        """Run on several inputs and return the outputs of each; the bits are those of `run`."""
        if self.session.watch is not None:
            return [self.run(values) for values in inputs]
        tables = [self.begin(values) for values in inputs]
        self.advance_each(tables, 0, len(self.steps))
        return [self.collect_outputs(table) for table in tables]

    def advance_each(self, tables: Sequence[list[object]], first: int, last: int) -> None:
        """Advance several runs. If the constants exceed the budget, each step is run on several tables before the next one, so that
        it prepares its constants once: on as many as SIDE_BY_SIDE_BYTES hold of their values.
        """
        count = max(1, SIDE_BY_SIDE_BYTES // max(1, self.most_live_bytes())) if constants.BUDGET.is_spent else 1
        for place in range(0, len(tables), count):
            some = tables[place : place + count]
            if len(some) == 1:
                self.advance(some[0], first, last)
                continue
            for number in range(first, last):
                with constants.BUDGET.share_forms():
                    for table in some:
                        self.advance(table, number, number + 1)

    def most_live_bytes(self) -> int:
        """Return the most bytes of values that one run holds at once, by declared types, or more than any memory if sizes are open."""
        live = most = 0
        sizes: dict[int, int] = {}
        for op, (_, _, fills, frees) in zip(self.ops, self.steps):
            for place, value in zip((fills,) if isinstance(fills, int) else fills, op.proto.outputs):
                kind = tensor_type(value.type)
                sizes[place] = kind.byte_count if kind is not None and kind.is_static else sys.maxsize
                live += sizes[place]
            most = max(most, live)
            live -= sum(sizes.pop(place, 0) for place in frees)
        return most

    def begin(self, values: Mapping[str, object]) -> list[object]:
        """Return the table of values before the first step."""
        table = self.start.copy()
        for name, place in self.inputs.items():
            table[place] = values[name]
        return table

    @torch.inference_mode()
    def advance(self, table: list[object], first: int, last: int) -> None:
        """Run steps `first` to `last` (excluded) in place; values that no later step reads are dropped on the way."""
        done = first
        try:
            for function, reads, fills, frees in self.steps[first:last]:
                made = function(*[table[place] for place in reads])
                if isinstance(fills, int):
                    table[fills] = made
                else:
                    for place, value in zip(fills, _as_tuple(made)):
                        table[place] = value
                for place in frees:
                    table[place] = None
                done += 1
        except FAILURES as error:
            raise _explain_failure(error, self.where, self.ops[done]) from error

    def collect_outputs(self, table: list[object]) -> dict[str, object]:
        """Return outputs by name, after the last step."""
        return {name: resolve(table[place]) for name, place in self.outputs.items()}

    def _run_watched(self, values: Mapping[str, object]) -> dict[str, object]:
        walk = self.walk(values)
        try:
            while True:
                made = next(walk)
                if self.session.watch is not None:
                    self.session.watch(made.op, made.values)
        except StopIteration as end:
            outputs: dict[str, object] = end.value
            return outputs

    @torch.inference_mode()
    def walk(self, values: Mapping[str, object]) -> Generator[StepResult, None, dict[str, object]]:
        """Run the plan step by step: yield each step's result, and return the outputs at the end."""
        table = self.begin(values)
        for op, (function, reads, fills, frees) in zip(self.ops, self.steps):
            arguments = [resolve(table[place]) for place in reads]
            try:
                with torch.inference_mode():
                    made = function(*arguments)
            except FAILURES as error:
                raise _explain_failure(error, self.where, op) from error
            results = (made,) if isinstance(fills, int) else _as_tuple(made)
            for place, value in zip((fills,) if isinstance(fills, int) else fills, results):
                table[place] = value
            yield StepResult(op, dict(zip(op.outputs, results)), function, arguments)
            for place in frees:
                table[place] = None
        return self.collect_outputs(table)


@dataclass(frozen=True)
class StepResult:
    """The result of one step of `ExecutionPlan.walk`: values by name, the function that made them, and its arguments."""

    op: Op
    values: dict[str, object]
    run: Callable[..., object]
    arguments: list[object]


def _as_tuple(made: object) -> tuple[object, ...]:
    """Return the results of an op with several outputs."""
    if not isinstance(made, tuple):
        raise TypeError("one result where several are declared")
    return made


FAILURES = (RuntimeError, IndexError, ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError, OverflowError)


def _explain_failure(error: Exception, where: str, op: Op) -> Exception:
    """Return a step's error with the op's name added; running out of memory stays a MemoryError."""
    if native_errors.is_out_of_memory(error):
        return MemoryError(f"{where}: {op}: {error}")
    return PackageError(f"{where}: {op} failed while it ran: {error}")


def lay_out(
    session: PlanSession,
    inputs: list[str],
    outputs: list[str],
    known: Mapping[str, object],
    built: list[tuple[Step, Op]],
) -> ExecutionPlan:
    """Give every value an index and return the plan. Raises PackageError for values that no op makes."""
    places: dict[str, int] = {}
    start: list[object] = []

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
