"""Packages on disk: found, ordered, and refused with a reason."""

import json
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from ane_sweep.errors import PackageError
from ane_sweep.mil import graph, package
from ane_sweep.mil.element_types import TensorType

X = np.ones((2, 32), np.float16)
WEIGHT = np.ones((32, 32), np.float16)


@pytest.fixture(scope="module")
def made(mil, tmp_path_factory):
    path = tmp_path_factory.mktemp("package") / "model.mlpackage"
    return mil.save(path, {"x": X}, lambda x: mil.mb.linear(x=x, weight=WEIGHT, name="y"))


@pytest.fixture
def copy(made, tmp_path):
    return shutil.copytree(made, tmp_path / "model.mlpackage")


def model_file(path):
    return path / "Data" / "com.apple.CoreML" / "model.mlmodel"


def test_reading(made):
    found = package.read(made)
    assert found.spec.specificationVersion == 9 and found.model_path == model_file(made)
    assert found.blobs(package.WEIGHTS_NAME).path.name == "weight.bin"


def test_writing_gives_the_same_bytes_twice(made, tmp_path):
    spec = package.read(made).spec
    for name in ("a", "b"):
        package.create(tmp_path / name).write_bytes(b"")
        package.write(tmp_path / name, spec)
    for part in ("Manifest.json", "Data/com.apple.CoreML/model.mlmodel"):
        assert (tmp_path / "a" / part).read_bytes() == (tmp_path / "b" / part).read_bytes()
    assert package.read(tmp_path / "a").spec == spec


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": "com\0apple"}}}, "which is not in the package"),
        ({"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": "x" * 5000}}}, "which is not in the package"),
        (
            {"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": "../../../etc/passwd"}}},
            "which is not in the package",
        ),
        ({"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": 5}}}, "which is not in the package"),
        ({"rootModelIdentifier": 0, "itemInfoEntries": []}, "does not say which item is the model"),
        ([], "does not say which item is the model"),
        ("[" * 100_000, "does not say which item is the model"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "does not say which item is the model"),
    ],
)
def test_a_manifest_that_cannot_be_followed_is_refused(copy, content, words):
    (copy / "Manifest.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(PackageError, match=words):
        package.read(copy)


def test_weights_at_a_path_that_no_disk_can_hold_are_refused(copy):
    found = package.read(copy)
    for name in ("@model_path/a\0b", "@model_path/../../../x", "/etc/passwd"):
        with pytest.raises(PackageError, match="outside the package"):
            found.blobs(name)


def test_order_of_chunks(tmp_path):
    for index in range(101):
        (tmp_path / package.chunk_name(index)).mkdir()
    assert [path.name for path in package.program_paths(tmp_path)] == [package.chunk_name(i) for i in range(101)]
    shutil.rmtree(tmp_path / package.chunk_name(3))
    with pytest.raises(PackageError, match=r"chunk is missing \(chunk_04.mlpackage\)"):
        package.program_paths(tmp_path)


def test_a_whole_program_comes_alone(copy, tmp_path):
    assert package.program_paths(tmp_path) == [copy]
    shutil.rmtree(copy)
    with pytest.raises(PackageError, match=r"neither model\.mlpackage nor chunk_01"):
        package.program_paths(tmp_path)


def cut(path, keep):
    data = model_file(path).read_bytes()
    model_file(path).write_bytes(data[: int(len(data) * keep)])


def edit_manifest(path, **changes):
    content = json.loads((path / "Manifest.json").read_text())
    (path / "Manifest.json").write_text(json.dumps({**content, **changes}))


def point_outside(path):
    content = json.loads((path / "Manifest.json").read_text())
    content["itemInfoEntries"][content["rootModelIdentifier"]]["path"] = "../../../outside"
    (path / "Manifest.json").write_text(json.dumps(content))


def to_network(path):
    spec = package.read(path).spec
    spec.neuralNetwork.layers.add(name="old")
    model_file(path).write_bytes(spec.SerializeToString())


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda p: cut(p, 0.5), "cut short"),
        (lambda p: cut(p, 0), "empty or truncated"),
        (lambda p: model_file(p).write_bytes(b"\xff" * 99), "not a Core ML model"),
        (lambda p: model_file(p).unlink(), "not in the package"),
        (lambda p: (p / "Manifest.json").unlink(), "no Manifest.json"),
        (lambda p: (p / "Manifest.json").write_text("{"), "does not say which item"),
        (lambda p: (p / "main.mlirb").write_bytes(b"x"), "it is Core AI's asset"),
        (lambda p: edit_manifest(p, rootModelIdentifier="nobody"), "does not say which item"),
        (point_outside, "not in the package"),
        (to_network, r"holds a neuralNetwork.*convert_to='mlprogram'"),
        (lambda p: (p / "coremldata.bin").touch(), "compiled model"),
        (shutil.rmtree, "no such model"),
    ],
)
def test_damage_is_named(copy, damage, words):
    damage(copy)
    with pytest.raises(PackageError, match=words):
        package.read(copy)


