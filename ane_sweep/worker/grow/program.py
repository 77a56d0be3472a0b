"""An ML Program as sequences of items, and the longer program that is built from them.

The function's inputs are sequence 0; its ops, followed by its outputs, are sequence 1.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path

from ane_sweep.mil import graph, package
from ane_sweep.mil.proto import MIL_pb2, Model_pb2
from ane_sweep.mil.weights import blob_values, program_blob_values
from ane_sweep.worker.grow.recipes import Origin, list_leaves, shape_of
from ane_sweep.worker.grow.sequence import Item, Placed, Unlike, find_growth, grow_sequence

FUNCTION = "main"
Place = tuple[int, int, int]  # sequence, index, output


class Shallow:
    """A conversion of a few blocks: its package and counts, the recipes of its constants by name, and its sequences of items.

    observed  recipes of the values read during the conversion, and of constants inside the program itself
    """

    def __init__(self, path: Path, facts: dict[str, int], recipes: dict[str, Origin | None], observed: list[Origin]):
        self.path, self.facts, self.recipes = path, facts, recipes
        view = graph.view_program(package.read(path), FUNCTION)
        self.spec, self.function, self.block = view.spec, view.function, view.block
        described = self.spec.description
        self.features = {one.name: one for one in (*described.input, *described.state)}
        self.results = {one.name: one for one in described.output}
        if list(self.results) != list(self.block.outputs):  # a classifier describes other outputs
            self.results = {}
        self.inputs = [
            Item((_serialise(one.type), _serialise_unnamed(self.features[one.name])), (one.name,))
            for one in self.function.inputs
        ]
        self.ops = list(self._list_items())
        filed = {op.outputs[0].name for op in self.block.operations if self.recipe(op) is not None}
        self.observed = [*observed, *(made for name, made in recipes.items() if made is not None and name not in filed)]

    def _list_items(self) -> Iterator[Item]:
        where: dict[str, Place] = {one.name: (0, index, 0) for index, one in enumerate(self.function.inputs)}
        for index, op in enumerate(self.block.operations):
            yield self._make_item(op, where)
            where |= {one.name: (1, index, output) for output, one in enumerate(op.outputs)}
        for name in self.block.outputs:
            described = _serialise_unnamed(self.results[name]) if self.results else b""
            yield Item(("output", described), (name,), (where[name],))

    def _make_item(self, op: MIL_pb2.Operation, where: dict[str, Place]) -> Item:
        if op.blocks:
            raise Unlike(f"{op.type} holds ops of its own")
        recipe = self.recipe(op)
        attributes = [
            (key, _serialise(value.type if value.WhichOneof("value") == "blobFileValue" else value))
            for key, value in graph.in_order(op.attributes)
            if key != "name"
        ]
        parameters = graph.in_order(op.inputs)
        shape = tuple((key, len(given.arguments)) for key, given in parameters)
        values = tuple(_serialise(one.value) for _, given in parameters for one in given.arguments if not one.name)
        types = tuple(_serialise(one.type) for one in op.outputs)
        token = (op.type, tuple(attributes), shape, values, types, shape_of(recipe))
        names = (graph.own_name(op), *(one.name for one in op.outputs), *list_leaves(recipe))
        return Item(token, names, tuple(where[one.name] for one in _list_named(op)))

    def recipe(self, op: MIL_pb2.Operation) -> Origin | None:
        return self.recipes.get(op.outputs[0].name) if op.type == "const" and next(blob_values(op), None) else None


def _list_named(op: MIL_pb2.Operation) -> list[MIL_pb2.Argument.Binding]:
    """Return the inputs of an op that refer to a value, sorted by parameter."""
    bindings = (one for _, given in graph.in_order(op.inputs) for one in given.arguments)
    return [one for one in bindings if one.WhichOneof("binding") == "name"]


def _serialise(message: Model_pb2.Model | MIL_pb2.ValueType | MIL_pb2.Value) -> bytes:
    return message.SerializeToString(deterministic=True)


def _serialise_unnamed(feature: Model_pb2.FeatureDescription) -> bytes:
    copy = deepcopy(feature)
    copy.ClearField("name")
    return copy.SerializeToString(deterministic=True)


def _serialise_without_offsets(spec: Model_pb2.Model) -> bytes:
    copy = deepcopy(spec)
    for value in program_blob_values(copy.mlProgram):
        value.blobFileValue.offset = 0
    return _serialise(copy)


class GrowthPlan:
    """The rules by which a program grows, derived from the program of few blocks and, for each list, a program with
    more blocks.

    Raises Unlike if the rules do not reproduce one of the longer programs.
    """

    def __init__(self, few: Shallow, longer: Sequence[Shallow], copies: Sequence[int]):
        self.few, self.longer = few, longer
        self.inputs = [find_growth(few.inputs, more.inputs, count) for more, count in zip(longer, copies)]
        self.ops = [find_growth(few.ops, more.ops, count) for more, count in zip(longer, copies)]
        for which, more in enumerate(longer):
            made = self.build([count if i == which else 0 for i, count in enumerate(copies)])
            if _serialise_without_offsets(made) != _serialise_without_offsets(more.spec):
                raise Unlike("its program of more blocks is not what its program of few makes of it")

    def build(
        self, counts: Sequence[int], weigh: Callable[[MIL_pb2.Operation, Placed], None] = lambda op, placed: None
    ) -> Model_pb2.Model:
        """Return the spec with counts[i] more copies of list i; call weigh(op, placed) for each op in order."""
        few = self.few
        spec = deepcopy(few.spec)
        function = spec.mlProgram.functions[FUNCTION]
        block = function.block_specializations[function.opset]
        del block.operations[:], block.outputs[:]
        if few.results:
            del spec.description.output[:]
        ports = self._grow_inputs(spec, counts)
        ops = list(grow_sequence(few.ops, self.ops, counts))
        names = (ports, [placed.names[1:] for placed in ops])
        for placed in ops:
            reads = [names[sequence][index][output] for sequence, index, output in placed.reads]
            if placed.index >= len(few.block.operations):
                block.outputs.extend(reads)
                if few.results:
                    result = spec.description.output.add()
                    result.CopyFrom(few.results[few.ops[placed.index].names[0]])
                    result.name = placed.names[0]
                continue
            op = block.operations.add()
            op.CopyFrom(few.block.operations[placed.index])
            _rename(op, placed, reads)
            weigh(op, placed)
        return spec

    def _grow_inputs(self, spec: Model_pb2.Model, counts: Sequence[int]) -> list[tuple[str, ...]]:
        """Put the grown inputs and states of the function into `spec`. Return their names."""
        few, function, described = self.few, spec.mlProgram.functions[FUNCTION], spec.description
        states = {one.name for one in described.state}
        del function.inputs[:], described.input[:], described.state[:]
        ports = list(grow_sequence(few.inputs, self.inputs, counts))
        for port in ports:
            source = few.function.inputs[port.index]
            made, feature = function.inputs.add(), (described.state if source.name in states else described.input).add()
            made.CopyFrom(source)
            feature.CopyFrom(few.features[source.name])
            made.name = feature.name = port.names[0]
        return [port.names for port in ports]


def _rename(op: MIL_pb2.Operation, placed: Placed, reads: list[str]) -> None:
    if "name" in op.attributes:
        op.attributes["name"].immediateValue.tensor.strings.values[0] = placed.names[0]
    for binding, name in zip(_list_named(op), reads):
        binding.name = name
    for output, name in zip(op.outputs, placed.names[1:]):
        output.name = name
