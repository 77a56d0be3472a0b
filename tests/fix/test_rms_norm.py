"""rms_norm_as_layer_norm: proven over random shapes, and look-alikes left alone."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from fix.checks import check_rewrite, check_untouched, count_ops, save
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("coremltools")
from coremltools.converters.mil import Builder as mb

FEW = settings(max_examples=8, deadline=None, phases=(Phase.explicit, Phase.generate))


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as made:
        yield lambda: Path(tempfile.mkdtemp(dir=made)) / "m.mlpackage"


def norm(x, weight=None, one=np.float16, axes=(-1,), reduce=mb.reduce_mean):
    mean = reduce(x=mb.mul(x=x, y=x), axes=list(axes), keep_dims=True)
    made = mb.mul(x=x, y=mb.rsqrt(x=mb.add(x=mean, y=one(1e-3)), epsilon=one(1e-12)))
    return made if weight is None else mb.mul(x=weight, y=made)


@FEW
@given(shape=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(16, 80)), has_weight=st.booleans())
def test_rms_norm_becomes_layer_norm(folder, shape, has_weight):
    weight = np.random.default_rng(0).standard_normal(shape[-1]).astype(np.float16) if has_weight else None
    path = save(folder(), lambda x: norm(x, weight), x=("fp16", shape))
    assert count_ops(check_rewrite("rms_norm_as_layer_norm", path, places=1)) == {
        "mul": 1, "concat": 1, "layer_norm": 1, "slice_by_index": 1,
    }  # fmt: skip


def test_other_norms_stay(folder):
    def centred(x):
        return norm(mb.sub(x=x, y=mb.reduce_mean(x=x, axes=[-1], keep_dims=True)))

    for body in (centred, lambda x: norm(x, axes=(1,)), lambda x: norm(x, reduce=mb.reduce_sum)):
        check_untouched("rms_norm_as_layer_norm", save(folder(), body, x=("fp16", (2, 4, 16))))
    check_untouched("rms_norm_as_layer_norm", save(folder(), lambda x: norm(x, one=np.float32), x=("fp32", (1, 4, 16))))
