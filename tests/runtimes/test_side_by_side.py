"""Several inputs, op by op, give the bits of one after the other: with states, control flow, chunks and pipelines."""

import numpy as np
import pytest

from ane_sweep.mil import chunker, package, pipeline
from ane_sweep.reference import constants
from ane_sweep.worker.runtimes.reference import SIDE_BY_SIDE, ReferenceRuntime

COUNT = 2 * SIDE_BY_SIDE + 3


@pytest.fixture(scope="module")
def forms(mil, tmp_path_factory):
    """Two products as one program, as a chain of two, and as a pipeline."""
    whole, chain, piped = (tmp_path_factory.mktemp(name) for name in ("whole", "chain", "pipeline"))
    first, second = (np.random.default_rng(n).standard_normal((256, 256)).astype(np.float16) / 16 for n in range(2))

    def body(x):
        return mil.mb.linear(x=mil.mb.tanh(x=mil.mb.linear(x=x, weight=first)), weight=second, name="y")

    mil.write(whole / "model.mlpackage", {"x": np.zeros((3, 256), np.float16)}, body)
    chunker.chunk(whole / "model.mlpackage", chain, chunker.ChunkRequest(2))
    pipeline.merge(package.program_paths(chain), piped / "model.mlpackage")
    return {"whole": whole, "chain": chain, "pipeline": piped}


def compare(paths, feeds):
    """Predict one by one, and several side by side, and return how many forms of constants each way made."""
    runtime = ReferenceRuntime(paths)
    made: list[int] = []
    make = constants.Form._make
    constants.Form._make = lambda self, empty: made.append(1) or make(self, empty)
    try:
        single = [dict(runtime.predict(feed)) for feed in feeds]
        alone = len(made)
        several = list(runtime.predict_each(feeds))
    finally:
        constants.Form._make = make
    assert len(several) == len(feeds)
    for one, other in zip(single, several):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    return alone, len(made) - alone


@pytest.mark.parametrize("budget", [0, None], ids=["no budget", "enough budget"])
def test_a_program_of_everything(everything, monkeypatch, budget):
    monkeypatch.setattr(constants, "BUDGET", constants.Budget(budget))
    random = np.random.default_rng(1)
    compare([everything], [{"x": random.standard_normal((1, 64)).astype(np.float16)} for _ in range(COUNT)])


@pytest.mark.parametrize("form", ["whole", "chain", "pipeline"])
def test_what_an_op_reads_is_prepared_once_for_several_inputs(forms, monkeypatch, form):
    monkeypatch.setattr(constants, "BUDGET", constants.Budget(0))
    random = np.random.default_rng(1)
    feeds = [{"x": random.standard_normal((3, 256)).astype(np.float16)} for _ in range(COUNT)]
    alone, together = compare(package.program_paths(forms[form]), feeds)
    assert alone == 2 * COUNT
    assert together == (alone if form == "pipeline" else 2 * 3)  # a pipeline's models run one input at a time
