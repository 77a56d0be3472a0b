"""Widen states whose last size is no multiple of 32, which the Neural Engine gets wrong."""

from collections.abc import Sequence

import numpy as np

from ane_sweep.fix import values
from ane_sweep.fix.build import Builder
from ane_sweep.fix.functions import open_functions
from ane_sweep.fix.graph import Graph
from ane_sweep.fix.interface import Change, InterfaceRewrite, Run, Values
from ane_sweep.fix.values import Text
from ane_sweep.mil import chain
from ane_sweep.mil.element_types import TensorType, tensor_type
from ane_sweep.mil.package import Package

REWRITE = InterfaceRewrite(
    order=20,
    help="states whose last size is no multiple of 32 -> padded to one; sliced where they are read, padded where they are written",
    host="states get wider; a host that reads or writes them itself uses the first columns",
    condition="known sizes; the states are not used inside control flow. The added columns stay 0",
    source="apple/coremltools issue 2631",
    evidence="270 fails and 256 runs on an M4 with macOS 15.2, reported there; here predicted only",
)

_MULTIPLE = 32


def find(graphs: Sequence[Graph]) -> list[str]:
    return list({state: None for graph in graphs for state in _find_states(graph)})


def change(package: Package, sizes: str) -> Change:
    old = dict[str, TensorType]()
    graphs = open_functions(package)
    for name, graph in graphs.items():
        found = _find_states(graph)
        for state, kind in found.items():
            _widen(graph, state, kind)
        graph.program.block.CopyFrom(graph.write_block())
        for feature in chain.function_description(package.spec, name).state:
            if feature.name in found:
                feature.type.stateType.arrayType.shape[-1] = _wide(found[feature.name])[-1]
        old |= found
    widths = {state: kind.shape[-1] or 0 for state, kind in old.items()}

    def widen(given: Values) -> Values:
        return {name: _pad(value, _wide(old[name])[-1]) if name in old else value for name, value in given.items()}

    def narrow(given: Values, made: Values) -> Values:
        return {name: value[..., : widths[name]] if name in widths else value for name, value in made.items()}

    note = ", ".join(f"{state} {widths[state]} -> {_wide(kind)[-1]}" for state, kind in old.items())
    return Change(package, note, [Run(name, name, {}, widen, narrow) for name in graphs])


def _find_states(graph: Graph) -> dict[str, TensorType]:
    """Return the states of a function that are too narrow, with their types."""
    found = {}
    for value in graph.program.function.inputs:
        kind = tensor_type(value.type.stateType.wrappedType) if value.type.WhichOneof("type") == "stateType" else None
        if (
            kind is not None
            and kind.is_static
            and kind.shape
            and (kind.shape[-1] or 0) % _MULTIPLE
            and all(user.type in ("read_state", "write_state") for user in graph.users(value.name))
        ):
            found[value.name] = kind
    return found


def _wide(kind: TensorType) -> list[int]:
    sizes = [size or 0 for size in kind.shape]
    return [*sizes[:-1], -(-sizes[-1] // _MULTIPLE) * _MULTIPLE]


def _widen(graph: Graph, state: str, kind: TensorType) -> None:
    sizes, wide = [size or 0 for size in kind.shape], _wide(kind)
    graph.types[state].stateType.wrappedType.CopyFrom(values.make_type(kind.dtype, wide))
    for node in graph.users(state):
        graph.begin_site()
        build = Builder(graph, node)
        if node.type == "read_state":
            whole = build.op("read_state", {"input": state}, wide, kind.dtype)
            narrow = build.op("slice_by_index", {"x": whole, "begin": [0] * len(wide), "end": sizes}, sizes)
            graph.replace(node.outputs[0], narrow)
        else:
            (data,) = node.reads("data")
            ends = [0] * (2 * len(wide) - 1) + [wide[-1] - sizes[-1]]
            padded = build.op("pad", {"x": data, "pad": ends, "mode": Text("constant"), "constant_val": 0.0}, wide)
            graph.rename_reads(data, padded, [node])


def _pad(value: np.ndarray, width: int) -> np.ndarray:
    return np.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, width - value.shape[-1])])
