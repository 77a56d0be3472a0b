"""Ops that coremltools lacks and that are added while a user's module is converted: they compute what torch does."""

import numpy as np
import pytest
import torch
from nets import output
from torch.nn import functional as F

from ane_sweep.worker.programs.mlprogram import assignments, torch_ops

X = torch.tensor([[0.5, -1.0, 2.0], [3.0, 0.25, -0.5]])
IMAGE = torch.randn((2, 3, 7, 9), generator=torch.Generator().manual_seed(0))
MADE = {
    "diff": lambda x: torch.diff(x),
    "diff along another axis": lambda x: torch.diff(x, dim=0),
    "diff with ends": lambda x: torch.diff(x, dim=-1, prepend=x[:, :1] - 1, append=x[:, :1]),
    "new_ones": lambda x: x.new_ones((2, 1)) + x,
    "new_ones of no axis": lambda x: torch.where(x.new_ones((), dtype=torch.bool) & (x > 0), x, -1.0),
    "new_ones in whole numbers": lambda x: (x.int().new_ones((3,)) + x.int()).float(),
}
RESIZED = {
    "to a size": {"size": (14, 5)},
    "to one row": {"size": (1, 9)},
    "by a factor": {"scale_factor": 2},
    "by two factors": {"scale_factor": (0.6, 1.7)},
    "by factors of its sizes": {"scale_factor": (0.6, 1.7), "recompute_scale_factor": True},
    "corner to corner": {"size": (11, 4), "align_corners": True},
}
FILTERS = {"bicubic": False, "bicubic, antialiased": True, "bilinear, antialiased": True}


@pytest.mark.parametrize("what", MADE)
def test_what_is_added_computes_the_same(tmp_path, what):
    assert np.allclose(output(tmp_path, MADE[what], X), MADE[what](X).numpy())


@pytest.mark.parametrize("how", RESIZED)
@pytest.mark.parametrize("what", FILTERS)
def test_an_image_is_resized_as_torch_does(tmp_path, what, how):
    def resized(x):
        return F.interpolate(x, mode=what.partition(",")[0], antialias=FILTERS[what], **RESIZED[how])

    assert np.allclose(output(tmp_path, resized, IMAGE), resized(IMAGE).numpy(), atol=1e-5)


def test_they_are_gone_afterwards_and_replace_nothing():
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY as known

    before = dict(known.name_to_func_mapping)
    assert set(torch_ops._OPS) & set(before) == set(torch_ops._WRONG)  # coremltools has more of them now: delete ours
    with torch_ops.register_ops():
        added = {*known.name_to_func_mapping} - {*before}
        assert {*torch_ops._OPS} - {*before} == added - {assignments.KIND}
        assert known.name_to_func_mapping["_upsample_bilinear2d_aa"] is torch_ops._convert_resize
    assert known.name_to_func_mapping == before
