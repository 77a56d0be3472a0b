"""The cases as coremltools really builds them, against the descriptions built by hand: same ops, types and estimates."""

import json

import numpy as np
import pytest

from ane_sweep.placement import costs, legality, programs
from ane_sweep.placement.chips import get
from tests.proof.placement import cases

NUMPY = {"fp16": np.float16, "fp32": np.float32, "int32": np.int32}
BOTH_OUTPUTS = "topk"  # the study returned the values alone; here the indices are returned too, and cast


@pytest.fixture(scope="module")
def builder():
    import coremltools as ct
    from coremltools.converters.mil.mil import Builder, types

    return ct, Builder, {"fp16": types.fp16, "fp32": types.fp32, "int32": types.int32}


def surround(mb, value):
    static = all(isinstance(length, (int, np.integer)) for length in value.shape)
    is_half = value.dtype.__name__ == "fp16"
    if not static or not is_half or value.rank not in (3, 4) or (value.rank == 3 and value.shape[-1] > 2048):
        return value
    for _ in range(2):
        if value.rank == 4:
            width = value.shape[1]
            wide = width > 512
            weight = np.ones((width, 1 if wide else width, 3, 3), np.float16)
            value = mb.conv(x=value, weight=weight, pad_type="same", groups=width if wide else 1)
        else:
            value = mb.linear(x=value, weight=np.ones((value.shape[-1],) * 2, np.float16))
        value = mb.relu(x=value)
    return value


def written(mb, row, inputs, context):
    """The case's outputs, written with coremltools' builder."""
    fed = [surround(mb, value) for value in inputs] if context else list(inputs)
    results = []

    def value(held):
        if isinstance(held, dict) and "list" in held:
            return tuple(value(item) for item in held["list"])
        if isinstance(held, dict) and "in" in held:
            return fed[held["in"]]
        if isinstance(held, dict) and "step" in held:
            return results[held["step"]]
        if isinstance(held, dict) and "rand" in held:
            return np.random.default_rng(0).random(held["rand"]).astype(np.float16)
        if isinstance(held, dict):
            kind = NUMPY[held["dtype"]]
            if "shape" in held and not isinstance(held["val"], list):
                return np.full(held["shape"], held["val"], kind)
            return np.array(held["val"], kind) if isinstance(held["val"], list) else kind(held["val"])
        return held

    for step in json.loads(row["parameters_json"]):
        made = getattr(mb, step["op"])(**{name: value(held) for name, held in step.items() if name != "op"})
        outputs = list(made) if isinstance(made, (tuple, list)) else [made]
        results.append(outputs[0])
    if context:
        outputs[0] = surround(mb, outputs[0])
    return tuple(outputs)


def convert(builder, case, context, path):
    ct, mb, types = builder
    row = cases.definitions()[case]
    specs = []
    for text in row["inputs"].split("; "):
        dtype, _, sizes = text.split(" ")[1].partition("[")
        specs.append(mb.TensorSpec(tuple(int(n) for n in sizes.rstrip("]").split(",")), types[dtype]))
    names = ", ".join(f"x{place}" for place in range(len(specs)))
    body = eval(f"lambda {names}: make([{names}])", {"make": lambda inputs: written(mb, row, inputs, context)})
    program = mb.program(input_specs=specs, opset_version=ct.target.iOS18)(body)
    precision = ct.precision.FLOAT16 if "f32" in case else None
    goal = {"minimum_deployment_target": ct.target.iOS18, "compute_precision": precision, "skip_model_load": True}
    ct.convert(program, convert_to="mlprogram", **goal).save(str(path))
    return programs.load(path).sites


def shown(site):
    return site.type, sorted(map(repr, site.data)), [repr(tensor) for tensor in site.outputs]


@pytest.mark.slow
@pytest.mark.parametrize("context", [False, True], ids=["alone", "in a network"])
def test_every_case_as_converted(builder, context, tmp_path):
    chip = get("m4")
    for case, row in cases.definitions().items():
        if context and "ctx" not in row["contexts"].split():
            continue
        real = convert(builder, case, context, tmp_path / f"{case}.mlpackage")
        mine = cases.build(case, context=context)
        if BOTH_OUTPUTS in case:
            real = [site for site in real if "uint16" not in repr(site.data)]
        assert sorted(map(shown, real)) == sorted(map(shown, mine)), case
        assert [site.type for site in real] == [site.type for site in mine], case
        for one, other in zip(real, mine, strict=True):
            assert legality.judge(one, chip).rule == legality.judge(other, chip).rule, case
            if len(one.data) < 2:  # a program's casts of several inputs may come in either order
                assert costs.estimate_ms(one, "cpu") == pytest.approx(costs.estimate_ms(other, "cpu"), rel=1e-2), case
