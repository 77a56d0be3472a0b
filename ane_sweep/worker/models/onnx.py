"""An ONNX file (model=onnx) as a torch module, made by onnx2torch; its reference is onnxruntime on the file itself.

arch   path, inputs (bridge/shapes.py), files (digests), packages (versions), samples
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn

from ane_sweep.bridge import shapes
from ane_sweep.bridge.onnx_ops import safe_name
from ane_sweep.worker.models import _onnx_graph, _onnx_ops, _own, module
from ane_sweep.worker.models._types import Model

_NUMPY = {"float": np.float32, "float16": np.float16, "double": np.float64, "bool": np.bool_}


class ConvertedGraph(nn.Module):
    """A converted graph, which takes its inputs in order and returns {name: output}."""

    def __init__(self, net: nn.Module, names: Sequence[str]):
        super().__init__()
        self.net, self.names = net, names

    def forward(self, *graph_inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        made = self.net(*graph_inputs)
        return dict(zip(self.names, made if isinstance(made, (list, tuple)) else [made], strict=True))


class OnnxModule(module.OwnModule):
    """An OwnModule whose reference outputs are onnxruntime's."""

    def __init__(self, inner: nn.Module, taken: tuple[shapes.Input, ...], path: str, file: Path):
        super().__init__(inner, taken, path)
        self.file = file

    def compute_reference(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return onnxruntime's outputs in fp32 and int32."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, 1
        # Further levels fuse QDQ into int8 kernels, which saturate on processors without VNNI: 11 % of the largest output.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        session = onnxruntime.InferenceSession(str(self.file), options, providers=["CPUExecutionProvider"])
        feeds = {
            one.name: value.numpy().astype(_to_numpy(one.type))
            for one, value in zip(session.get_inputs(), values, strict=True)
        }
        made = [torch.from_numpy(np.asarray(value)) for value in session.run(None, feeds)]
        return tuple(value.float() if value.is_floating_point() else value.int() for value in made)


def _to_numpy(kind: str) -> np.dtype[np.generic]:
    name = kind.removeprefix("tensor(").removesuffix(")")
    return np.dtype(_NUMPY.get(name, name))


def build_given(params: dict[str, Model], inputs: dict[str, Path]) -> OnnxModule:
    """Convert the file and run it once. Raises StageError, with the node if one has no conversion."""
    arch, file = params["model"]["arch"], inputs["file"]
    taken = shapes.read(arch["inputs"])
    with _own.user_code(f"model.path={arch['path']}: converting it to torch"):
        inner = convert(file, taken)
    made = OnnxModule(inner, taken, arch["path"], file).eval()
    module.run_once(made, None)
    return made


def convert(file: Path, taken: Sequence[shapes.Input]) -> ConvertedGraph:
    """Return the file as a torch module in fp32, with the sizes of inputs that have one shape."""
    model = onnx.load(file)
    names = [safe_name(one.name) for one in model.graph.output]
    fixed = {one.name: one.points()[0] for one in taken if not one.flexible}
    sizes = {one.name: fixed[safe_name(one.name)] for one in model.graph.input if safe_name(one.name) in fixed}
    simple = _onnx_graph.simplify(model, sizes)
    return ConvertedGraph(_onnx_ops.to_torch(simple).requires_grad_(False), names)


VARIANTS = {"original": build_given}
