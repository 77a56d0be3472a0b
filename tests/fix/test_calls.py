"""The work of `fix` grows with the ops of a program and no faster: the calls are counted, not timed."""

import sys

import numpy as np
import pytest
from fix.checks import save

pytest.importorskip("coremltools")

from coremltools.converters.mil import Builder as mb

from ane_sweep.fix import driver
from ane_sweep.fix.rewrite import REWRITES

WIDTH, TOKENS = 16, 8


def write_layers(path, count):
    """Write a program of `count` layers with a norm, attention, a written-out gelu and lookups of its tokens."""
    draw = np.random.default_rng(0)

    def project(x):
        return mb.linear(x=x, weight=draw.standard_normal((WIDTH, WIDTH)).astype(np.float16))

    def split_heads(x):
        return mb.transpose(x=mb.reshape(x=project(x), shape=[1, TOKENS, 2, WIDTH // 2]), perm=[0, 2, 1, 3])

    def body(x):
        for _ in range(count):
            y = mb.layer_norm(x=x, axes=[-1], epsilon=np.float16(1e-3))
            q, k, v = (split_heads(y) for _ in range(3))
            scores = mb.softmax(x=mb.matmul(x=q, y=k, transpose_y=True), axis=-1)
            y = mb.transpose(x=mb.matmul(x=scores, y=v), perm=[0, 2, 1, 3])
            x = mb.add(x=x, y=project(mb.reshape(x=y, shape=[1, TOKENS, WIDTH])))
            y = project(x)
            inner = mb.add(x=mb.erf(x=mb.mul(x=y, y=np.float16(0.5**0.5))), y=np.float16(1))
            x = mb.add(x=x, y=mb.mul(x=mb.mul(x=y, y=inner), y=np.float16(0.5)))
            x = mb.mul(x=x, y=mb.cast(x=mb.greater(x=x, y=np.float16(-9)), dtype="fp16"))
        return x

    return save(path, body, x=("fp16", (1, TOKENS, WIDTH)))


def count_calls(path):
    """Return how many functions a fix enters, generators that go on included, and its report."""
    calls = 0

    def note(frame, event, argument):
        nonlocal calls
        calls += event == "call" and "ane_sweep" in frame.f_code.co_filename

    sys.setprofile(note)
    try:
        report = driver.fix(path, only=tuple(REWRITES), insist=True)
    finally:
        sys.setprofile(None)
    return calls, report


@pytest.mark.slow
def test_calls_grow_with_the_ops_and_no_faster(tmp_path):
    count_calls(write_layers(tmp_path / "first.mlpackage", 2))  # imports, and what is kept for the next call
    found = [count_calls(write_layers(tmp_path / f"{count}.mlpackage", count)) for count in (4, 8, 16)]
    tried = [{trial.rewrite for trial in report.trials if trial.changes} for _, report in found]
    assert tried[0] == tried[1] == tried[2] >= {"gelu_fused", "linear_to_conv", "attention_to_split_einsum"}
    few, some, many = (calls for calls, _ in found)
    assert (many - some) / 8 < 1.05 * (some - few) / 4, (few, some, many)
