"""Programs for the runtime's tests: MIL builder -> package on disk -> runtime."""

from pathlib import Path

import numpy as np
import pytest

FP16_TARGET = "iOS18"


@pytest.fixture(scope="session")
def mil():
    """coremltools' MIL builder and types; seconds to import, so once a session."""
    import coremltools as ct
    from coremltools.converters.mil.mil import Builder, types

    class Mil:
        mb = Builder
        dtypes = {np.float16: types.fp16, np.float32: types.fp32, np.int32: types.int32, np.bool_: types.bool}

        @staticmethod
        def write(path: Path, inputs: dict, body, target: str = FP16_TARGET) -> Path:
            """Save `body(**inputs)` (one value, or a tuple) as a package, op by op as it was written."""
            goal = getattr(ct.target, target)
            specs = [Builder.TensorSpec(value.shape, Mil.dtypes[value.dtype.type]) for value in inputs.values()]
            names = list(inputs)

            def named(*values):
                return body(*values)

            code = f"lambda {', '.join(names)}: named({', '.join(names)})"
            program = Builder.program(input_specs=specs, opset_version=goal)(eval(code, {"named": named}))
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
def execute(mil, tmp_path):
    """execute(inputs, body, target=...) -> outputs of `body` by the reference runtime, in order."""
    from ane_sweep.runtimes.reference import ReferenceRuntime

    count = 0

    def run(inputs: dict, body, target: str = FP16_TARGET) -> list[np.ndarray]:
        nonlocal count
        count += 1
        runtime = ReferenceRuntime([mil.write(tmp_path / f"{count}.mlpackage", inputs, body, target)])
        return list(runtime.predict(inputs).values())

    return run
