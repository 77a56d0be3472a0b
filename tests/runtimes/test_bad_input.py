"""Damaged packages: whatever bytes come, one PackageError or a result, never another exception, never a huge allocation."""

import shutil
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ane_sweep import reference
from ane_sweep.errors import PackageError
from ane_sweep.mil import package
from ane_sweep.reference import limits

HEAVY = 2 << 30  # bytes; what a load of a 20 kB package must never ask for


def attempt(path) -> str:
    """ "fine", or the text of the one error that is allowed."""
    try:
        model = reference.load(path)
        model.predict(
            {name: np.zeros(feature.shape, np.float16) for name, feature in model.inputs.items()}, model.new_state()
        )
    except PackageError as error:
        assert len(str(error)) < 3000
        return str(error)
    return "fine"


@pytest.fixture(autouse=True)
def _no_huge_allocation():
    """Reserve little: the limit is on what may be added to what this process has mapped."""
    import resource

    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + HEAVY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_the_undamaged_one_runs(everything):
    assert attempt(everything) == "fine"


def parts(path):
    spec = path / "Data" / "com.apple.CoreML" / "model.mlmodel"
    return spec, path / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"


def copied(path, tmp_path):
    """A copy to be damaged, in the place of the one before."""
    copy = tmp_path / "c.mlpackage"
    shutil.rmtree(copy, ignore_errors=True)
    return shutil.copytree(path, copy)


