"""coremltools' own tools on top of the drop-in: benchmarker, inspector, validator, comparator, bisecting, pipelines,
structure, plan, devices, multifunction, pictures and classifiers.
"""

import asyncio
import shutil
from pathlib import Path

import numpy as np
import pytest

X = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
WEIGHT = np.linspace(-1, 1, 16 * 8, dtype=np.float32).reshape(16, 8)


def gathered(asynchronous):
    async def collect():
        return [item async for item in asynchronous]

    return asyncio.run(collect())


@pytest.mark.slow
@pytest.mark.ci
def test_benchmarker(models):
    from coremltools.models.ml_program.experimental.perf_utils import MLModelBenchmarker

    benchmarker = MLModelBenchmarker(model=models["fp32"])
    assert len(asyncio.run(benchmarker.benchmark_load(iterations=2)).samples) == 2
    assert min(asyncio.run(benchmarker.benchmark_predict(iterations=3)).samples) > 0


def test_benchmarker_by_op(models):
    from coremltools.models.ml_program.experimental.perf_utils import MLModelBenchmarker

    infos = asyncio.run(MLModelBenchmarker(model=models["fp32"]).benchmark_operation_execution(iterations=2))
    timed = {info.spec.type: info.measurement for info in infos if info.measurement.samples}
    assert {"linear", "relu"} <= timed.keys()
    assert all(len(measurement.samples) == 2 for measurement in timed.values())


def test_inspector_sees_what_is_between(models):
    from coremltools.models.ml_program.experimental.debugging_utils import MLModelInspector

    inspector = MLModelInspector(model=models["fp32"])
    seen = dict(gathered(inspector.inspect(inputs={"x": X}, output_names=["projected"])))
    np.testing.assert_allclose(seen["projected"], X @ WEIGHT.T, atol=1e-5)


def test_validator_finds_the_op_that_overflows(ct):
    from coremltools.converters.mil import Builder as mb
    from coremltools.models.ml_program.experimental.debugging_utils import MLModelValidator

    @mb.program(input_specs=[mb.TensorSpec((2,))], opset_version=ct.target.iOS16)
    def overflow(x):
        return mb.mul(x=mb.square(x=x, name="squared"), y=np.float32(0.5), name="y")

    validator = MLModelValidator(ct.convert(overflow, convert_to="mlprogram"))
    ops = asyncio.run(validator.find_failing_ops_with_infinite_output({"x": np.array([1e3, 1], np.float32)}))
    assert [op.outputs[0].name for op in ops][:1] == ["squared_cast_fp16"]
    assert not asyncio.run(validator.find_failing_ops_with_infinite_output({"x": np.array([1, 1], np.float32)}))


def test_comparator_finds_where_two_programs_part(models, ct):
    from coremltools.models.ml_program.experimental.debugging_utils import MLModelComparator

    comparator = MLModelComparator(models["fp32"], models["fp32"])

    async def differing(limit):
        def compare(op, reference, target):
            return np.abs(np.asarray(reference) - np.asarray(target)).max() <= limit

        return await comparator.find_failing_ops({"x": X}, compare_outputs=compare)

    assert asyncio.run(differing(0)) == []
    assert asyncio.run(differing(-1)), "a comparison that nothing can pass finds ops"


def test_bisect_model_checks_its_halves_and_its_pipeline(models, ct, tmp_path, caplog):
    caplog.set_level("INFO")
    ct.models.utils.bisect_model(models["fp32"], str(tmp_path), merge_chunks_to_pipeline=True)
    pipeline = ct.models.MLModel(str(tmp_path / "chunked_pipeline.mlpackage"))
    np.testing.assert_allclose(pipeline.predict({"x": X})["y"], np.maximum(X @ WEIGHT.T, 0), atol=2e-2)


def test_a_pipeline_with_a_linear_regressor(ct):
    from coremltools.proto import FeatureTypes_pb2, Model_pb2

    def regressor(source, target, weight):
        spec = Model_pb2.Model()
        spec.specificationVersion = 1
        for where, name in ((spec.description.input, source), (spec.description.output, target)):
            feature = where.add()
            feature.name = name
            feature.type.doubleType.CopyFrom(FeatureTypes_pb2.DoubleFeatureType())
        spec.description.predictedFeatureName = target
        spec.glmRegressor.offset.append(0.5)
        spec.glmRegressor.weights.add().value.append(weight)
        return ct.models.MLModel(spec)

    first = regressor("x", "middle", 2.0)
    assert first.predict({"x": 1.0}) == {"middle": 2.5}
    both = ct.utils.make_pipeline(first, regressor("middle", "z", 10.0))
    assert both.predict({"x": 1.0})["z"] == 25.5


def test_structure(models, ct):
    from coremltools.models.compute_plan import MLModelStructure

    structure = MLModelStructure.load_from_path(models["fp32"].get_compiled_model_path())
    block = structure.program.functions["main"].block
    assert block.output_names == ["y"]
    by_name = {operation.operator_name: operation for operation in block.operations}
    assert by_name["relu"].inputs["x"].bindings[0].name == "projected"
    assert structure.neuralnetwork is None and structure.pipeline is None


