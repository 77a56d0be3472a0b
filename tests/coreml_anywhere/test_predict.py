"""MLModel and CompiledMLModel through the drop-in."""

import gc
import shutil
from pathlib import Path

import numpy as np
import pytest

X = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
WEIGHT = np.linspace(-1, 1, 16 * 8, dtype=np.float32).reshape(16, 8)
EXPECTED = np.maximum(X @ WEIGHT.T, 0)


@pytest.mark.parametrize(("precision", "atol"), [("fp16", 2e-2), ("fp32", 1e-5)])
def test_predict(models, precision, atol):
    (made,) = models[precision].predict({"x": X}).values()
    assert made.dtype == np.float32 and made.shape == (4, 16)
    np.testing.assert_allclose(made, EXPECTED, atol=atol)


def test_fp16_is_rounded_and_fp32_is_not(models):
    half, full = (models[name].predict({"x": X})["y"] for name in ("fp16", "fp32"))
    assert np.array_equal(half, half.astype(np.float16).astype(np.float32))
    assert not np.array_equal(full, full.astype(np.float16).astype(np.float32))


def test_batches_and_durations(models, ct):
    model = ct.models.MLModel(models["fp32"].package_path)
    assert model.load_duration_in_nano_seconds > 0
    assert model.last_predict_duration_in_nano_seconds is None
    made = model.predict([{"x": X}, {"x": -X}])
    np.testing.assert_allclose(made[1]["y"], np.maximum(-X @ WEIGHT.T, 0), atol=1e-5)
    assert len(made) == 2 and model.last_predict_duration_in_nano_seconds > 0


def test_state_is_kept_read_and_written(models):
    model = models["stateful"]
    first, second = model.make_state(), model.make_state()
    x = np.array([1, 2, 3], np.float32)
    model.predict({"x": x}, state=first)
    np.testing.assert_array_equal(model.predict({"x": x}, state=first)["sum"], 2 * x)
    np.testing.assert_array_equal(model.predict({"x": x}, state=second)["sum"], x)
    name = model.get_spec().description.state[0].name
    assert first.read_state(name).dtype == np.float32
    first.write_state(name, np.zeros(3, np.float32))
    np.testing.assert_array_equal(model.predict({"x": x}, state=first)["sum"], x)
    with pytest.raises(RuntimeError, match="no state 'nothing'"):
        first.read_state("nothing")
    with pytest.raises(RuntimeError, match="state"):
        first.write_state(name, np.zeros(5, np.float32))
    with pytest.raises(RuntimeError, match="state"):
        model.predict({"x": x})


def test_a_compiled_model_lives_on_its_own(models, ct, tmp_path):
    model = ct.models.MLModel(models["fp32"].package_path)
    path = Path(model.get_compiled_model_path())
    text = (path / "model.mil").read_text()
    assert "func main<ios16>(tensor<fp32, [4, 8]> x)" in text
    assert 'relu(x = projected)[name = tensor<string, []>("y")];' in text
    kept = shutil.copytree(path, tmp_path / "kept.mlmodelc")
    del model
    gc.collect()
    assert not path.exists(), "it lives as long as the model"
    compiled = ct.models.CompiledMLModel(str(kept))
    np.testing.assert_allclose(compiled.predict({"x": X})["y"], EXPECTED, atol=1e-5)


def test_compile_model_and_assets(models, ct, tmp_path):
    from coremltools.models.model import MLModelAsset
    from coremltools.models.utils import compile_model

    path = compile_model(models["fp32"].package_path, str(tmp_path / "made.mlmodelc"))
    from_path = ct.models.CompiledMLModel.from_asset(MLModelAsset.from_path(path))
    np.testing.assert_allclose(from_path.predict({"x": X})["y"], EXPECTED, atol=1e-5)
    weights = (Path(models["fp32"].weights_dir) / "weight.bin").read_bytes()
    asset = MLModelAsset.from_memory(models["fp32"].get_spec().SerializeToString(), {"weights/weight.bin": weights})
    from_memory = ct.models.CompiledMLModel.from_asset(asset)
    np.testing.assert_allclose(from_memory.predict({"x": X})["y"], EXPECTED, atol=1e-5)


def test_a_state_of_a_compiled_model(models, ct):
    compiled = ct.models.CompiledMLModel(models["stateful"].get_compiled_model_path())
    state = compiled.make_state()
    compiled.predict({"x": np.ones(3, np.float32)}, state)
    np.testing.assert_array_equal(compiled.predict({"x": np.ones(3, np.float32)}, state)["sum"], [2, 2, 2])