FUZZ = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@FUZZ
@given(data=st.data())
def test_bytes_changed_in_the_program(everything, tmp_path, data):
    copy = copied(everything, tmp_path)
    spec, _ = parts(copy)
    content = bytearray(spec.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    spec.write_bytes(content)
    attempt(copy)


@FUZZ
@given(share=st.floats(0, 1), in_weights=st.booleans())
def test_files_cut_short(everything, tmp_path, share, in_weights):
    copy = copied(everything, tmp_path)
    target = parts(copy)[in_weights]
    content = target.read_bytes()
    target.write_bytes(content[: int(len(content) * share)])
    said = attempt(copy)
    assert said != "fine" or share > 0.9


@FUZZ
@given(data=st.data())
def test_bytes_changed_in_the_weights_table(everything, tmp_path, data):
    copy = copied(everything, tmp_path)
    weights = parts(copy)[1]
    content = bytearray(weights.read_bytes())
    records = [place for place in range(0, len(content), 64) if content[place : place + 4] == b"\xef\xbe\xad\xde"]
    place = data.draw(st.sampled_from([0, *records])) + data.draw(st.sampled_from([0, 4, 8, 16, 24]))
    content[place : place + 8] = struct.pack("<Q", data.draw(st.integers(0, (1 << 64) - 1)))
    weights.write_bytes(content)
    attempt(copy)


def edited(everything, tmp_path, change):
    copy = copied(everything, tmp_path)
    spec = package.read(copy).spec
    block = next(iter(spec.mlProgram.functions["main"].block_specializations.values()))
    change(spec, block)
    parts(copy)[0].write_bytes(spec.SerializeToString())
    return attempt(copy)


def first(block, kind):
    return next(op for op in block.operations if op.type == kind)


def huge(block):
    shape = first(block, "linear").outputs[0].type.tensorType
    for size in shape.dimensions:
        size.constant.size = 1 << 40


def big_constant(block):
    """One number that is to stand for 2 ** 50."""
    held = next(op for op in block.operations if op.type == "const" and op.attributes["val"].type.tensorType.rank == 0)
    kind = held.attributes["val"].type.tensorType
    kind.rank = 1
    kind.dimensions.add().constant.size = 1 << 50


def axis_of_softmax(block):
    name = first(block, "softmax").inputs["axis"].arguments[0].name
    return next(op for op in block.operations if op.outputs and op.outputs[0].name == name)


def rename_read(block):
    first(block, "linear").inputs["x"].arguments[0].name = "nobody"


CASES = {
    "an op of tomorrow": (
        lambda spec, block: setattr(first(block, "gelu"), "type", "gelu_of_2030"),
        "lacks .*gelu_of_2030"),
    "a type of tomorrow": (
        lambda spec, block: setattr(first(block, "gelu").outputs[0].type.tensorType, "dataType", 40),
        "does not compute with fp8e4m3fn values",
    ),
    "a shape beyond any machine": (lambda spec, block: huge(block), "no machine can hold"),
    "a constant out of one number": (lambda spec, block: big_constant(block), "holds 1 values"),
    "a value that nothing makes": (lambda spec, block: rename_read(block), "reads 'nobody', which nothing makes"),
    "an output that nothing makes": (lambda spec, block: block.outputs.append("ghost"), "nothing makes the output 'ghost'"),
    "no input": (lambda spec, block: spec.description.ClearField("input"), "its program takes 'x'"),
    "no parameter": (lambda spec, block: first(block, "softmax").inputs.pop("x"), "lacks its input `x`"),
    "no value": (lambda spec, block: axis_of_softmax(block).attributes.pop("val"), "holds no value"),
    "no block": (lambda spec, block: first(block, "while_loop").ClearField("blocks"), "cannot be prepared"),
    "another block": (lambda spec, block: setattr(spec.mlProgram.functions["main"], "opset", "CoreML99"), "no block for opset"),
    "a wrong parameter": (
        lambda spec, block: first(block, "reshape").outputs[0].type.tensorType.dimensions[1].constant.__setattr__("size", 7),
        "`reshape` .* failed while it ran",
    ),
    "a state as large as the sky": (
        lambda spec, block: spec.description.state[0].type.stateType.arrayType.shape.__setitem__(0, 1 << 50), "cannot be held",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_damage_is_named(everything, tmp_path, case):
    import re

    change, words = CASES[case]
    said = edited(everything, tmp_path, change)
    assert re.search(words, said), said


def giant(mil, tmp_path, body, change):
    """A program of one op whose parameter is made gigantic after it was written, and what becomes of it."""
    path = mil.write(tmp_path / "m.mlpackage", {"x": np.ones((2, 4), np.float16)}, body)
    spec = package.read(path).spec
    block = next(iter(spec.mlProgram.functions["main"].block_specializations.values()))
    change(block)
    parts(path)[0].write_bytes(spec.SerializeToString())
    return attempt(path)


def set_constant(kind, parameter, values):
    """The constant that an op reads as a parameter gets other values."""

    def change(block):
        name = first(block, kind).inputs[parameter].arguments[0].name
        held = next(op for op in block.operations if op.outputs and op.outputs[0].name == name).attributes["val"]
        held.immediateValue.tensor.ints.values[:] = values

    return change


@pytest.mark.parametrize("values", [[1 << 20, 1 << 20], [1 << 12, 1 << 14], [1 << 30, 1]])
def test_a_giant_is_refused_by_its_size_before_it_is_made(mil, tmp_path, values, monkeypatch):
    """The declared shape lies: it is what the program makes that would not fit."""
    monkeypatch.setattr(limits, "most_bytes", lambda: 64 << 20)
    mb = mil.mb
    bodies = {
        ("tile", "reps"): lambda x: mb.identity(x=mb.tile(x=x, reps=[1, 1])),
        ("fill", "shape"): lambda x: mb.add(x=x, y=mb.fill(shape=np.int32([2, 4]), value=np.float16(1))),
    }
    for number, ((kind, parameter), body) in enumerate(bodies.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        said = giant(mil, folder, body, set_constant(kind, parameter, values))
        assert f"`{kind}`" in said and "would take" in said and "may have 0.0671" in said, said


@pytest.mark.parametrize(
    ("kind", "parameter", "values", "body"),
    [
        ("one_hot", "one_hot_vector_size", [1 << 30],
         lambda mb, x: mb.one_hot(indices=mb.cast(x=x, dtype="int32"), one_hot_vector_size=3)),
        ("range_1d", "end", [1 << 30], lambda mb, x: mb.range_1d(start=np.int32(0), end=np.int32(8), step=np.int32(1))),
        ("pad", "pad", [0, 1 << 30, 0, 0], lambda mb, x: mb.pad(x=x, pad=[0, 1, 0, 0], constant_val=np.float16(0))),
    ],
)  # fmt: skip
def test_other_ops_that_make_giants_are_refused(mil, tmp_path, kind, parameter, values, body, monkeypatch):
    monkeypatch.setattr(limits, "most_bytes", lambda: 64 << 20)
    said = giant(mil, tmp_path, lambda x: (x, body(mil.mb, x)), set_constant(kind, parameter, values))
    assert f"`{kind}`" in said and "would take" in said, said


def test_an_input_of_negative_or_giant_size_is_refused(everything, tmp_path):
    for size in (-1, 1 << 50):
        said = edited(
            everything, tmp_path,
            lambda spec, block, size=size: spec.description.input[0].type.multiArrayType.shape.__setitem__(0, size),
        )  # fmt: skip
        assert "cannot be held" in said


def test_a_neural_network_and_a_compiled_model(everything, tmp_path):
    said = edited(everything, tmp_path, lambda spec, block: spec.neuralNetwork.layers.add(name="old"))
    assert "holds a neuralNetwork" in said and "convert_to='mlprogram'" in said
    (tmp_path / "m.mlmodelc").mkdir()
    with pytest.raises(PackageError, match="a compiled model"):
        reference.load(tmp_path / "m.mlmodelc")
