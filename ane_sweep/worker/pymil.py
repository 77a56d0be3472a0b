"""Protocols for the parts of coremltools' in-memory programs that this package reads; coremltools ships no types."""

from typing import Protocol


class Var(Protocol):
    """A value of the program: `val` is its content if it is constant; `child_ops` are the ops that read it."""

    name: str
    val: object
    child_ops: "list[Operation]"


class Operation(Protocol):
    name: str
    op_type: str
    outputs: list[Var]


class Function(Protocol):
    operations: list[Operation]

    def find_ops(self, *, op_type: str) -> list[Operation]: ...


class PymilProgram(Protocol):
    functions: dict[str, Function]