def test_a_compute_plan_is_marked_as_predicted(models, ct):
    from coremltools.models.compute_plan import MLComputePlan

    from ane_sweep.coreml_anywhere.plan import PredictionWarning

    with pytest.warns(PredictionWarning, match="predicted for m4"):
        plan = MLComputePlan.load_from_path(models["fp16"].get_compiled_model_path(), ct.ComputeUnit.CPU_ONLY)
    assert plan.__proxy__.kind == "predicted"
    operations = plan.model_structure.program.functions["main"].block.operations
    costs, cpu = [], ct.models.compute_device.MLCPUComputeDevice
    for operation in operations:
        usage = plan.get_compute_device_usage_for_mlprogram_operation(operation)
        if operation.operator_name == "const":
            assert usage is None
        else:
            assert isinstance(usage.preferred_compute_device, cpu) and len(usage.supported_compute_devices) == 1
            costs.append(plan.get_estimated_cost_for_mlprogram_operation(operation).weight)
    assert sum(costs) == pytest.approx(1)


def test_a_plan_without_the_placement_rules_says_so(models, monkeypatch):
    import sys

    from coremltools.models.compute_plan import MLComputePlan

    monkeypatch.setitem(sys.modules, "ane_sweep.placement", None)
    for name in [name for name in sys.modules if name.startswith("ane_sweep.placement.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RuntimeError, match=r"MLComputePlan needs ane_sweep\.placement"):
        MLComputePlan.load_from_path(models["fp16"].get_compiled_model_path())


def test_devices(ct):
    devices = ct.models.MLModel.get_available_compute_devices()
    assert [type(device).__name__ for device in devices] == [
        "MLCPUComputeDevice",
        "MLGPUComputeDevice",
        "MLNeuralEngineComputeDevice",
    ]
    assert devices[2].total_core_count == 16
    assert ct.models.compute_device.MLComputeDevice.get_all_compute_devices() == devices


def test_multifunction(models, ct, tmp_path):
    from coremltools.converters.mil import Builder as mb

    @mb.program(input_specs=[mb.TensorSpec((4, 8))], opset_version=ct.target.iOS16)
    def negated(x):
        return mb.mul(x=x, y=np.float32(-1), name="y")

    model = ct.convert(negated, convert_to="mlprogram", compute_precision=ct.precision.FLOAT32,
                       minimum_deployment_target=ct.target.iOS16)  # fmt: skip
    for name, source in (("a", models["fp32"]), ("b", model)):
        source.save(str(tmp_path / f"{name}.mlpackage"))
    description = ct.utils.MultiFunctionDescriptor()
    description.add_function(str(tmp_path / "a.mlpackage"), "main", "project")
    description.add_function(str(tmp_path / "b.mlpackage"), "main", "negate")
    description.default_function_name = "project"
    ct.utils.save_multifunction(description, str(tmp_path / "both.mlpackage"))

    default = ct.models.MLModel(str(tmp_path / "both.mlpackage"))
    negate = ct.models.MLModel(str(tmp_path / "both.mlpackage"), function_name="negate")
    np.testing.assert_allclose(default.predict({"x": X})["y"], np.maximum(X @ WEIGHT.T, 0), atol=1e-5)
    np.testing.assert_array_equal(negate.predict({"x": X})["y"], -X)
    text = (Path(default.get_compiled_model_path()) / "model.mil").read_text()
    assert 'name = string("y")' in text and "func negate<" in text and "func project<" in text
    shutil.copytree(default.get_compiled_model_path(), tmp_path / "both.mlmodelc")
    compiled = ct.models.CompiledMLModel(str(tmp_path / "both.mlmodelc"), function_name="negate")
    np.testing.assert_array_equal(compiled.predict({"x": X})["y"], -X)
    with pytest.raises(RuntimeError, match="nothing"):
        ct.models.CompiledMLModel(str(tmp_path / "both.mlmodelc"), function_name="nothing")


def test_pictures_in_and_labels_out(ct):
    from coremltools.converters.mil import Builder as mb
    from PIL import Image

    @mb.program(input_specs=[mb.TensorSpec((1, 3, 2, 2))], opset_version=ct.target.iOS16)
    def brightest(picture):
        return mb.softmax(x=mb.reduce_mean(x=picture, axes=[2, 3], keep_dims=False), axis=1, name="scores")

    model = ct.convert(
        brightest,
        inputs=[ct.ImageType("picture", shape=(1, 3, 2, 2), color_layout=ct.colorlayout.RGB, scale=1 / 255)],
        classifier_config=ct.ClassifierConfig(["red", "green", "blue"]),
        convert_to="mlprogram",
    )
    made = model.predict({"picture": Image.new("RGB", (2, 2), (0, 255, 0))})
    assert made["classLabel"] == "green"
    (chances,) = (value for name, value in made.items() if name != "classLabel")
    assert set(chances) == {"red", "green", "blue"} and type(chances["red"]) is float
    assert sum(chances.values()) == pytest.approx(1, abs=1e-2)
