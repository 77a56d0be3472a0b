"""Ops that coremltools lacks and that are added while a user's module is converted: they compute what torch does."""

import numpy as np
import pytest
import torch
from nets import Net

from ane_sweep import reference
from ane_sweep.worker.stages import _more_ops

X = torch.tensor([[0.5, -1.0, 2.0], [3.0, 0.25, -0.5]])
MADE = {
    "diff": lambda x: torch.diff(x),
    "diff along another axis": lambda x: torch.diff(x, dim=0),
    "diff with ends": lambda x: torch.diff(x, dim=-1, prepend=x[:, :1] - 1, append=x[:, :1]),
    "new_ones": lambda x: x.new_ones((2, 1)) + x,
    "new_ones of no axis": lambda x: torch.where(x.new_ones((), dtype=torch.bool) & (x > 0), x, -1.0),
    "new_ones in whole numbers": lambda x: (x.int().new_ones((3,)) + x.int()).float(),
}


@pytest.mark.parametrize("what", MADE)
def test_what_is_added_computes_the_same(tmp_path, what):
    import coremltools as ct

    traced = torch.jit.trace(Net(MADE[what]).eval(), X, check_trace=False)
    with _more_ops.registered():
        ct.convert(
            traced, inputs=[ct.TensorType("x", X.shape)], outputs=[ct.TensorType("y")], skip_model_load=True,
            minimum_deployment_target=ct.target.iOS18, compute_precision=ct.precision.FLOAT32, package_dir=str(tmp_path / "m.mlpackage"),
        )  # fmt: skip
    got = reference.load(tmp_path / "m.mlpackage").predict({"x": X.numpy()})
    assert np.allclose(got["y"], MADE[what](X).numpy())


def test_they_are_gone_afterwards_and_replace_nothing():
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY as known

    before = dict(known.name_to_func_mapping)
    assert not set(_more_ops._OPS) & set(before)  # coremltools has them now: delete ours
    with _more_ops.registered():
        assert set(known.name_to_func_mapping) == {*before, *_more_ops._OPS}
    assert known.name_to_func_mapping == before
