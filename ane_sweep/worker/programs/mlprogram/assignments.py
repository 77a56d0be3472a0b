"""Writes into a part of a tensor (`y[..., 0::2] = z`, `y[0].add_(1)`), converted to ops that change nothing in place.

coremltools 9.0 reads the slices of such a write as those of the first axes, whatever their axes are, and loses a write
through any other view. Here every write makes a new value of the viewed tensor, and later reads of views use that
value.
"""

from contextlib import AbstractContextManager

import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.frontend import _utils
from coremltools.converters.mil.frontend.torch import converter, ops
from coremltools.converters.mil.frontend.torch.converter import TranscriptionContext
from coremltools.converters.mil.frontend.torch.internal_graph import InternalTorchIRGraph as Graph
from coremltools.converters.mil.frontend.torch.internal_graph import InternalTorchIRNode as Node
from coremltools.converters.mil.mil import Var, types
from coremltools.converters.mil.mil.ops.defs._utils import solve_slice_by_index_shape

from ane_sweep.errors import StageError
from ane_sweep.worker.patches import replace_attributes
from ane_sweep.worker.programs.mlprogram import hints

KIND = "ane_sweep_assign"
_FILLS = ("copy_", "fill_", "zero_")
_CUTS = {"slice": 4, "select": 2}  # views that are written back -> how many inputs each has beside the tensor
# views that are not
_SHARES = frozenset({
    "view", "transpose", "permute", "t", "numpy_t", "squeeze", "unsqueeze", "expand", "expand_as", "view_as",
    "chunk", "constantchunk", "split", "split_with_sizes", "tensor_split", "unbind", "listunpack", "narrow",
    "diagonal", "unfold", "movedim", "swapaxes", "swapdims", "unflatten",
})  # fmt: skip


def replace_pass() -> AbstractContextManager[None]:
    """Return a context in which this module's pass stands in place of coremltools'; KIND is registered by torch_ops.py."""
    theirs = converter.generate_tensor_assignment_ops

    def rewrite(graph: Graph) -> None:
        (theirs if any(node.blocks for node in graph.nodes) else rewrite_assignments)(graph)

    return replace_attributes([(converter, "generate_tensor_assignment_ops", rewrite)])


def rewrite_assignments(graph: Graph) -> None:
    """Replace every write into a tensor by an op that makes a new value. Raises StageError, with the line, if that is impossible."""
    values = _Values()
    for node in graph.nodes:
        values.add(node)
    graph.outputs = [values.read(name) for name in graph.outputs]
    graph.nodes = values.nodes


class _Values:
    """The current values of the names in a trace, as it is walked through.

    nodes     the nodes of the new graph
    current   name -> the name of its present value in the new graph
    views     name -> (the node that makes this view, the version of the viewed tensor)
    versions  tensor that is no view -> number of writes to it so far
    same      output of an op that works in place -> the name that it wrote to
    lost      tensor -> the node that wrote to it through an unsupported view
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.current: dict[str, str] = {}
        self.views: dict[str, tuple[Node, int]] = {}
        self.versions: dict[str, int] = {}
        self.same: dict[str, str] = {}
        self.lost: dict[str, Node] = {}

    def root(self, name: str) -> str:
        """Return the tensor behind a view, or the name itself if it is no view."""
        while name in self.views:
            name = self.views[name][0].inputs[0]
        return name

    def read(self, name: str) -> str:
        """Return the name of the present value; make a view again if its tensor was written to since."""
        name = self.same.get(name, name)
        root = self.root(name)
        if root in self.lost:
            writer = self.lost[root]
            line = hints.find_line((writer.meta or {}).get("source", ""))
            raise StageError(
                f"torch op {writer.kind!r}{f' ({line})' if line else ''} writes into a view of a tensor that is used again; "
                "write to a slice of the tensor itself, as y[:, 0] = z, or to a copy, as y.transpose(0, 1).clone()"
            )
        if name in self.views and self.views[name][1] != self.versions.get(root, 0):
            node, now = self.views[name][0], f"at_{len(self.nodes)}"
            outputs = [f"{one}_{now}" for one in node.outputs]
            self.nodes.append(_copy_node(node, node.kind, [self.read(one) for one in node.inputs], outputs))
            self.views.update(dict.fromkeys(node.outputs, (node, self.versions[root])))
            self.current.update(zip(node.outputs, outputs))
        return self.current.get(name, name)

    def add(self, node: Node) -> None:
        """Add the next node of the trace to the new graph, with writes replaced."""
        names = [self.same.get(name, name) for name in node.inputs]
        target = names[0] if names else ""
        if node.kind in _FILLS:
            self._assign(node, target, [self.read(name) for name in names[1:2]])
        else:
            node.inputs = [self.read(name) for name in names]
            self.nodes.append(node)
            if target and node.kind.endswith("_"):
                self._put_back(node, target)
            elif target and (node.kind in _CUTS or node.kind in _SHARES or (node.meta or {}).get("is_view")):
                taken = _copy_node(node, node.kind, names, node.outputs), self.versions.get(self.root(target), 0)
                self.views.update(dict.fromkeys(node.outputs, taken))

    def _assign(self, node: Node, target: str, value: list[str]) -> None:
        """Write a value into the tensor that `target` is a slice of."""
        base, cuts = target, list[Node]()
        while base in self.views and self.views[base][0].kind in _CUTS:
            cuts.insert(0, self.views[base][0])
            base = cuts[0].inputs[0]
        indices = [self.read(name) for cut in cuts for name in cut.inputs[1:]]
        made = _copy_node(node, KIND, [self.read(base), *value, *indices], [f"{base}_at_{len(self.nodes)}"])
        made.attr = {"value": None, "fills": node.kind, "cuts": [cut.kind for cut in cuts]}
        self.nodes.append(made)
        self._change(node, base, made.outputs[0])
        self.same[node.outputs[0]] = target

    def _put_back(self, node: Node, target: str) -> None:
        """Write an op's result to its target, like torch's in-place ops."""
        if target in self.views and self.views[target][0].kind in _CUTS:
            self._assign(_copy_node(node, "copy_", [], [f"{node.name}_put_back"]), target, [node.outputs[0]])
        else:
            self._change(node, target, node.outputs[0])
        self.same[node.outputs[0]] = target

    def _change(self, node: Node, base: str, value: str) -> None:
        """Set a tensor's new value. A view becomes a separate tensor, and the tensor behind it is lost."""
        if base in self.views:
            self.lost[self.root(base)] = node
            del self.views[base]
        self.versions[base] = len(self.nodes)
        self.current[base] = value


