"""One converted set of tiny programs for all files here; coremltools is imported once, and left as it was."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def ct():
    """coremltools with the drop-in installed after it was imported."""
    import coremltools

    from ane_sweep import coreml_anywhere

    coreml_anywhere.install()
    yield coremltools
    coreml_anywhere.uninstall()


@pytest.fixture(autouse=True)
def installed(request):
    """Installed for every test that uses `ct`, whatever the one before left."""
    if "ct" in request.fixturenames:
        request.getfixturevalue("ct")
        from ane_sweep import coreml_anywhere

        coreml_anywhere.install()
    yield


WEIGHT = np.linspace(-1, 1, 16 * 8, dtype=np.float32).reshape(16, 8)


@pytest.fixture(scope="session")
def models(ct):
    """Converted once: "fp16" and "fp32" (the same linear + relu), "stateful" (adds up its inputs)."""
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.mil import types

    def linear():
        """A fresh one each time: converting changes it in place."""

        @mb.program(input_specs=[mb.TensorSpec((4, 8))], opset_version=ct.target.iOS16)
        def program(x):
            return mb.relu(x=mb.linear(x=x, weight=WEIGHT, name="projected"), name="y")

        return program

    @mb.program(
        input_specs=[mb.TensorSpec((3,), dtype=types.fp16), mb.StateTensorSpec((3,), dtype=types.fp16)],
        opset_version=ct.target.iOS18,
    )
    def running_sum(x, total):
        return mb.coreml_update_state(state=total, value=mb.add(x=mb.read_state(input=total), y=x), name="sum")

    def convert(program, **options):
        return ct.convert(program, convert_to="mlprogram", **options)

    return {
        "fp16": convert(linear(), minimum_deployment_target=ct.target.iOS16),
        "fp32": convert(linear(), compute_precision=ct.precision.FLOAT32, minimum_deployment_target=ct.target.iOS16),
        "stateful": convert(running_sum, minimum_deployment_target=ct.target.iOS18),
    }
