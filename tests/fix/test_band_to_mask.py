"""band_to_mask: bands of random shapes are selected by a mask, look-alikes stay, and a net with linear attention gains by it."""

import random

import numpy as np
import pytest
from fix.checks import check_rewrite, check_untouched, count_ops, save

pytest.importorskip("coremltools")

from coremltools.converters.mil import Builder as mb

from ane_sweep.fix import driver

NAME = "band_to_mask"


@pytest.mark.parametrize("seed", range(12))
def test_bands_of_random_shapes(tmp_path, seed):
    draw = random.Random(seed)
    shape = tuple(draw.randint(1, 9) for _ in range(draw.randint(2, 5)))
    given = {side: draw.randint(-2, 9) for side in ("lower", "upper") if draw.random() < 0.8}
    dtype = draw.choice(("fp16", "fp32"))
    path = save(tmp_path / "m.mlpackage", lambda x: mb.relu(x=mb.band_part(x=x, **given)), x=(dtype, shape))
    assert count_ops(check_rewrite(NAME, path, places=1)) == {"select": 1, "relu": 1}


def test_infinite_numbers_outside_the_band_are_0(tmp_path):
    path = save(
        tmp_path / "m.mlpackage",
        lambda x: mb.band_part(x=mb.inverse(x=mb.relu(x=x), epsilon=0.0), upper=0),
        x=("fp32", (5, 5)),
    )
    check_rewrite(NAME, path, places=1)


def test_whole_numbers_stay(tmp_path):
    check_untouched(NAME, save(tmp_path / "m.mlpackage", lambda x: mb.band_part(x=x, upper=0), x=("int32", (4, 4))))


def test_a_mask_of_more_than_4_mb_stays(tmp_path):
    check_untouched(
        NAME, save(tmp_path / "m.mlpackage", lambda x: mb.band_part(x=x, upper=0), x=("fp16", (2048, 2049)))
    )


def attention(x):
    """Return linear attention between convolutions; its scores are a lower triangle."""
    parts = [
        mb.transpose(x=mb.conv(x=x, weight=np.full((64, 64, 1, 1), 0.02, np.float16)), perm=[0, 2, 3, 1])
        for _ in range(3)
    ]
    scores = mb.matmul(x=parts[0], y=parts[1], transpose_y=True)
    return mb.matmul(x=mb.band_part(x=scores, upper=0), y=parts[2])


def test_linear_attention_gains(tmp_path):
    report = driver.fix(save(tmp_path / "m.mlpackage", attention, x=("fp16", (1, 64, 8, 512))), None, "m4")
    assert NAME in [trial.rewrite for trial in report.applied]
    assert report.before.on_ane < report.before.ops and report.after.on_ane == report.after.ops
