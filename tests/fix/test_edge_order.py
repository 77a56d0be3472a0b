"""edge_order: lookups, sorts and whole-number ops go to the ends of a program; random graphs compute the same bits."""

import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
from fix.checks import apply_rewrite, check_rewrite, check_untouched, save
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("coremltools")
from coremltools.converters.mil import Builder as mb

from ane_sweep.fix import driver
from ane_sweep.mil import graph

TABLE = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float16)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as made:
        yield lambda: Path(tempfile.mkdtemp(dir=made)) / "m.mlpackage"


def list_ops(path):
    return [op.type for op in graph.load(path).ops if op.type != "const"]


def convolve(x, count=6):
    weight = (np.random.default_rng(0).standard_normal((64, 64, 3, 3)) * 0.05).astype(np.float16)
    for _ in range(count):
        x = mb.relu(x=mb.conv(x=x, weight=weight, pad_type="same"))
    return x


@pytest.mark.slow
@pytest.mark.ci
def test_a_lookup_in_the_middle_goes_first_and_gains(folder):
    table = np.random.default_rng(1).standard_normal((50, 32)).astype(np.float16)

    def body(x, ids):
        x = convolve(x)
        return convolve(mb.add(x=x, y=mb.gather(x=table, indices=ids, axis=0)))

    source = save(folder(), body, x=("fp16", (1, 64, 32, 32)), ids=("int32", (32,)))
    made = check_rewrite("edge_order", source, places=1)
    assert list_ops(made)[0] == "gather"
    report = driver.fix(source, source.with_name("better.mlpackage"), only=("edge_order",))
    assert [trial.status for trial in report.trials] == ["applied"]
    assert (report.before.segments, report.after.segments) == (3, 2)


def test_an_arg_max_of_a_middle_value_goes_last(folder):
    def body(x):
        first = convolve(x)
        best = mb.reduce_argmax(x=first, axis=1, keep_dims=False)
        return best, convolve(first)

    source = save(folder(), body, x=("fp16", (1, 64, 32, 32)))
    made = check_rewrite("edge_order", source, places=1)
    assert list_ops(made)[-1] == "reduce_argmax" and list_ops(source)[-1] != "reduce_argmax"


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_random_graphs_compute_the_same_bits(folder, seed):
    draw = random.Random(seed)

    def body(x, ids):
        floats, whole = [x], [ids]
        for _ in range(8):
            kind = draw.randrange(5)
            if kind == 0:
                floats.append(mb.gather(x=TABLE, indices=draw.choice(whole), axis=0))
            elif kind == 1:
                whole.append(mb.reduce_argmax(x=draw.choice(floats), axis=-1, keep_dims=False))
            elif kind == 2:
                whole.append(mb.minimum(x=draw.choice(whole), y=mb.sub(x=np.int32(3), y=draw.choice(whole))))
            elif kind == 3:
                floats.append(mb.relu(x=draw.choice(floats)))
            else:
                floats.append(mb.add(x=draw.choice(floats), y=draw.choice(floats)))
        whole = [mb.minimum(x=mb.maximum(x=one, y=np.int32(0)), y=np.int32(7)) for one in whole[1:]]
        return (*floats[1:], *whole) if len(floats) + len(whole) > 1 else mb.relu(x=x)

    source = save(folder(), body, x=("fp16", (5, 4)), ids=("int32", (5,)))
    _, changes, _ = apply_rewrite(driver.packages.read(source), "edge_order", folder().parent)
    if changes:
        check_rewrite("edge_order", source, places=1)


def test_what_stands_at_an_edge_or_must_stay_is_left_alone(folder):
    def at_the_edges(x, ids):
        return mb.topk(x=convolve(mb.add(x=x, y=mb.gather(x=TABLE, indices=ids, axis=0)), 0), k=2)[1]

    def between(x):
        best = mb.reduce_argmax(x=mb.relu(x=x), axis=-1, keep_dims=False)
        return mb.add(x=mb.gather(x=TABLE, indices=best, axis=0), y=mb.gather(x=TABLE, indices=[0, 1, 2, 3, 4], axis=0))

    check_untouched("edge_order", save(folder(), at_the_edges, x=("fp16", (5, 4)), ids=("int32", (5,))))
    check_untouched("edge_order", save(folder(), between, x=("fp16", (5, 4))))
