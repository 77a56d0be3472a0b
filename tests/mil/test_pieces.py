"""Stage pieces: some chunks of a chain run by themselves, on what the chunks before them make of the inputs."""

from pathlib import Path

import numpy as np
import pytest

from ane_sweep.errors import ChunkError
from ane_sweep.worker.feeds.arrays import Inputs, map_arrays
from ane_sweep.worker.runtimes import reference
from ane_sweep.worker.stages import chunk, pieces, score

CHUNK = {"count": 5, "by": "bytes", "own": "none", "pipeline": "manual"}


@pytest.fixture
def chain(tmp_path, mil) -> dict[str, Path]:
    """A program in five chunks, of which the first's value is read by the second and the last; two inputs of it."""
    random = np.random.default_rng(0)
    feeds = random.standard_normal((2, 4, 32)).astype(np.float16)

    def weight():
        return (random.standard_normal((32, 32)) / 6).astype(np.float16)

    def body(x):
        first = value = mil.mb.relu(x=mil.mb.linear(x=x, weight=weight()))
        for _ in range(6):
            value = mil.mb.tanh(x=mil.mb.linear(x=value, weight=weight()))
        return mil.mb.add(x=value, y=first, name="last")

    folders = {name: tmp_path / name for name in ("program", "chunks", "reference")}
    for folder in folders.values():
        folder.mkdir()
    mil.save(folders["program"] / "model.mlpackage", {"x": feeds[0]}, body)
    chunk.run(CHUNK, {"program": folders["program"]}, folders["chunks"])
    np.savez(folders["reference"] / "inputs.npz", x=feeds, valid=np.ones((2, 4), bool))
    return folders


@pytest.mark.parametrize("pipeline", ["manual", "coreml"])
@pytest.mark.parametrize(("first", "last"), [(1, 3), (2, 4), (3, 3), (5, 5)])
def test_pieces_make_what_they_make_within_the_whole(chain, tmp_path, first, last, pipeline):
    out = tmp_path / "out"
    out.mkdir()
    made = pieces.run(
        {"first": first, "last": last, "pipeline": pipeline},
        {"program": chain["chunks"], "reference": chain["reference"]},
        out,
    )
    assert made.realised["chunks"] == last - first + 1 and made.realised["pieces"].endswith("of 5")
    loaded = reference.load({}, {"program": out})
    assert loaded.realised["chunks"] == last - first + 1
    expected = map_arrays(out / "outputs.npz")
    for index, inputs in enumerate(Inputs(out)):
        assert set(inputs) == set(loaded.inputs)
        got = loaded.predict(inputs)
        assert set(got) == set(expected), "all that later pieces read, and nothing that only these do"
        for name, value in got.items():
            np.testing.assert_allclose(value, expected[name][index], atol=2**-7)


def test_pieces_are_scored_against_themselves_in_fp32(chain, tmp_path):
    out, scored = tmp_path / "out", tmp_path / "scored"
    out.mkdir(), scored.mkdir()
    inputs = {"program": chain["chunks"], "reference": chain["reference"]}
    pieces.run({"first": 2, "last": 4, "pipeline": "manual"}, inputs, out)
    params = {"runtime": "reference", "model": {"task": "tensors", "arch": {}}}
    result = score.run(params, {"program": out, "reference": out}, scored)
    figures = {metric.name: metric.value for metric in result.metrics}
    assert figures["psnr_db"] > 50


def test_more_pieces_than_there_are_is_said(chain, tmp_path):
    with pytest.raises(ChunkError, match=r"pieces=4-6: the program came to 5 chunks; give pieces from 1 to 5"):
        pieces.run({"first": 4, "last": 6, "pipeline": "manual"}, {"program": chain["chunks"]}, tmp_path)
