"""A torch module around a function, and what it converts to."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def computed(tmp_path, function, x, target="iOS18"):
    """Return the output of the program that a function of one tensor converts to, in fp32 by the reference runtime."""
    import coremltools as ct

    from ane_sweep import reference
    from ane_sweep.worker.stages import _hints, _more_ops

    traced = torch.jit.trace(Net(function).eval(), x.clone(), check_trace=False)
    with _hints.explained(), _more_ops.registered():
        ct.convert(
            traced, inputs=[ct.TensorType("x", x.shape)], outputs=[ct.TensorType("y")], skip_model_load=True,
            minimum_deployment_target=ct.target[target], compute_precision=ct.precision.FLOAT32, package_dir=str(tmp_path / "m.mlpackage"),
        )  # fmt: skip
    return reference.load(tmp_path / "m.mlpackage").predict({"x": x.numpy()})["y"]
