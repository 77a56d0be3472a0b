"""An ONNX file (model=onnx) as a torch module, made by onnx2torch; its reference is onnxruntime on the file itself.

arch   path, inputs (bridge/shapes.py), files (digests), packages (versions), samples
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import onnx
import torch
from torch import fx, nn

from ane_sweep.bridge import shapes
from ane_sweep.bridge.onnx_ops import safe_name
from ane_sweep.worker.models import _onnx_check, _onnx_graph, _onnx_ops, _own, module
from ane_sweep.worker.models._types import Model


class ConvertedGraph(nn.Module):
    """A converted graph, which takes its inputs in order and returns {name: output}."""

    def __init__(self, net: fx.GraphModule, names: Sequence[str]):
        super().__init__()
        self.net, self.names = net, names

    def forward(self, *graph_inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        made = self.net(*graph_inputs)
        return dict(zip(self.names, made if isinstance(made, (list, tuple)) else [made], strict=True))


class OnnxModule(module.OwnModule):
    """An OwnModule whose reference outputs are onnxruntime's. Its program's values are named after the file's nodes."""

    names_values_by = "inner.net."  # the path of the nodes' modules

    def __init__(self, inner: nn.Module, taken: tuple[shapes.Input, ...], path: str, file: Path):
        super().__init__(inner, taken, path)
        self.file = file

    @cached_property
    def runnable(self) -> str | bytes:
        """The file, or its content in a newer opset if onnxruntime has no kernels for it."""
        renewed = _onnx_graph.renew(onnx.load(self.file, load_external_data=False))
        return str(self.file) if renewed is None else renewed.SerializeToString()

    def compute_reference(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return onnxruntime's outputs in fp32 and int32."""
        made = [torch.from_numpy(value) for value in _onnx_check.run(self.runnable, values)]
        return tuple(value.float() if value.is_floating_point() else value.int() for value in made)


def build_given(params: dict[str, Model], inputs: dict[str, Path]) -> OnnxModule:
    """Convert the file and run it once. Raises StageError, with the node if one has no conversion."""
    arch, file = params["model"]["arch"], inputs["file"]
    taken = shapes.read(arch["inputs"])
    what = f"model.path={arch['path']}: converting it to torch"
    with _own.user_code(what):
        inner, folded = convert(file, taken)
    made = OnnxModule(inner, taken, arch["path"], file).eval()
    module.run_once(made, None)
    with _own.user_code(what):
        _onnx_check.compare(
            folded, inner.net, [value.to(getattr(torch, one.dtype)) for one, value in zip(taken, made.example)]
        )
    return made


def convert(file: Path, taken: Sequence[shapes.Input]) -> tuple[ConvertedGraph, onnx.ModelProto]:
    """Return the file as a torch module in fp32, with the sizes of inputs that have one shape, and the graph that it is compared with."""
    model = onnx.load(file)
    names = [safe_name(one.name) for one in model.graph.output]
    fixed = {one.name: one.points()[0] for one in taken if not one.flexible}
    sizes = {one.name: fixed[safe_name(one.name)] for one in model.graph.input if safe_name(one.name) in fixed}
    simple, folded = _onnx_graph.simplify(model, sizes)
    return ConvertedGraph(_onnx_ops.to_torch(simple).requires_grad_(False), names), folded


VARIANTS = {"original": build_given}
