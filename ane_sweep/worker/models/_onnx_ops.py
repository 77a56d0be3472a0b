"""Converters of ONNX ops that onnx2torch lacks: importing this module registers them."""

import sys
from types import ModuleType

import onnx
import torch
from torch import fx, nn

from ane_sweep.errors import StageError

try:  # onnx2torch imports torchvision, and only NonMaxSuppression and RoiAlign use it: a stand-in will do
    import torchvision.ops  # noqa: F401
except (ImportError, RuntimeError):  # RuntimeError: built for another torch
    for name in [one for one in sys.modules if one.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    stand_in = ModuleType("torchvision.ops")
    stand_in.__dict__["roi_align"] = None
    sys.modules |= {"torchvision": ModuleType("torchvision"), "torchvision.ops": stand_in}

import onnx2torch
from onnx2torch.node_converters.registry import add_converter
from onnx2torch.onnx_graph import OnnxGraph
from onnx2torch.onnx_node import OnnxNode
from onnx2torch.utils.common import OnnxMapping, OperationConverterResult

_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}  # torch's order of the gates, as places in ONNX's (iofc; zrh)


__all__ = ["OnnxGraph", "to_torch"]


def to_torch(model: onnx.ModelProto) -> fx.GraphModule:
    """Return a simplified ONNX model (_onnx_graph.py) as a torch module. Raises NotImplementedError, StageError."""
    made: fx.GraphModule = onnx2torch.convert(model)
    return made


class Recurrent(nn.Module):
    """An nn.LSTM or nn.GRU with ONNX's outputs: all steps (steps, directions, batch, hidden), then the last states.

    is_reverse   it reads the steps from the last to the first
    is_alone     the node has one output: all steps
    """

    def __init__(self, inner: nn.LSTM | nn.GRU, is_reverse: bool, is_alone: bool):
        super().__init__()
        self.inner, self.is_reverse, self.is_alone = inner, is_reverse, is_alone

    def forward(
        self, x: torch.Tensor, initial_h: torch.Tensor | None = None, initial_c: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        directions = 2 if self.inner.bidirectional else 1
        shape = (directions, x.shape[1], self.inner.hidden_size)
        h = torch.zeros(shape) if initial_h is None else initial_h
        c = torch.zeros(shape) if initial_c is None else initial_c
        x = x.flip(0) if self.is_reverse else x
        y, last = self.inner(x, (h, c) if isinstance(self.inner, nn.LSTM) else h)
        y = y.flip(0) if self.is_reverse else y
        y = y.reshape(x.shape[0], x.shape[1], directions, self.inner.hidden_size).permute(0, 2, 1, 3)
        if self.is_alone:
            return y
        return (y, *last) if isinstance(self.inner, nn.LSTM) else (y, last)


@add_converter(operation_type="LSTM", version=7)
@add_converter(operation_type="LSTM", version=14)
@add_converter(operation_type="GRU", version=7)
@add_converter(operation_type="GRU", version=14)
def _(node: OnnxNode, graph: OnnxGraph) -> OperationConverterResult:
    kind, direction = node.operation_type, node.attributes.get("direction", "forward")
    given = {name: number for number, name in enumerate(node.input_values) if name}
    _check_recurrent(node, graph)
    weights = [graph.initializers[node.input_values[n]].to_torch() for n in (1, 2)]
    hidden, features = weights[1].shape[-1], weights[0].shape[-1]
    has_bias = len(node.input_values) > 3 and node.input_values[3] != ""
    make = nn.LSTM if kind == "LSTM" else nn.GRU
    inner = make(features, hidden, bias=has_bias, bidirectional=direction == "bidirectional")
    tensors = {"weight_ih": weights[0], "weight_hh": weights[1]}
    if has_bias:
        bias = graph.initializers[node.input_values[3]].to_torch()
        tensors["bias_ih"], tensors["bias_hh"] = bias.chunk(2, dim=1)
    for name, value in tensors.items():
        for number, part in enumerate(value):
            gates = part.chunk(len(_GATES[kind]))
            suffix = "_reverse" if number else ""
            getattr(inner, f"{name}_l0{suffix}").data.copy_(torch.cat([gates[place] for place in _GATES[kind]]))
    inputs = (node.input_values[0], *(name for name in node.input_values[5:7] if name in given))
    return OperationConverterResult(
        Recurrent(inner, direction == "reverse", len(node.output_values) == 1),
        OnnxMapping(inputs=inputs, outputs=node.output_values),
    )


def _check_recurrent(node: OnnxNode, graph: OnnxGraph) -> None:
    """Raise StageError for options that nn.LSTM and nn.GRU do not have."""
    found = {
        name
        for name in ("activations", "activation_alpha", "clip", "input_forget", "layout")
        if node.attributes.get(name)
    }
    default = ["Sigmoid", "Tanh", "Tanh"] if node.operation_type == "LSTM" else ["Sigmoid", "Tanh"]
    activations = node.attributes.get("activations") or default
    if activations == default * (len(activations) // len(default)):
        found.discard("activations")
    if node.operation_type == "GRU" and not node.attributes.get("linear_before_reset"):
        found.add("linear_before_reset=0")
    names = dict(enumerate(node.input_values))
    found |= {what for number, what in ((4, "sequence_lens"), (7, "peepholes")) if names.get(number)}
    found |= {"computed weights" for at in (1, 2, 3) if names.get(at) and names[at] not in graph.initializers}
    if found:
        raise StageError(
            f"node {node.name} ({node.operation_type}): {', '.join(sorted(found))} has no conversion to torch"
        )


class Triangle(nn.Module):
    """The upper or lower triangle of a matrix."""

    def __init__(self, is_upper: bool, diagonal: int):
        super().__init__()
        self.is_upper, self.diagonal = is_upper, diagonal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.triu(x, self.diagonal) if self.is_upper else torch.tril(x, self.diagonal)


@add_converter(operation_type="Trilu", version=14)
def _(node: OnnxNode, graph: OnnxGraph) -> OperationConverterResult:
    names = [name for name in node.input_values if name]
    if len(names) > 1 and names[1] not in graph.initializers:
        raise StageError(f"node {node.name} (Trilu): its diagonal is computed; it must be a constant")
    diagonal = int(graph.initializers[names[1]].to_torch()) if len(names) > 1 else 0
    module = Triangle(bool(node.attributes.get("upper", 1)), diagonal)
    return OperationConverterResult(module, OnnxMapping(inputs=(names[0],), outputs=node.output_values))


@add_converter(operation_type="Gelu", version=17)  # an op of opset 20, in a graph that _onnx_graph.py brings to 17
def _(node: OnnxNode, graph: OnnxGraph) -> OperationConverterResult:
    module = nn.GELU(approximate=str(node.attributes.get("approximate", "none")))
    return OperationConverterResult(module, OnnxMapping(inputs=node.input_values, outputs=node.output_values))
