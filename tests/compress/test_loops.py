"""Weights inside loops: coremltools compresses them as it does others."""

import json
import math

import numpy as np
import pytest
from shipped_recipes import recipe

from ane_sweep import reference
from ane_sweep.worker.stages import compress

X = np.random.default_rng(0).normal(size=(1, 6, 16)).astype(np.float32)
WIDTH = 64


@pytest.fixture(scope="module")
def looped(tmp_path_factory):
    """A linear layer, and a loop of six rounds around another and a product with a third."""
    import coremltools as ct
    from coremltools.converters.mil.mil import Builder as mb

    draw = np.random.default_rng(1)
    into, inside, outside = (
        (draw.normal(size=shape) / shape[1] ** 0.5).astype(np.float32) for shape in ((WIDTH, 16), *[(WIDTH, WIDTH)] * 2)
    )

    @mb.program(input_specs=[mb.TensorSpec(X.shape)], opset_version=ct.target.iOS18)
    def program(x):
        states = mb.linear(x=x, weight=into, name="into")
        shared = mb.const(val=outside, name="outside")

        def body(i, h):
            h = mb.tanh(x=mb.linear(x=mb.add(x=h, y=states), weight=inside, name="inside"))
            return mb.add(x=i, y=np.int32(1)), mb.matmul(x=h, y=shared)

        start = mb.fill(shape=(1, 6, WIDTH), value=np.float32(0))
        return mb.while_loop(
            _cond=lambda i, h: mb.less(x=i, y=np.int32(6)), _body=body, loop_vars=(np.int32(0), start)
        )[1]

    folder = tmp_path_factory.mktemp("looped")
    ct.convert(program, minimum_deployment_target=ct.target.iOS18).save(str(folder / "model.mlpackage"))
    return folder


def answered(folder) -> np.ndarray:
    return next(iter(reference.load(folder / "model.mlpackage").predict({"x": X}).values())).astype(np.float32)


@pytest.mark.parametrize("name", ["p6", "int8_channel", "p4_g16_scaled", "sparse50_p4"])
def test_weights_inside_a_loop_are_compressed_and_counted(looped, tmp_path, name):
    how = {**recipe(name), "min_elements": 512}
    result = compress.run({"recipe": how}, {"program": looped}, tmp_path)
    done = json.loads((tmp_path / "compress.json").read_text())
    assert len(done["settings"]) == 3, done
    bits = {metric.name: metric.value for metric in result.metrics}["bits_per_weight"]
    assert how["bits"] - 1 < bits < 16, "of all numbers, those in the loop included"
    whole, got = answered(looped), answered(tmp_path)
    snr = 10 * math.log10(float(np.square(whole).sum() / np.square(got - whole).sum()))
    assert snr > (2 if name == "sparse50_p4" else 10)


def test_mixed_bits_leave_what_is_inside_a_loop_and_say_so(looped):
    from ane_sweep.worker.compress import passes, settings

    weights = settings.list_weights(passes.load_program(looped / "model.mlpackage"))
    found = settings.resolve(weights, {**recipe("mixed4"), "min_elements": 512})
    assert len(found.settings) == 1
    assert sum(reason.startswith("it is inside a loop or branch") for reason in found.left.values()) == 2
