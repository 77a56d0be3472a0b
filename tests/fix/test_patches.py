"""patch_conv and patch_conv3d: convolutions of patches, proven over random shapes; other convolutions left alone."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from fix.checks import check_rewrite, check_untouched, count_ops, save
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("coremltools")
from coremltools.converters.mil import Builder as mb

from ane_sweep.fix import driver

FEW = settings(max_examples=8, deadline=None)
KINDS = st.sampled_from(["fp16", "fp32"])
SMALL = st.integers(1, 3)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as made:
        yield lambda: Path(tempfile.mkdtemp(dir=made)) / "m.mlpackage"


def weigh(*shape, kind="fp16"):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float16 if kind == "fp16" else np.float32)


@FEW
@given(
    kind=KINDS,
    batch=SMALL,
    channels=SMALL,
    high=st.integers(2, 16),
    wide=st.integers(1, 4),
    rows=SMALL,
    has_bias=st.booleans(),
)
def test_a_conv_of_patches_becomes_a_1x1_conv(folder, kind, batch, channels, high, wide, rows, has_bias):
    def body(x):
        bias = {"bias": weigh(5, kind=kind)} if has_bias else {}
        return mb.conv(
            x=x, weight=weigh(5, channels, high, wide, kind=kind), strides=[high, wide], pad_type="valid", **bias
        )

    source = save(folder(), body, x=(kind, (batch, channels, high * rows, wide * 2)))
    made = check_rewrite("patch_conv", source, places=1)
    assert count_ops(made) == {"reshape": 2, "transpose": 1, "conv": 1}


def test_the_weight_is_shared(folder):
    def body(x):
        return mb.conv(x=x, weight=weigh(32, 3, 16, 16), strides=[16, 16])

    source = save(folder(), body, x=("fp16", (1, 3, 32, 32)))
    made = check_rewrite("patch_conv", source, places=1)
    one, two = ((path / "Data/com.apple.CoreML/weights/weight.bin").read_bytes() for path in (source, made))
    assert one == two


@pytest.mark.parametrize(
    ("weight", "options"),
    [
        ((4, 3, 2, 2), {"strides": [2, 1]}), ((4, 3, 2, 2), {"strides": [2, 2], "pad_type": "custom", "pad": [1, 1, 1, 1]}),
        ((4, 3, 2, 2), {"strides": [2, 2], "dilations": [2, 2]}), ((6, 1, 2, 2), {"strides": [2, 2], "groups": 3}),
        ((4, 3, 5, 5), {"strides": [5, 5]}), ((4, 3, 1, 1), {"strides": [1, 1]}),
    ],
)  # fmt: skip
def test_other_convolutions_stay(folder, weight, options):
    source = save(folder(), lambda x: mb.conv(x=x, weight=weigh(*weight), **options), x=("fp16", (1, 3, 8, 8)))
    check_untouched("patch_conv", source)


def test_a_conv_whose_weight_is_computed_stays(folder):
    source = save(
        folder(),
        lambda x, w: mb.conv(x=x, weight=w, strides=[2, 2]),
        x=("fp16", (1, 3, 8, 8)),
        w=("fp16", (4, 3, 2, 2)),
    )
    check_untouched("patch_conv", source)


@FEW
@given(kind=KINDS, batch=SMALL, frames=SMALL, patch=st.integers(2, 5), rows=SMALL, has_bias=st.booleans())
def test_a_3d_conv_over_all_frames_becomes_a_2d_conv_or_a_linear(folder, kind, batch, frames, patch, rows, has_bias):
    def body(x):
        bias = {"bias": weigh(5, kind=kind)} if has_bias else {}
        return mb.conv(x=x, weight=weigh(5, 3, frames, patch, patch, kind=kind), strides=[frames, patch, patch], **bias)

    made = check_rewrite("patch_conv3d", save(folder(), body, x=(kind, (batch, 3, frames, patch * rows, patch * rows))))
    counted = count_ops(made)
    assert counted.get("linear", 0) == (rows == 1) and counted.get("conv", 0) == (rows > 1)


def test_a_3d_conv_over_some_of_the_frames_stays(folder):
    source = save(
        folder(), lambda x: mb.conv(x=x, weight=weigh(4, 3, 2, 2, 2), strides=[2, 2, 2]), x=("fp16", (1, 3, 4, 4, 4))
    )
    check_untouched("patch_conv3d", source)


@pytest.mark.parametrize(("chip", "status"), [("m1", "applied"), ("m4", "refused")])
def test_patches_of_16_gain_on_chips_that_refuse_the_kernel(folder, chip, status):
    def body(x):
        x = mb.conv(x=x, weight=weigh(64, 3, 16, 16), strides=[16, 16])
        for _ in range(8):
            x = mb.relu(x=mb.conv(x=x, weight=weigh(64, 64, 3, 3), pad_type="same"))
        return x

    source = save(folder(), body, x=("fp16", (1, 3, 224, 224)))
    report = driver.fix(source, source.with_name("better.mlpackage"), chip, only=("patch_conv",))
    assert [trial.status for trial in report.trials] == [status], report.trials
    assert (report.before.refused, report.after.refused) == ((1, 0) if status == "applied" else (0, 0))
