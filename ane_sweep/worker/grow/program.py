"""An ML Program as sequences of items, and the longer program that is built from them.

The function's inputs are sequence 0; its ops, followed by its outputs, are sequence 1.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ane_sweep.mil.weights import blob_values
from ane_sweep.worker.grow.sequence import Growth, Item, Placed, Unlike, find_growth, grow_sequence

FUNCTION = "main"
Made = Any  # a recipe, or None


class Shallow:
    """A conversion of a few blocks: its spec, the recipes of its constants by name, and its sequences of items.

    observed  recipes of the values that were read during the conversion, and of constants that lie in the program itself
    """

    def __init__(self, spec: Any, recipes: dict[str, Made], observed: Sequence[Made] = ()):
        self.spec, self.recipes = spec, recipes
        self.function = spec.mlProgram.functions[FUNCTION]
        self.block = self.function.block_specializations[self.function.opset]
        described = spec.description
        self.features = {one.name: one for one in (*described.input, *described.state)}
        self.results = {one.name: one for one in described.output}
        if list(self.results) != list(self.block.outputs):  # a classifier describes other outputs
            self.results = {}
        self.inputs = [
            Item((_serialise(one.type), _serialise(self.features[one.name], "name")), (one.name,))
            for one in self.function.inputs
        ]
        self.ops = list(self._items())
        filed = {op.outputs[0].name for op in self.block.operations if self.recipe(op) is not None}
        self.observed = [*observed, *(made for name, made in recipes.items() if made is not None and name not in filed)]

    def _items(self):
        where = {one.name: (0, index, 0) for index, one in enumerate(self.function.inputs)}
        for index, op in enumerate(self.block.operations):
            yield self._item(op, where)
            where |= {one.name: (1, index, output) for output, one in enumerate(op.outputs)}
        for name in self.block.outputs:
            said = _serialise(self.results[name], "name") if self.results else b""
            yield Item(("output", said), (name,), (where[name],))

    def _item(self, op: Any, where: dict[str, Any]) -> Item:
        from ane_sweep.worker.grow.recipes import list_leaves, shape_of

        if op.blocks:
            raise Unlike(f"{op.type} holds ops of its own")
        recipe = self.recipe(op)
        attributes = []
        for key in sorted(op.attributes):
            value = op.attributes[key]
            if key == "name":
                continue
            blob = value.WhichOneof("value") == "blobFileValue"
            attributes.append((key, _serialise(value.type) if blob else _serialise(value)))
        reads = tuple(where[name] for _, _, name in list_bound_inputs(op))
        values = tuple(
            _serialise(arg.value) for key in sorted(op.inputs) for arg in op.inputs[key].arguments if not arg.name
        )
        shape = tuple((key, len(op.inputs[key].arguments)) for key in sorted(op.inputs))
        types = tuple(_serialise(one.type) for one in op.outputs)
        token = (op.type, tuple(attributes), shape, values, types, shape_of(recipe))
        return Item(token, (read_own_name(op), *(one.name for one in op.outputs), *list_leaves(recipe)), reads)

    def recipe(self, op: Any) -> Made:
        return self.recipes.get(op.outputs[0].name) if op.type == "const" and next(blob_values(op), None) else None


def list_bound_inputs(op: Any):
    """Yield (parameter, place, name) of each input of an op that names a value, sorted by parameter."""
    for key in sorted(op.inputs):
        for place, argument in enumerate(op.inputs[key].arguments):
            if argument.WhichOneof("binding") == "name":
                yield key, place, argument.name


def read_own_name(op: Any) -> str:
    return op.attributes["name"].immediateValue.tensor.strings.values[0] if "name" in op.attributes else ""


def _serialise(message: Any, without: str = "") -> bytes:
    if without:
        copy = type(message)()
        copy.CopyFrom(message)
        copy.ClearField(without)
        message = copy
    return message.SerializeToString(deterministic=True)


class Plan:
    """The rules by which a program grows, read from the program of few blocks and, per list, one with more blocks.

    Raises Unlike if the rules do not reproduce one of the longer programs.
    """

    def __init__(self, few: Shallow, longer: Sequence[Shallow], copies: Sequence[int]):
        self.few, self.copies = few, list(copies)
        self.inputs: list[Growth] = []
        self.ops: list[Growth] = []
        for more, count in zip(longer, copies):
            self.inputs.append(find_growth(few.inputs, more.inputs, count))
            self.ops.append(find_growth(few.ops, more.ops, count))
        for which, more in enumerate(longer):
            self._check(more, [count if i == which else 0 for i, count in enumerate(copies)])

    def _check(self, more: Shallow, counts: list[int]) -> None:
        made, _ = self.build(counts, lambda op, placed: None)
        for spec in (made, wanted := type(made)()):
            if spec is wanted:
                spec.CopyFrom(more.spec)
            _forget_offsets(spec)
        if _serialise(made) != _serialise(wanted):
            raise Unlike("its program of more blocks is not what its program of few makes of it")

    def build(self, counts: Sequence[int], weigh: Callable[[Any, Placed], None]) -> tuple[Any, list[Placed]]:
        """Return the spec with counts[i] more copies of list i, and its placed ops; call weigh(op, placed) for each op in order."""
        few = self.few
        spec = type(few.spec)()
        spec.CopyFrom(few.spec)
        function = spec.mlProgram.functions[FUNCTION]
        block = function.block_specializations[function.opset]
        del block.operations[:], block.outputs[:]
        if few.results:
            del spec.description.output[:]
        ports = self._ports(spec, counts)
        ops = list(grow_sequence(few.ops, self.ops, counts))
        names = (ports, [placed.names[1:] for placed in ops])
        for placed in ops:
            reads = [names[sequence][index][output] for sequence, index, output in placed.reads]
            if placed.index >= len(few.block.operations):
                block.outputs.extend(reads)
                if few.results:
                    _copy_named(
                        spec.description.output.add(), few.results[few.ops[placed.index].names[0]], placed.names[0]
                    )
                continue
            op = block.operations.add()
            op.CopyFrom(few.block.operations[placed.index])
            _rename(op, placed, reads)
            weigh(op, placed)
        return spec, ops

    def _ports(self, spec: Any, counts: Sequence[int]) -> list[tuple[str, ...]]:
        """Put the grown inputs and states of the function into `spec`. Return their names."""
        few, function, described = self.few, spec.mlProgram.functions[FUNCTION], spec.description
        states = {one.name for one in described.state}
        del function.inputs[:], described.input[:], described.state[:]
        ports = list(grow_sequence(few.inputs, self.inputs, counts))
        for port in ports:
            source = few.function.inputs[port.index]
            _copy_named(function.inputs.add(), source, port.names[0])
            kind = described.state if source.name in states else described.input
            _copy_named(kind.add(), few.features[source.name], port.names[0])
        return [port.names for port in ports]


def _copy_named(made: Any, like: Any, name: str) -> None:
    made.CopyFrom(like)
    made.name = name


def _rename(op: Any, placed: Placed, reads: list[str]) -> None:
    if "name" in op.attributes:
        op.attributes["name"].immediateValue.tensor.strings.values[0] = placed.names[0]
    for (key, place, _), name in zip(list(list_bound_inputs(op)), reads):
        op.inputs[key].arguments[place].name = name
    for output, name in zip(op.outputs, placed.names[1:]):
        output.name = name


def _forget_offsets(spec: Any) -> None:
    function = spec.mlProgram.functions[FUNCTION]
    for op in function.block_specializations[function.opset].operations:
        for value in blob_values(op):
            value.blobFileValue.offset = 0
