"""Tiny programs of every kind, converted once, and a script for the stand-in in a line."""

import json

import numpy as np
import pytest

from ane_sweep.machine import stand_in

WEIGHT = np.linspace(-1, 1, 8 * 8, dtype=np.float32).reshape(8, 8)
X = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """Folders as stages leave them, by kind: single, chain, pipeline, stateful, functions (main and twice)."""
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.mil import types

    root = tmp_path_factory.mktemp("programs")

    def linear(y_name, scale=1.0):
        @mb.program(input_specs=[mb.TensorSpec((4, 8), dtype=types.fp16)], opset_version=ct.target.iOS18)
        def program(x):
            projected = mb.linear(x=x, weight=(scale * WEIGHT).astype(np.float16), name=f"{y_name}_projected")
            return mb.relu(x=projected, name=y_name)

        return program

    def convert(program):
        target = ct.target.iOS18
        return ct.convert(program, convert_to="mlprogram", minimum_deployment_target=target, skip_model_load=True)

    def save(program, kind, name="model"):
        path = root / kind / f"{name}.mlpackage"
        convert(program).save(str(path))
        return path

    single = save(linear("y"), "single")
    save(linear("h"), "chain", "chunk_01")
    second = convert(linear("y"))
    spec = second.get_spec()
    ct.utils.rename_feature(spec, "x", "h")
    second = ct.models.MLModel(spec, weights_dir=second.weights_dir, skip_model_load=True)
    second.save(str(root / "chain" / "chunk_02.mlpackage"))
    parts = [ct.models.MLModel(str(root / "chain" / f"chunk_0{n}.mlpackage"), skip_model_load=True) for n in (1, 2)]
    ct.utils.make_pipeline(*parts).save(str(root / "pipeline" / "model.mlpackage"))

    @mb.program(
        input_specs=[mb.TensorSpec((3,), dtype=types.fp16), mb.StateTensorSpec((3,), dtype=types.fp16)],
        opset_version=ct.target.iOS18,
    )
    def running_sum(x, total):
        return mb.coreml_update_state(state=total, value=mb.add(x=mb.read_state(input=total), y=x), name="sum")

    save(running_sum, "stateful")
    twice = save(linear("y", scale=2.0), "twice")
    both = ct.utils.MultiFunctionDescriptor()
    both.add_function(str(single), "main", "main")
    both.add_function(str(twice), "main", "twice")
    both.default_function_name = "main"
    (root / "functions").mkdir()
    ct.utils.save_multifunction(both, str(root / "functions" / "model.mlpackage"))
    return root


@pytest.fixture
def scripted(tmp_path, monkeypatch):
    """Puts a script of these answers in force, in this process too; returns nothing."""
    from tests.stand_in import coreml, read

    def make(*answers, host=None):
        path = tmp_path / "script.json"
        held = {"name": "test", "source": "constructed", "host": {"chip": "Apple M4", **(host or {})}}
        path.write_text(json.dumps({**held, "answers": answers}))
        monkeypatch.setenv(stand_in.VARIABLE, str(path))
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", None)
        read.cache_clear()
        stand_in.active().install()

    yield make
    coreml.uninstall()


@pytest.fixture
def inputs(programs, tmp_path):
    """kind -> the folders that a stage gets, with a reference of one input beside them."""

    def make(kind):
        reference = tmp_path / "reference"
        reference.mkdir(exist_ok=True)
        x = np.array([1, 2, 3], np.float32) if kind == "stateful" else X
        np.savez(reference / "inputs.npz", x=x[None], valid=np.ones((1, 4), bool))
        return {"program": programs / kind, "reference": reference}

    return make
