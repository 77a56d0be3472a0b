"""One function of an ML Program as a graph that can be edited: ops in order, and who makes and reads each value.

    for node in graph.nodes("softplus"):
        (x,) = node.reads("x")
        made = Builder(graph, node).op("relu", {"x": x}, graph.shape(x))   # build.py; new ops go before this one
        graph.replace(node.outputs[0], made)                               # `made` takes over the name; dead ops go

A replacement takes over the name of the value that it replaces, so readers, nested blocks, and the function's outputs
need no change. Every step costs as much as it touches; nothing walks the whole program but `write_block`.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path

import numpy as np

from ane_sweep.errors import PackageError
from ane_sweep.fix import messages
from ane_sweep.fix.views import AxisView
from ane_sweep.mil import graph as mil
from ane_sweep.mil.element_types import TensorType, string_value, tensor_type
from ane_sweep.mil.proto import MIL_pb2


class Node:
    """One op of a graph, in a linked list of all ops. `proto` is its message; code that renames a value changes `own()`."""

    __slots__ = ("_given", "_names", "_outputs", "back", "is_alive", "is_shared", "next", "proto", "type", "view")

    def __init__(self, proto: MIL_pb2.Operation):
        self.proto, self.type, self.is_alive, self.is_shared = proto, proto.type, True, False
        self.back = self.next = self
        self.view: tuple[AxisView | None, ...] = ()  # of layout.read_view: values may be renamed, not reshaped
        self.forget()

    def share(self) -> "Node":
        """Return the op for another graph. Both share one message; `own` copies it before a change."""
        made = Node(self.proto)
        made._given, made._names, made._outputs, made.view = self._given, self._names, self._outputs, self.view
        self.is_shared = made.is_shared = True
        return made

    def own(self) -> MIL_pb2.Operation:
        """Return the message, to rename values in it."""
        if self.is_shared:
            self.proto, self.is_shared = deepcopy(self.proto), False
        self.forget()
        return self.proto

    def forget(self) -> None:
        """Read the names in the message again when they are needed."""
        self._given: dict[str, list[str]] | None = None
        self._names: set[str] | None = None
        self._outputs: list[str] | None = None

    @property
    def outputs(self) -> list[str]:
        if self._outputs is None:
            self._outputs = [value.name for value in self.proto.outputs]
        return self._outputs

    def reads(self, parameter: str) -> list[str]:
        """Return the names of the values given for a parameter."""
        if self._given is None:
            given = self.proto.inputs
            self._given = {key: [one.name for one in given[key].arguments if one.name] for key in given}
        return self._given.get(parameter, [])

    def read(self, parameter: str) -> str | None:
        """Return the name of the one value given for a parameter, or None."""
        found = self.reads(parameter)
        return found[0] if len(found) == 1 else None

    def names(self) -> set[str]:
        """Return the names of all outside values that the op needs."""
        if self._names is None:
            self._names = messages.names_read(self.proto)
        return self._names


class Journal:
    """The changes since it was begun: ops added and removed, and pairs (old value, value that stands for it)."""

    def __init__(self) -> None:
        self.added: list[Node] = []
        self.removed: list[Node] = []
        self.pairs: list[tuple[str, str]] = []


class Graph:
    """The main block of one function, with the ops of the graph `like`. New weights go to the folder `scratch`."""

    def __init__(self, program: mil.Program, scratch: Path, like: "Graph | None" = None):
        self.program, self.scratch = program, scratch
        self.inputs, self.outputs = program.inputs, set(program.outputs)
        nodes = [Node(proto) for proto in program.block.operations] if like is None else [one.share() for one in like]
        types = program.types if like is None else like.types
        made = [name for node in nodes for name in node.outputs]
        self.types: dict[str, MIL_pb2.ValueType] = {name: types[name] for name in (*self.inputs, *made)}
        self._kinds: dict[str, TensorType | None] = {}  # a name keeps its type
        self.short_constants: dict[object, str] = {}  # that Builder made, by their values
        self.journal = Journal()
        self._end = Node(MIL_pb2.Operation())
        self._maker: dict[str, Node] = {}
        self._users: dict[str, dict[Node, None]] = {}
        self._by_type: dict[str, dict[Node, None]] = {}
        self._names = {*self.types, *messages.nested_names(node.proto for node in nodes)}
        for node in nodes:
            self._insert(node, self._end)

    def begin_site(self) -> None:
        """Forget the changes so far: the journal is of one place."""
        self.journal = Journal()

    def __iter__(self) -> Iterator[Node]:
        """Yield the ops in order; the graph must not change meanwhile."""
        node = self._end.next
        while node is not self._end:
            yield node
            node = node.next

    def first(self) -> Node:
        """Return the first op after the short constants that Builder made."""
        made = set(self.short_constants.values())
        return next(node for node in self if node.type != "const" or node.outputs[0] not in made)

    def nodes(self, *types: str) -> list[Node]:
        """Return the ops of these types (each type in the program's order)."""
        return [node for kind in types for node in self._by_type.get(kind, ())]

    def maker(self, name: str | None) -> Node | None:
        """Return the op that makes a value, or None for an input of the function."""
        return self._maker.get(name) if name is not None else None

    def users(self, name: str) -> list[Node]:
        """Return the ops that read a value. A graph output may have further readers: see `is_output`."""
        return list(self._users.get(name, ()))

    def is_output(self, name: str) -> bool:
        return name in self.outputs

    def only_user(self, name: str) -> Node | None:
        """Return the single op that reads a value, or None if there are more or it is an output of the function."""
        found = self._users.get(name, {})
        return next(iter(found)) if len(found) == 1 and name not in self.outputs else None

    def kind(self, name: str | None) -> TensorType | None:
        """Return the type of a value, or None if it is no tensor."""
        if name is None or name not in self.types:
            return None
        if name not in self._kinds:
            self._kinds[name] = tensor_type(self.types[name])
        return self._kinds[name]

    def dtype(self, name: str) -> str:
        """Return the element type of a tensor. Raises ValueError for another value."""
        return self._tensor(name).dtype

    def has_dtype(self, name: str | None, *wanted: str) -> bool:
        """Return True if a value is a tensor of one of these element types."""
        kind = self.kind(name)
        return kind is not None and kind.dtype in wanted

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the sizes of a tensor. Raises ValueError if one is unknown; `static` tells before."""
        shape = self._tensor(name).shape
        known = tuple([size for size in shape if size is not None])
        if len(known) < len(shape):
            raise ValueError(f"`{name}` has a size that is not known")
        return known

    def static(self, *names: str | None) -> bool:
        """Return True if all of these are tensors whose sizes are known."""
        return all(kind is not None and kind.is_static for kind in map(self.kind, names))

    def is_constant(self, name: str | None) -> bool:
        """Return True for the output of a const, or of a compressed weight (constexpr_...)."""
        maker = self.maker(name)
        return maker is not None and (maker.type == "const" or maker.type.startswith("constexpr_"))

    def message(self, name: str | None) -> MIL_pb2.Value | None:
        """Return the Value message of a const's output, or None for another value."""
        maker = self.maker(name)
        return maker.proto.attributes["val"] if maker is not None and maker.type == "const" else None

    def value(self, name: str | None) -> np.ndarray | str | None:
        """Return the value of a const's output (a view into the weight file for a weight), or None for another value."""
        found = self.message(name)
        decoded = mil.decode(found, self.program.package) if found is not None else None
        return decoded if isinstance(decoded, (np.ndarray, str)) else None

    def parameter(self, node: Node, name: str) -> np.ndarray | str | None:
        """Return the constant given for a parameter of an op; None if it is absent or computed."""
        given = node.proto.inputs
        if name in given and len(given[name].arguments) == 1 and not given[name].arguments[0].name:
            decoded = mil.decode(given[name].arguments[0].value, self.program.package)
            return decoded if isinstance(decoded, (np.ndarray, str)) else None
        return self.value(node.read(name))

    def replace(self, old: str, new: str) -> None:
        """Let `new` stand for `old`, and remove the ops that nothing needs any more.

        A value that an op of this site makes takes over the name `old`; for another, its readers are changed. Raises
        ValueError if the types differ.
        """
        if self.types[old] != self.types[new]:
            raise ValueError(f"`{old}` is {self.kind(old)}, and `{new}`, which is to replace it, {self.kind(new)}")
        maker = self._maker.get(new)
        if maker is None or maker not in self.journal.added or new in self.outputs:
            self.rename_reads(old, new, self.users(old))
            if old not in self.outputs:
                self.journal.pairs.append((old, new))
                self._drop_dead(self._maker.get(old))
                return
            new = self._add_identity(new)  # at the end, so it only stands for the function's output
        self._swap(old, new)

    def _add_identity(self, name: str) -> str:
        """Add an op at the end that returns a value unchanged, and return its output's name."""
        proto, made = MIL_pb2.Operation(type="identity"), self.fresh_name(f"{name}_identity")
        proto.attributes["name"].CopyFrom(string_value(made))
        proto.inputs["x"].arguments.add(name=name)
        proto.outputs.add(name=made).type.CopyFrom(self.types[name])
        self.add(proto, self._end)
        return made

    def _swap(self, old: str, new: str) -> None:
        """Give the name `old` to the value `new`; the op that made `old` gets a spare name, and goes if nothing needs it."""
        spare, maker, fresh = self.fresh_name(f"{old}_before"), self._maker[old], self._maker[new]
        added = set(self.journal.added)
        inner = [node for node in self.users(old) if node in added]
        self._rename_output(maker, old, spare)
        self.rename_reads(old, spare, inner)
        readers = self.users(new)
        self._rename_output(fresh, new, old)
        self.rename_reads(new, old, readers)
        del self.types[new]
        self.journal.pairs = [(one, old if other == new else other) for one, other in self.journal.pairs]
        self.journal.pairs.append((spare, old))
        self._drop_dead(maker)

    def fresh_name(self, base: str) -> str:
        """Return a name that no value of the program has, and reserve it."""
        name, number = base, 0
        while name in self._names:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        return name

    def add(self, proto: MIL_pb2.Operation, place: Node) -> Node:
        """Insert an op before `place`. Raises ValueError if it reads a value that does not exist."""
        node = Node(proto)
        if missing := [name for name in node.names() if name not in self.types]:
            raise ValueError(f"a new `{proto.type}` reads `{missing[0]}`, which no op makes")
        self.types |= {value.name: value.type for value in proto.outputs}
        self._insert(node, place)
        self.journal.added.append(node)
        return node

    def reorder(self, nodes: Iterable[Node]) -> None:
        """Put all ops into another order. `write_block` refuses one in which an op reads a value too early."""
        self.short_constants.clear()  # they need no longer be the first
        last = self._end
        for node in nodes:
            last.next, node.back = node, last
            last = node
        last.next, self._end.back = self._end, last

    def write_block(self) -> MIL_pb2.Block:
        """Return the graph as a Block message. Raises PackageError if an op reads a value before it is made."""
        made = set(self.inputs)
        for node in self:
            if not node.names() <= made:
                name = min(node.names() - made)
                raise PackageError(f"{self.program.package.path}: after a rewrite {node.type} reads `{name}` too early")
            made.update(node.outputs)
        if not self.outputs <= made:
            raise PackageError(f"{self.program.package.path}: a rewrite lost an output")
        source = self.program.block
        return MIL_pb2.Block(
            inputs=source.inputs,
            outputs=source.outputs,
            attributes=source.attributes,
            operations=[node.proto for node in self],
        )

    def _tensor(self, name: str) -> TensorType:
        kind = self.kind(name)
        if kind is None:
            raise ValueError(f"`{name}` is no tensor")
        return kind

    def _insert(self, node: Node, place: Node) -> None:
        node.back, node.next = place.back, place
        place.back.next = node
        place.back = node
        self._by_type.setdefault(node.type, {})[node] = None
        self._maker |= dict.fromkeys(node.outputs, node)
        for name in node.names():
            self._users.setdefault(name, {})[node] = None

    def _rename_output(self, node: Node, old: str, new: str) -> None:
        for value in node.own().outputs:
            if value.name == old:
                value.name = new
                self.types[new] = value.type
        self._maker[new] = self._maker.pop(old)

    def rename_reads(self, old: str, new: str, nodes: Iterable[Node]) -> None:
        """Let ops that read `old` read `new` instead; the journal does not know."""
        for node in nodes:
            for binding in messages.list_bindings(node.own()):
                if binding.name == old:
                    binding.name = new
            for block in node.proto.blocks:
                messages.rename_outputs(block, old, new)
            self._users[old].pop(node, None)
            self._users.setdefault(new, {})[node] = None

    def _drop_dead(self, node: Node | None) -> None:
        """Remove an op that nothing needs, and then the ops that only it needed."""
        left = [node] if node is not None else []
        while left:
            node = left.pop()
            outputs = node.outputs
            if (
                not node.is_alive
                or messages.has_effect(node.proto)
                or any(self._users.get(one) or one in self.outputs for one in outputs)
            ):
                continue
            node.is_alive = False
            node.back.next, node.next.back = node.next, node.back
            self._by_type[node.type].pop(node)
            self.journal.removed.append(node)
            for name in outputs:
                self._maker.pop(name, None)
            for name in node.names():
                self._users[name].pop(node, None)
                if (maker := self._maker.get(name)) is not None:
                    left.append(maker)
