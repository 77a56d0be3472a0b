"""Rewrites that change a program's interface, and so what the host does: applied only by name (`--only NAME`).

One module each in ane_sweep/fix/by_name; the file's name is the rewrite's.

    REWRITE = InterfaceRewrite(order=10, help="...", ...)
    def find(graphs: Sequence[Graph]) -> list[str]: ...                # the places, by function; nothing is changed
    def change(package: Package, sizes: str) -> Change: ...            # `package` is a copy; ValueError: it does not fit

The host's new part is given as code, too: each `Run` says how inputs and outputs of the old interface follow from those
of the new one, and the proof runs both sides.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol

import numpy as np

from ane_sweep.bridge.declared import Declared
from ane_sweep.fix.graph import Graph
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import MIL_pb2

_PACKAGE = "ane_sweep.fix.by_name"

Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class InterfaceRewrite:
    """The declaration of a rewrite that changes the interface, read from its module without an import.

    order, help, condition, source, evidence: as in rewrite.ProgramRewrite. All of them compute the same bits.
    host   the host's new part, one line
    """

    order: int
    help: str
    host: str
    condition: str
    source: str
    evidence: str


@dataclass(frozen=True)
class Run:
    """One comparison: function `before` of the old package with inputs of these shapes (else default ones)
    against function `after` of the new one, with the host's part.

    to_new       the inputs of the new program from those of the old one; by default the same
    to_old       the outputs of the old program from its inputs and the outputs of the new one; by default the latter
    head, tail   ops of the old function that the host does before and after the new one
    """

    before: str
    after: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    to_new: Callable[[Values], Values] = lambda given: given
    to_old: Callable[[Values, Values], Values] = lambda given, made: made
    head: Sequence[MIL_pb2.Operation] = ()
    tail: Sequence[MIL_pb2.Operation] = ()


@dataclass(frozen=True)
class Change:
    """A package with another interface, a note on what was done, and the comparisons that prove it."""

    package: Package
    note: str
    runs: list[Run]


class InterfaceModule(Protocol):
    """A module of ane_sweep/fix/by_name."""

    def find(self, graphs: Sequence[Graph]) -> list[str]: ...
    def change(self, package: Package, sizes: str) -> Change: ...


BY_NAME = Declared(_PACKAGE, "REWRITE", InterfaceRewrite, lambda rewrite: rewrite.order)


def load(name: str) -> InterfaceModule:
    """Import the module of a rewrite that changes the interface."""
    module: InterfaceModule = import_module(f"{_PACKAGE}.{name}")
    return module
