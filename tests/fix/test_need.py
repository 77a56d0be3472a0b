"""An accuracy rewrite that costs time is kept only where the program needs it, and no rewrite takes a program off the Neural
Engine by itself."""

from dataclasses import replace

import numpy as np
import pytest
from fix.checks import save

pytest.importorskip("coremltools")
from coremltools.converters.mil import Builder as mb

from ane_sweep.fix import driver, figures, need
from ane_sweep.mil import package
from ane_sweep.placement import chips

NAME = "rms_norm_scaled"


def write_norm(path, size: float):
    """Write x * size -> RMSNorm over the channels -> convolution, in fp16; squares overflow from a `size` of some 60 on."""
    weight = np.random.default_rng(0).standard_normal((64, 64, 1, 1)).astype(np.float16)

    def body(x):
        y = mb.conv(x=x, weight=weight, pad_type="valid")
        y = mb.mul(x=y, y=np.float16(size))
        mean = mb.reduce_mean(x=mb.square(x=y), axes=[1], keep_dims=True)
        return mb.conv(x=mb.mul(x=y, y=mb.rsqrt(x=mean, epsilon=1e-6)), weight=weight, pad_type="valid")

    return save(path, body, x=("fp16", (1, 64, 1, 32)))


def try_norm(tmp_path, size: float, insist: bool = False):
    report = driver.fix(write_norm(tmp_path / "m.mlpackage", size), only=(NAME,), insist=insist)
    (trial,) = report.trials
    assert trial.after.estimate_ms > trial.before.estimate_ms  # so it has a price
    return trial


def test_a_program_that_overflows_needs_it(tmp_path):
    trial = try_norm(tmp_path, 100.0)
    assert trial.status == "applied"
    assert "in the Neural Engine's arithmetic" in trial.reason and "ms estimated" in trial.reason


def test_so_does_one_that_would_with_larger_inputs(tmp_path):
    trial = try_norm(tmp_path, 4.0)
    assert trial.status == "applied" and "on 8 times the values seen" in trial.reason


def test_a_program_far_from_it_is_left_alone_unless_the_rewrite_is_named(tmp_path):
    trial = try_norm(tmp_path, 0.1)
    assert trial.status == "refused" and trial.reason.startswith("not needed") and f"--only {NAME}" in trial.reason
    assert try_norm(tmp_path, 0.1, insist=True).status == "applied"


def test_a_place_whose_values_are_unknown_is_not_called_unneeded(tmp_path, monkeypatch):
    monkeypatch.setattr(need, "_MOST_VALUES", 64)
    trial = try_norm(tmp_path, 0.1)
    assert trial.status == "applied" and "the values at 1 of 1 places are not known" in trial.reason


def test_masks_stay_as_they_are():
    assert not need._is_data(np.float16([0, 1, 1])) and not need._is_data(np.int32([7]))
    assert need._is_data(np.float16([0, 0.5]))


def test_a_faster_program_that_leaves_the_neural_engine_is_no_gain(tmp_path):
    path = write_norm(tmp_path / "m.mlpackage", 1.0)
    before = replace(figures.measure_figures(package.read(path), chips.get("m4")), on_ane=6, estimate_ms=1.0)
    after = replace(before, on_ane=0, estimate_ms=0.5)
    helps, reason = figures.find_gain(before, after)
    assert not helps and "leaves the Neural Engine: 6 of 7 -> 0 of 7 ops there" in reason and "1 -> 0.5 ms" in reason
    helps, reason = figures.find_gain(before, after, may_leave=True)
    assert helps and "leaves the Neural Engine" in reason
    assert figures.find_gain(replace(before, on_ane=0), after)[0]  # it was not there before
