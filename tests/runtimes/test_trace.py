"""Looking at values while a program runs."""

import numpy as np
import pytest

from ane_sweep import reference
from ane_sweep.errors import PackageError
from ane_sweep.reference import trace

X = np.linspace(-1, 1, 12, dtype=np.float16).reshape(3, 4)


@pytest.fixture(scope="module")
def lossy(mil, tmp_path_factory):
    """`shifted` adds 2048 and takes it away again: all of x is lost there and nowhere else."""

    def body(x):
        mb = mil.mb
        doubled = mb.mul(x=x, y=np.float16(2), name="doubled")
        raised = mb.add(x=doubled, y=np.float16(2048), name="raised")
        shifted = mb.sub(x=raised, y=np.float16(2048), name="shifted")
        return mb.exp(x=mb.mul(x=shifted, y=np.float16(0.5), name="scaled"), name="out")

    return mil.write(tmp_path_factory.mktemp("lossy") / "m.mlpackage", {"x": X}, body)


def test_any_intermediate_by_name(lossy):
    model = reference.load(lossy)
    kept = trace.collect_values(model, {"x": X}, ["doubled", "scaled"])
    np.testing.assert_array_equal(kept["doubled"], 2 * X)
    assert list(kept) == ["doubled", "scaled"] and model.plan.session.watch is None
    with pytest.raises(PackageError, match="no op makes 'nothing' while it runs"):
        trace.collect_values(model, {"x": X}, ["nothing"])


def test_what_is_not_finite_is_seen(lossy, mil, tmp_path):
    seen = trace.record_values(reference.load(lossy), {"x": X})
    assert [item.name for item in seen] == ["doubled", "raised", "shifted", "scaled", "out"]
    assert not any(item.nan or item.saturated for item in seen) and seen[0].peak == 2

    def body(x):
        mb = mil.mb
        big = mb.mul(x=x, y=np.float16(65504), name="big")
        return mb.sub(x=mb.mul(x=big, y=np.float16(2), name="over"), y=mb.mul(x=big, y=np.float16(2)), name="gone")

    path = mil.write(tmp_path / "m.mlpackage", {"x": X}, body)
    found = {item.name: item for item in trace.record_values(reference.load(path), {"x": X})}
    assert found["big"].saturated == 2 and found["over"].infinite > 2 and found["gone"].nan == found["over"].infinite


def test_the_op_that_loses_the_accuracy_is_found(lossy):
    model, exact = reference.load(lossy), reference.load(lossy, numerics="fp32")
    seen = {item.name: item for item in trace.measure_drift(model, exact, {"x": X})}
    assert seen["doubled"].own == 0 and 0 < seen["raised"].own < 1e-3, "half a unit in the last place, as anywhere"
    assert seen["shifted"].own == 0 and seen["shifted"].drift > 0.1, "and here it is all that is left"
    assert [item.name for item in trace.rank_worst(list(seen.values()), 1)] == ["shifted"]
    assert seen["scaled"].jump == pytest.approx(0, abs=1e-6), "what follows only carries it on"
    same = trace.measure_drift(exact, exact, {"x": X})
    assert len(same) == len(seen) and all(item.drift == 0 and item.own == 0 for item in same)


def test_distance_is_relative_to_the_peak():
    import torch

    a = torch.tensor([10.0, 0.0, float("inf")])
    assert trace.measure_distance(a, a.clone()) == 0
    assert trace.measure_distance(a, torch.tensor([9.0, 0.5, float("inf")])) == pytest.approx(0.1)
    assert trace.measure_distance(a, torch.tensor([10.0, 0.0, 3.0])) == np.inf
    assert trace.measure_distance(a, torch.tensor([10.0])) is None and trace.measure_distance(a.int(), a) is None


def test_two_models_are_compared_value_by_value(mil, tmp_path):
    def body(factor, ending):
        def make(x):
            mb = mil.mb
            h = mb.tanh(x=x, name=f"h{ending}")
            return mb.mul(x=mb.mul(x=h, y=factor, name=f"k{ending}"), y=factor, name="y")

        return make

    wide = mil.write(tmp_path / "a.mlpackage", {"x": X.astype(np.float32)}, body(np.float32(3), ""))
    half = mil.write(tmp_path / "b.mlpackage", {"x": X}, body(np.float16(3.5), "_cast_fp16"))
    seen = trace.compare_values(reference.load(wide), reference.load(half), {"x": X}).seen
    assert [item.name for item in seen] == ["h_cast_fp16", "k_cast_fp16", "y"]
    assert seen[0].drift < 1e-3 < 0.1 < seen[1].drift < seen[2].drift


def test_loops_are_watched_round_by_round(mil, tmp_path):
    def body(x):
        mb = mil.mb
        return mb.while_loop(
            _cond=lambda i, y: mb.less(x=i, y=np.int32(3)),
            _body=lambda i, y: (mb.add(x=i, y=np.int32(1)), mb.mul(x=y, y=np.float16(2), name="twice")),
            loop_vars=(np.int32(0), x),
        )[1]

    model = reference.load(mil.write(tmp_path / "m.mlpackage", {"x": X}, body))
    rounds = [item.peak for item in trace.record_values(model, {"x": X}) if item.name == "twice"]
    assert rounds == [2, 4, 8]
