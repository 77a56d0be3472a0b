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
    blocks: "list[Block]"
    enclosing_block: "Block"


class Block(Protocol):
    """A body of a loop or branch within the op `outer_op`, or of a function (None)."""

    operations: list[Operation]
    outer_op: Operation | None


class Function(Block, Protocol):
    def find_ops(self, *, op_type: str) -> list[Operation]: ...


class PymilProgram(Protocol):
    functions: dict[str, Function]
