"""Finding runtimes by file name, and those that are thin: coreml, torch_eager and torch_mps."""

import ast
import importlib
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

from ane_sweep.bridge.cell import DECLARED
from ane_sweep.bridge.runtimes import RUNTIMES, UNKNOWN, cannot, collect_host_facts
from ane_sweep.errors import ConfigError, PackageError, Unavailable
from ane_sweep.worker import runtimes


def test_names_are_the_files():
    assert set(RUNTIMES) >= {"coreml", "reference", "reference_cuda", "torch_eager", "torch_mps"}
    for name, traits in RUNTIMES.items():
        module = runtimes.get(name)
        assert {axis.honoured for axis in DECLARED.values()} >= {*traits.honours}
        assert len(collect_host_facts(name)) == len(traits.asks)
        assert callable(module.load)


@pytest.mark.parametrize("name", ["cormel", "_reference", "os", ""])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(
        ConfigError, match=rf"known: {', '.join(RUNTIMES)}\. To add it, write ane_sweep/worker/runtimes"
    ):
        runtimes.get(name)


def test_a_broken_import_is_not_called_unknown(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.setitem(RUNTIMES, "broken", UNKNOWN)
    monkeypatch.setattr(runtimes, "__path__", [str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        runtimes.get("broken")


def test_reading_constants_of_a_runtime_costs_no_torch():
    heavy = {"torch", "coremltools", "transformers"}
    for name in RUNTIMES:
        tree = ast.parse(Path(importlib.import_module(RUNTIMES.module_of(name)).__file__).read_text())
        for node in tree.body:
            names = {alias.name.split(".")[0] for alias in node.names} if isinstance(node, ast.Import) else set()
            assert not names & heavy


@pytest.mark.skipif(sys.platform == "darwin", reason="Core ML is there")
def test_coreml_is_unavailable_off_macos():
    module = runtimes.get("coreml")
    assert cannot("coreml") == "needs macOS"
    with pytest.raises(Unavailable, match="needs macOS; runtime=reference"):
        module.load({}, {})


def test_coreml_calls_exist_in_the_installed_coremltools():
    import coremltools as ct

    module = runtimes.get("coreml")
    assert {ct.ComputeUnit[name] for name in module.COMPUTE_UNITS.values()} == set(ct.ComputeUnit)
    assert "compute_units" in inspect.signature(ct.models.MLModel.__init__).parameters
    assert "data" in inspect.signature(ct.models.MLModel.predict).parameters
    assert callable(ct.models.MLModel.get_spec)


ARCH = {"vocab_size": 60, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
PARAMS = {
    "model": {"family": "gpt2", "task": "causal_lm", "arch": ARCH},
    "weights": {"kind": "random", "digest": "random:0", "seed": 0},
    "variant": "original",
    "seq_len": 8,
}


def test_torch_eager_runs_the_module_by_names():
    runtime = runtimes.get("torch_eager").load(PARAMS, {})
    outputs = runtime.predict({"input_ids": np.arange(8, dtype=np.int64)[None]})
    assert {name: (value.shape, value.dtype) for name, value in outputs.items()} == {"logits": ((1, 8, 60), np.float32)}
    assert runtime.realised["runtime"] == "torch_eager" and runtime.realised["compute_units"] is None


def test_torch_eager_refuses_wrong_inputs():
    runtime = runtimes.get("torch_eager").load(PARAMS, {})
    with pytest.raises(
        PackageError, match=r"'input_ids' has shape \[1, 4\], not \[1, 8\]\. The module takes input_ids"
    ):
        runtime.predict({"input_ids": np.zeros((1, 4), np.int32)})
