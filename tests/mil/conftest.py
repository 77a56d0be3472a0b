"""Small programs for the rooms' tests, written with coremltools' MIL builder."""

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def mil():
    """coremltools' builder, and `save(path, inputs, body)`: a package with the ops exactly as `body` wrote them."""
    import coremltools as ct
    from coremltools.converters.mil.mil import Builder, types

    class Mil:
        mb = Builder

        @staticmethod
        def save(path: Path, inputs: dict, body, target: str = "iOS18", states: dict | None = None) -> Path:
            """`states`: {name: shape}, fp16."""
            goal = getattr(ct.target, target)
            kinds = {np.float16: types.fp16, np.float32: types.fp32, np.int32: types.int32}
            specs = [Builder.TensorSpec(value.shape, kinds[value.dtype.type]) for value in inputs.values()]
            specs += [Builder.StateTensorSpec(shape, types.fp16) for shape in (states or {}).values()]
            names = ", ".join([*inputs, *(states or {})])
            program = Builder.program(input_specs=specs, opset_version=goal)(
                eval(f"lambda {names}: body({names})", {"body": body})
            )
            model = ct.convert(
                program,
                convert_to="mlprogram",
                minimum_deployment_target=goal,
                compute_precision=ct.precision.FLOAT32,
                pass_pipeline=ct.PassPipeline.EMPTY,
                skip_model_load=True,
            )
            model.save(str(path))
            return path

    return Mil


@pytest.fixture
def predict():
    """predict(paths, inputs) -> outputs by name, by the reference runtime."""
    from ane_sweep.worker.runtimes.reference import ReferenceRuntime

    return lambda paths, inputs: ReferenceRuntime(list(paths)).predict(inputs)
