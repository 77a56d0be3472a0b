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
    """Return the outputs of the program that a module or function of one tensor converts to, in fp32 by the reference runtime."""
    import coremltools as ct

    from ane_sweep import reference
    from ane_sweep.worker.programs.mlprogram import hints, torch_ops

    module = function if isinstance(function, nn.Module) else Net(function)
    with torch.no_grad():
        traced = torch.jit.trace(module.eval(), x.clone(), check_trace=False)
    with hints.explain_failures(), torch_ops.register_ops():
        ct.convert(
            traced, inputs=[ct.TensorType("x", x.shape)], skip_model_load=True,
            outputs=None if module is function else [ct.TensorType("y")],
            minimum_deployment_target=ct.target[target], compute_precision=ct.precision.FLOAT32, package_dir=str(tmp_path / "m.mlpackage"),
        )  # fmt: skip
    return reference.load(tmp_path / "m.mlpackage").predict({"x": x.numpy()})


def output(*given):
    """Return the one output that `computed` finds."""
    (value,) = computed(*given).values()
    return value