def _copy_node(node: Node, kind: str, inputs: list[str], outputs: list[str]) -> Node:
    """Return a node of another kind with the source line of the given node."""
    return type(node)(
        kind, inputs, outputs, parent=node.parent, attr=node.attr, model_hierarchy=node.model_hierarchy, meta=node.meta
    )


def convert_assignment(context: TranscriptionContext, node: Node) -> None:
    """Convert an op of type KIND; its inputs are the tensor, the value (none for zero_), and the indices of each slice or select."""

    x = context[node.inputs[0]]
    given = 1 if node.attr["fills"] == "zero_" else 2
    value = context[node.inputs[1]] if given == 2 else mb.const(val=np.float32(0))
    if not node.attr["cuts"] and value.shape == x.shape and value.dtype == x.dtype:
        context.add(mb.identity(x=value, name=node.name))
        return
    context.add(None, torch_name=f"{node.name}_nothing")
    names = list(node.inputs[given:])
    cuts = [(kind, [names.pop(0) for _ in range(_CUTS[kind])]) for kind in node.attr["cuts"]]
    context.add(_write_part(context, node, x, cuts, value), node.name)


def _write_part(
    context: TranscriptionContext, node: Node, x: Var, cuts: list[tuple[str, list[str]]], value: Var
) -> Var:
    """Return `x` with `value` written to the part that the cuts select, applied in order."""

    indices, later = _group_by_axis(context, node, x.rank, cuts)
    begin, end, stride, *masks = ops._get_slice_params(context, x, indices)
    if later:  # a slice of a slice of one axis
        begins, ends, squeezed = masks
        part = mb.slice_by_index(
            x=x, begin=begin, end=end, stride=stride, begin_mask=begins, end_mask=ends, squeeze_mask=squeezed
        )
        value = _write_part(context, node, part, later, value)
    shape = tuple(value.shape)  # where the slice is not known before it runs the value must have its shape
    if begin.val is not None and end.val is not None and all(isinstance(size, (int, np.integer)) for size in x.shape):
        shape = tuple(map(int, solve_slice_by_index_shape(x.shape, begin.val, end.val, stride, *masks)))
    if 0 in shape:
        return mb.identity(x=x)
    if value.dtype != x.dtype:
        value = mb.cast(x=value, dtype=types.builtin_to_string(x.dtype))
    if tuple(value.shape) != shape and value.val is not None:
        value = mb.const(val=np.broadcast_to(value.val, shape).copy())
    elif tuple(value.shape) != shape:
        value = _utils.pymil_broadcast_to(value, shape, f"{node.name}_value")
    return ops._translate_torch_tensor_assign(x, value, begin, end, stride, *masks)


def _group_by_axis(
    context: TranscriptionContext, node: Node, rank: int, cuts: list[tuple[str, list[str]]]
) -> tuple[list[str | None], list[tuple[str, list[str]]]]:
    """Return [begin, end, stride] for each axis (for a select [index, None, None]) as coremltools takes them, and the
    cuts from the first repeated axis on.
    """
    left, found = list(range(rank)), dict[int, list[str | None]]()
    taken = 0
    for kind, (dim, *indices) in cuts:
        axis = left[int(context[dim].val)]
        if axis in found:
            break
        found[axis] = [indices[0], None, None] if kind == "select" else [*indices]
        if kind == "select":
            left.remove(axis)
        taken += 1
    nothing: list[str | None] = [f"{node.name}_nothing"] * 3
    return [one for axis in range(max(found, default=-1) + 1) for one in found.get(axis, nothing)], cuts[taken:]
