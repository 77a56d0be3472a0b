"""The structure of a predicted program, by which its ops are known again in another conversion: no op's name is part of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ane_sweep.placement.rows import OpRow

_STORED = 16  # elements of a constant from which on it is a weight, and no setting of the op


@dataclass(frozen=True)
class OpOutline:
    """One op of a lint report, as in its JSON.

    reads    for each value that it reads: the index of the op that makes it, or -1 for an input of the function
    outputs  types and shapes ("fp16[1,64]"); `weights` likewise, with their compression
    module   the torch module that it comes from, as far as it is known, else ""
    """

    name: str
    op_type: str
    preferred: str
    function: str = "main"
    chunk: str | None = None
    reason: str = ""
    confidence: str = "low"
    module: str = ""
    reads: list[int] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    weights: list[str] = field(default_factory=list)


def describe_ops(rows: Sequence[OpRow]) -> list[OpOutline]:
    """Return the note of every op, in file order. `rows`: those of all chunks."""
    maker: dict[int, int] = {}
    found = []
    for place, row in enumerate(rows):
        site = row.site
        found.append(
            OpOutline(
                site.name, site.type, row.preferred, site.function, row.chunk, row.reason, row.confidence,
                module=site.module, reads=[maker.get(id(tensor), -1) for tensor in site.data],
                outputs=[repr(tensor) for tensor in site.outputs],
                weights=[
                    f"{tensor!r} {tensor.packing or ''}".strip().removeprefix("const ")
                    for tensor in site.constants
                    if tensor.elements >= _STORED
                ],
            )
        )  # fmt: skip
        maker |= {id(tensor): place for tensor in site.outputs}
    return found
