"""New ops of a graph, with the types that the caller gives."""

from collections.abc import Mapping, Sequence

import numpy as np

from ane_sweep.fix import values
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.values import Shape, Text
from ane_sweep.mil.element_types import string_value
from ane_sweep.mil.proto import MIL_pb2

Given = str | Text | bool | int | float | np.ndarray | np.generic | Sequence[str] | Sequence[int] | Sequence[bool]


class Builder:
    """A maker of ops before one op of a graph. New ops carry the scope of that op."""

    def __init__(self, graph: Graph, place: Node):
        self.graph, self.place, like = graph, place, place.proto
        is_constant = like.type == "const" or like.type.startswith("constexpr_")
        self.carried = {} if is_constant else {key: like.attributes[key] for key in like.attributes if key != "name"}
        self.base = like.outputs[0].name if like.outputs else like.type

    def op(self, kind: str, inputs: Mapping[str, Given], shape: Shape, dtype: str | None = None) -> str:
        """Add an op with one output and return the output's name.

        `inputs` maps parameters to names of values (a list of names for several), or to constants: numbers, lists of
        numbers, arrays, Text. Floats of Python get the type of the op's `x`, as the output does without `dtype`.
        """
        return self.ops(kind, inputs, [(shape, dtype)])[0]

    def ops(self, kind: str, inputs: Mapping[str, Given], outputs: Sequence[tuple[Shape, str | None]]) -> list[str]:
        """Add an op with several outputs, given as (shape, element type), and return their names."""
        graph, first = self.graph, inputs.get("x", inputs.get("values"))
        source = first if isinstance(first, str) else first[0] if isinstance(first, list) else None
        dtype = graph.dtype(source) if isinstance(source, str) else "fp32"
        name = graph.fresh_name(f"{self.base}_{kind}")
        proto = MIL_pb2.Operation(type=kind)
        for key, value in self.carried.items():
            proto.attributes[key].CopyFrom(value)
        proto.attributes["name"].CopyFrom(string_value(name))
        for parameter, given in inputs.items():
            for one in self._arguments(parameter, given, name, dtype):
                proto.inputs[parameter].arguments.add(name=one)
        for index, (shape, kind_of) in enumerate(outputs):
            made = name if index == 0 else graph.fresh_name(f"{name}_{index}")
            proto.outputs.add(name=made).type.CopyFrom(values.make_type(kind_of or dtype, shape))
        node = graph.add(proto, self.place)
        if {"fp16", "fp32"} <= {graph.dtype(one) for one in node.names() if graph.kind(one) is not None}:
            raise ValueError(f"a new `{kind}` reads fp16 and fp32 values at once, which Core ML refuses")
        return node.outputs

    def const(
        self,
        value: Text | bool | float | np.ndarray | np.generic | Sequence[int],
        name: str = "const",
        dtype: str = "fp32",
    ) -> str:
        """Add a constant and return its name. Floats from 10 on become weights; up to 9 numbers, and texts, stand first and are shared."""
        graph, array = self.graph, value if isinstance(value, Text) else values.to_array(value, dtype)
        if not isinstance(array, Text) and array.size > values.IMMEDIATE:
            return self._const(values.make_value(array, graph.program.package, graph.scratch), name, self.place)
        key = array if isinstance(array, Text) else (array.dtype, array.shape, array.tobytes())
        if (found := graph.short_constants.get(key)) is None or graph.maker(found) is None:
            made = values.make_value(array, graph.program.package, graph.scratch)
            found = graph.short_constants[key] = self._const(made, name, next(iter(graph)))
        return found

    def view(self, name: str, shape: Sequence[int]) -> str:
        """Return a const's output under another shape. The weight is shared, not copied."""
        value = self.graph.message(name)
        if value is None:
            raise ValueError(f"`{name}` is no constant")
        return self._const(values.view_value(value, shape), name, self.place)

    def _const(self, value: MIL_pb2.Value, base: str, place: Node) -> str:
        proto, name = MIL_pb2.Operation(type="const"), self.graph.fresh_name(f"{self.base}_{base}"[:200])
        proto.attributes["name"].CopyFrom(string_value(name))
        proto.attributes["val"].CopyFrom(value)
        proto.outputs.add(name=name).type.CopyFrom(value.type)
        self.graph.add(proto, place)
        return name

    def _arguments(self, parameter: str, given: Given, name: str, dtype: str) -> list[str]:
        if isinstance(given, str) and not isinstance(given, Text):
            return [given]
        if isinstance(given, (list, tuple)) and given and all(isinstance(one, str) for one in given):
            return [str(one) for one in given]
        return [self.const(given, f"{name.removeprefix(self.base + '_')}_{parameter}", dtype)]  # type: ignore[arg-type]
