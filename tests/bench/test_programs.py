"""Programs that benchmarks make: they are what the benchmark says they are, and they run."""

import numpy as np

from ane_sweep import reference
from tests.bench import _programs, lint


def test_a_chain_of_layers_is_as_large_as_asked_and_runs(tmp_path):
    path, count = _programs.linear_chain(tmp_path, size=300_000, width=128)
    assert count == 9
    assert abs(next(path.rglob("weight.bin")).stat().st_size - 300_000) < 10_000
    (made,) = reference.load(path).predict({"x": np.ones((1, 128), np.float16)}).values()
    assert made.shape == (1, 128) and np.isfinite(made).all() and made.any()


def test_the_program_of_many_ops_runs_once_it_has_weights(tmp_path):
    model = reference.load(_programs.with_weights(lint.build(tmp_path, ops=10)))
    assert len(model.ops) == 10
    (made,) = model.predict({"x": np.ones((1, lint.WIDTH, 1, lint.TOKENS), np.float16)}).values()
    assert np.isfinite(made).all() and made.std() >= 0
