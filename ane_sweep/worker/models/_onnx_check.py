"""Comparison of a converted graph with onnxruntime on the same graph: onnx2torch 1.5.15 gets some ops silently wrong.

In the ONNX standard's own tests of single nodes it computes other numbers for averages with dilation, most modes of
Resize, LayerNormalization with its statistics as outputs, and a few more (tests/proof/ONNX.md).
"""

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import ModelProto
from torch import fx

from ane_sweep.errors import StageError
from ane_sweep.stats import psnr
from ane_sweep.worker.models import _onnx_graph, _onnx_ops

LEAST_DB = 60.0  # fp32 sums in another order are 100 dB and more apart; a wrong op, hardly more than 40
_NUMPY = {"float": np.float32, "float16": np.float16, "double": np.float64, "bool": np.bool_}


def compare(model: ModelProto, net: fx.GraphModule, values: Sequence[torch.Tensor]) -> None:
    """Raise StageError with the first node whose numbers differ from onnxruntime's, if an output does. Files of 2 GB are not compared."""
    if model.ByteSize() >= _onnx_graph.LARGEST:
        return
    with torch.inference_mode():
        recorder = _Recorder(net)
        made = recorder.run(*values)
    made = made if isinstance(made, (list, tuple)) else [made]
    wanted = run(model.SerializeToString(), values, [one.name for one in model.graph.output])
    if all(_is_close(one, want) for one, want in zip(made, wanted, strict=True)):
        return
    nodes = _onnx_ops.OnnxGraph(model.graph).nodes
    outputs = {name: [output for output in node.output_values if output] for name, node in nodes.items()}
    names = [output for listed in outputs.values() for output in listed]
    numbers = dict(zip(names, run(_expose(model, names), values, names), strict=True))
    for name, node in nodes.items():
        values_of = recorder.by_module.get(name)
        given = values_of if isinstance(values_of, (tuple, list)) else [values_of]
        kept = [
            (one, output) for one, output in zip(given, node.output_values) if isinstance(one, torch.Tensor) and output
        ]
        if len(given) < len(outputs[name]) or not all(_is_close(one, numbers[output]) for one, output in kept):
            raise StageError(
                f"node {name} ({node.operation_type}): onnx2torch computes other numbers than onnxruntime; export the net without it"
            )
    raise StageError(
        "onnx2torch computes other numbers than onnxruntime, and no single node says why; export the net in another way"
    )


def run(source: str | bytes, values: Sequence[torch.Tensor], names: Sequence[str] | None = None) -> list[np.ndarray]:
    """Return the outputs of these names (None: all) of a file or a message, as onnxruntime computes them."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    # Further levels fuse QDQ into int8 kernels, which saturate on processors without VNNI: 11 % of the largest output.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    feeds = {}
    for one, value in zip(session.get_inputs(), values, strict=True):
        kind = one.type.removeprefix("tensor(").removesuffix(")")
        feeds[one.name] = value.numpy().astype(_NUMPY.get(kind, kind))
    return [np.asarray(value) for value in session.run(names, feeds)]


class _Recorder(fx.Interpreter):
    """An interpreter that keeps what each module made, by its name."""

    def __init__(self, net: fx.GraphModule):
        super().__init__(net)
        self.by_module: dict[str, object] = {}

    def run_node(self, n: fx.Node) -> object:
        made: object = super().run_node(n)
        if n.op == "call_module":
            self.by_module[str(n.target)] = made
        return made


def _expose(model: ModelProto, names: Sequence[str]) -> bytes:
    """Return the message of a model with further outputs."""
    known = {one.name for one in model.graph.output}
    extended = onnx.ModelProto()
    extended.CopyFrom(model)
    extended.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    return extended.SerializeToString()


def _is_close(made: object, wanted: np.ndarray) -> bool:
    if not isinstance(made, torch.Tensor) or tuple(made.shape) != wanted.shape:
        return False
    got, want = made.numpy().astype(np.float64), wanted.astype(np.float64)
    is_number = np.isfinite(want)
    if not np.array_equal(np.isfinite(got), is_number):
        return False
    got, want = got[is_number], want[is_number]
    if not want.size or np.array_equal(got, want):
        return True
    if not np.abs(want).max():
        return bool(np.abs(got).max() < 1e-6)
    return psnr.psnr_db(reference=want, candidate=got) >= LEAST_DB
