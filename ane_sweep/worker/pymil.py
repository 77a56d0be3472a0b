"""Types of coremltools' programs in memory, which it ships without types, as far as they are read here."""

from typing import Protocol


class Var(Protocol):
    """A value: `val` is its content if it is constant; `child_ops` read it."""

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