def test_deleting_the_package_while_it_is_loaded(models, ct, tmp_path):
    copy = shutil.copytree(models["fp32"].package_path, tmp_path / "copy.mlpackage")
    model = ct.models.MLModel(str(copy))
    shutil.rmtree(copy)
    np.testing.assert_allclose(model.predict({"x": X})["y"], EXPECTED, atol=1e-5)
    compiled = ct.models.CompiledMLModel(model.get_compiled_model_path())
    np.testing.assert_allclose(compiled.predict({"x": X})["y"], EXPECTED, atol=1e-5)


def test_inputs_are_refused_as_the_binding_refuses_them(models):
    model = models["fp32"]
    with pytest.raises(RuntimeError, match=r"'x' is an array of int64.*\.astype\(np\.int32\)"):
        model.predict({"x": X.astype(np.int64)})
    with pytest.raises(RuntimeError, match="shape"):
        model.predict({"x": X[:2]})
    with pytest.raises(RuntimeError, match="missing"):
        model.predict({})
    np.testing.assert_allclose(model.predict({"x": X.astype(np.float64)})["y"], EXPECTED, atol=1e-5)


def test_flexible_shapes_are_refused_in_core_mls_words(ct):
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.mil import get_new_symbol

    @mb.program(input_specs=[mb.TensorSpec((get_new_symbol(), 2))], opset_version=ct.target.iOS16)
    def double(x):
        return mb.add(x=x, y=x, name="y")

    def convert(shape):
        return ct.convert(double, inputs=[ct.TensorType("x", shape=shape)], convert_to="mlprogram")

    ranged = convert((ct.RangeDim(3, 5, default=3), 2))
    assert ranged.predict({"x": np.ones((5, 2), np.float32)})["y"].shape == (5, 2)
    with pytest.raises(RuntimeError, match=r"Size \(99\) of dimension \(0\) is not in allowed range \(3\.\.5\)"):
        ranged.predict({"x": np.ones((99, 2), np.float32)})
    listed = convert(ct.EnumeratedShapes(shapes=[(1, 2), (4, 2)], default=(1, 2)))
    assert listed.predict({"x": np.ones((4, 2), np.float32)})["y"].shape == (4, 2)
    with pytest.raises(RuntimeError, match=r"MultiArray Shape \(3 x 2\) was not in enumerated set of allowed shapes"):
        listed.predict({"x": np.ones((3, 2), np.float32)})


def test_other_formats_load_with_a_warning_and_predict_says_why(ct, tmp_path):
    from coremltools.models import datatypes
    from coremltools.models.neural_network import NeuralNetworkBuilder

    builder = NeuralNetworkBuilder([("x", datatypes.Array(3))], [("y", None)], disable_rank5_shape_mapping=True)
    builder.add_activation("relu", "RELU", "x", "y")
    with pytest.warns(RuntimeWarning, match="neuralNetwork"):
        model = ct.models.MLModel(builder.spec)
    with pytest.raises(RuntimeError, match="only ML Programs"):
        model.predict({"x": np.ones(3, np.float32)})


def test_a_real_compiled_model_is_refused(ct, tmp_path):
    (tmp_path / "real.mlmodelc").mkdir()
    (tmp_path / "real.mlmodelc" / "coremldata.bin").write_bytes(b"\x00")
    with pytest.raises(RuntimeError, match=r"a compiled model without model\.mil.*\.mlpackage"):
        ct.models.CompiledMLModel(str(tmp_path / "real.mlmodelc"))


def test_a_bug_of_ours_does_not_break_a_conversion(models, ct, monkeypatch):
    from ane_sweep.coreml_anywhere import loading

    def broken(*args, **options):
        raise KeyError("oops")

    monkeypatch.setattr(loading, "LoadedModel", broken)
    monkeypatch.setattr("ane_sweep.coreml_anywhere.native.LoadedModel", broken)
    with pytest.warns(RuntimeWarning, match="a bug of ane-sweep"):
        model = ct.models.MLModel(models["fp32"].package_path)
    with pytest.raises(RuntimeError, match="KeyError: 'oops'"):
        model.predict({"x": X})


def test_numbers_as_the_program_declares_or_as_asked(models, ct):
    from ane_sweep import coreml_anywhere

    coreml_anywhere.install(numerics="fp32")
    wide = ct.models.MLModel(models["fp16"].package_path).predict({"x": X})["y"]
    coreml_anywhere.install()
    narrow = ct.models.MLModel(models["fp16"].package_path).predict({"x": X})["y"]
    assert np.array_equal(narrow, narrow.astype(np.float16)) and not np.array_equal(wide, wide.astype(np.float16))