def test_weights_outside_the_package_are_not_opened(made):
    for name in ("@model_path/../../../../secret", "/etc/hostname", "weights/weight.bin"):
        with pytest.raises(PackageError, match="outside the package"):
            package.read(made).blobs(name)


def test_constants_that_do_not_fit_the_weight_file(copy):
    spec = package.read(copy).spec
    block = spec.mlProgram.functions["main"].block_specializations["CoreML8"]
    held = next(op for op in block.operations if op.attributes["val"].HasField("blobFileValue"))
    held.attributes["val"].type.tensorType.dimensions[0].constant.size = 1 << 40
    model_file(copy).write_bytes(spec.SerializeToString())
    program = graph.load(copy)
    op = next(op for op in program.ops if op.proto.attributes["val"].HasField("blobFileValue"))
    with pytest.raises(PackageError, match=r"the program needs \d+ bytes, the weight record"):
        program.constant(op)


def test_types_and_constants(made):
    program = graph.load(made)
    assert program.inputs == ["x"] and program.outputs == ["y"]
    assert program.tensor_type("y") == TensorType("fp16", (2, 32))
    assert program.tensor_type("y").byte_count == 128
    linear = next(op for op in program.ops if op.type == "linear")
    assert "x" in linear.reads and linear.outputs == ["y"] and "making `y`" in str(linear)
    constants = {op.outputs[0]: program.constant(op) for op in program.ops if op.type == "const"}
    (weight,) = (value for value in constants.values() if getattr(value, "shape", None) == (32, 32))
    np.testing.assert_array_equal(weight, WEIGHT)


@pytest.mark.slow
@pytest.mark.ci
def test_a_program_of_16500_ops_is_viewed_in_a_second(tmp_path):
    """In a process of its own, as chunk and placement do it."""
    script = f"""
    import time
    from ane_sweep.mil import graph, line, package
    from ane_sweep.mil.proto import MIL_pb2, Model_pb2

    spec = Model_pb2.Model(specificationVersion=9)
    function = spec.mlProgram.functions["main"]
    function.opset = "CoreML8"
    block = function.block_specializations["CoreML8"]
    kind = MIL_pb2.ValueType()
    kind.tensorType.dataType, kind.tensorType.rank = MIL_pb2.FLOAT16, 1
    kind.tensorType.dimensions.add().constant.size = 8
    function.inputs.add(name="x").type.CopyFrom(kind)
    for index in range(16500):
        op = block.operations.add(type="add")
        for side in "xy":
            op.inputs[side].arguments.add(name=f"v{{index - 1}}" if index else "x")
        op.outputs.add(name=f"v{{index}}").type.CopyFrom(kind)
    block.outputs.append("v16499")
    package.create(r"{tmp_path}/m.mlpackage").touch()
    package.write(r"{tmp_path}/m.mlpackage", spec)
    start = time.process_time()
    program = graph.load(r"{tmp_path}/m.mlpackage")
    assert len(program.ops) == 16500 and len(program.types) == 16501
    viewed = time.process_time() - start
    assert len(line.line_up(program).positions) == 16499
    print(viewed, time.process_time() - start)
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    viewed, lined_up = map(float, out.stdout.split())
    assert viewed < 1.5 and lined_up < 4
