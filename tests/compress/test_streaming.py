"""Weights from file to file: the same bytes as coremltools left alone gives, and none of them all in memory."""

import contextlib
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from shipped_recipes import OPTIONS, recipe

from ane_sweep.bridge import recipes
from ane_sweep.worker.compress import palettes, streaming

FAST = ["int8_channel", "sparse50_p4"]
ALL = [name for name, option in OPTIONS.items() if option["weights"] and not recipes.calibration(recipe(name))]


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in ALL])
def test_streamed_in_small_pieces_it_is_what_coremltools_makes_of_whole_weights(name, program, tmp_path, monkeypatch):
    from ane_sweep.worker.compress import passes
    from ane_sweep.worker.stages import compress

    @contextlib.contextmanager
    def in_memory():
        yield streaming.Scratch()

    with monkeypatch.context() as patch:
        patch.setattr(passes.streaming, "stream_weights", in_memory)
        patch.setattr(streaming.Scratch, "keep", lambda self, array: array)
        compress.run({"recipe": recipe(name)}, {"program": program("iOS18")}, tmp_path / "whole")
    for module, size, value in (
        (streaming, "LEAST_BYTES", 64),
        (streaming, "SLAB_NUMBERS", 999),
        (palettes, "PIECE", 777),
    ):
        monkeypatch.setattr(module, size, value)
    compress.run({"recipe": recipe(name)}, {"program": program("iOS18")}, tmp_path / "pieces")
    assert digests(tmp_path / "whole") == digests(tmp_path / "pieces")


def test_what_waits_in_the_file_is_as_it_was():
    from coremltools.converters.mil.mil import types

    scratch = streaming.Scratch()
    fours = (np.arange(1 << 17) % 16).astype(types.nptype_from_builtin(types.uint4)).reshape(4, -1)
    halves = np.random.default_rng(0).normal(size=(1 << 16,)).astype(np.float16)[::2]
    kept = [scratch.keep(array) for array in (fours, halves)]
    scratch.give_back()
    for array, held in zip((fours, halves), kept):
        np.testing.assert_array_equal(held, array)
        assert (held.dtype, held.dtype.metadata) == (array.dtype, array.dtype.metadata)
        assert scratch.keep(held) is held  # once is enough
    assert scratch.keep(halves[:9]).base is not None and not streaming._is_mapped(scratch.keep(halves[:9]))


MEASURE = """
import json, sys, threading, time
from pathlib import Path
from ane_sweep.bridge import recipes
from ane_sweep.bridge.protocol import status_fields
from ane_sweep.worker.compress import passes
from ane_sweep.worker.stages import compress
import coremltools, torch
source, out, kind = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
start, peak = status_fields()["RssAnon"], [0]
def watch():
    while True:
        peak[0] = max(peak[0], status_fields()["RssAnon"]); time.sleep(0.002)
threading.Thread(target=watch, daemon=True).start()
compress.run({"recipe": recipes.canonical(kind)}, {"program": source}, out)
print(json.dumps(peak[0] - start))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", [{"kind": "palettized", "bits": 4}, {"kind": "linear", "bits": 8}])
def test_memory_is_that_of_the_largest_weight_not_of_all(kind, tmp_path):
    """24 weights of 8 MiB, 192 MiB together."""
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb

    random = np.random.default_rng(0)
    side, count = 2048, 24

    @mb.program(
        input_specs=[mb.TensorSpec(shape=(1, side), dtype=ct.converters.mil.mil.types.fp16)],
        opset_version=ct.target.iOS18,
    )
    def program(x):
        for _ in range(count):
            x = mb.linear(x=x, weight=random.normal(size=(side, side)).astype(np.float16))
        return x

    model = ct.convert(program, minimum_deployment_target=ct.target.iOS18, skip_model_load=True)
    model.save(str(tmp_path / "source" / "model.mlpackage"))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "source"), str(tmp_path / "out"), json.dumps(kind)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout.splitlines()[-1]) < 1.2 * side * side * 2 + (64 << 20)
