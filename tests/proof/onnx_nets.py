"""Nets for tests/proof/onnx_files.py: torchvision's, an encoder and an LSTM through both of PyTorch's exporters, and
scikit-learn's through skl2onnx.

    python -m tests.proof.onnx_nets FOLDER     writes the files, and origins.json with each one's exporter
"""

import json
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
from skl2onnx import to_onnx
from sklearn import linear_model, neural_network, preprocessing
from torch import nn

_OPS = torch.library.Library(
    "torchvision", "DEF"
)  # a torchvision built for CUDA defines none beside a torch of the CPU
for _op in (
    "nms(Tensor dets, Tensor scores, float iou_threshold)",
    "qnms(Tensor dets, Tensor scores, float iou_threshold)",
):
    _OPS.define(f"{_op} -> Tensor")

import torchvision  # noqa: E402

VISION = ("resnet18", "mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x0_5", "efficientnet_b0")


def export(folder: Path) -> Iterator[tuple[str, str]]:
    """Write the nets; yield the name and the exporter of each file."""
    torch.manual_seed(0)
    picture = torch.zeros(1, 3, 64, 64)
    nets = {name: (getattr(torchvision.models, name)(), picture) for name in VISION}
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    nets["encoder"] = (nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.zeros(1, 12, 32))
    nets["lstm"] = (torch.nn.LSTM(8, 16, batch_first=True), torch.zeros(1, 12, 8))
    for name in VISION:  # statistics of pictures: with the first ones numbers shrink to what fp16 loses
        nets[name][0].train()(torch.randn(16, 3, 64, 64))
    for name, (net, example) in nets.items():
        for dynamo in (False, True):
            path = folder / f"{name}-{'dynamo' if dynamo else 'torchscript'}.onnx"
            torch.onnx.export(
                net.eval(), (example,), path, opset_version=18 if dynamo else 17, dynamo=dynamo, external_data=False
            )
            yield path.name, f"torch {torch.__version__}, {'dynamo' if dynamo else 'TorchScript'}"
    x, y = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32), np.arange(50) % 3
    learners = {
        "mlp": neural_network.MLPRegressor(hidden_layer_sizes=(16,)), "line": linear_model.LinearRegression(),
        "scaler": preprocessing.StandardScaler(),
    }  # fmt: skip
    for name, learner in learners.items():
        path = folder / f"{name}-sklearn.onnx"
        path.write_bytes(to_onnx(learner.fit(x, y.astype(np.float32)), x[:1], target_opset=17).SerializeToString())
        yield path.name, f"scikit-learn, skl2onnx {metadata.version('skl2onnx')}"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    (target / "origins.json").write_text(json.dumps(dict(export(target))))
