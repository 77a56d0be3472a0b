"""model.mil of compiled models: the text says the same program as the package, and what is no text is one clear error."""

import shutil

import numpy as np
import pytest

from ane_sweep import reference
from ane_sweep.coreml_anywhere import miltext
from ane_sweep.errors import PackageError
from ane_sweep.mil import package, text
from ane_sweep.mil.weights import BlobWriter

RNG = np.random.default_rng(7)
X = RNG.standard_normal((1, 64)).astype(np.float16)


def compiled(path, folder):
    """A folder as Core ML's compiler leaves it: the text, the weights, and a binary description that we cannot read."""
    folder.mkdir()
    found = package.read(path)
    (folder / "model.mil").write_text(miltext.program(found.spec), encoding="utf-8")
    (folder / "coremldata.bin").write_bytes(b"\x00\x01 not ours")
    if (weights := found.model_path.parent / "weights").is_dir():
        shutil.copytree(weights, folder / "weights")
    return folder


def test_the_text_of_iOS18_runs_as_the_package_does(everything, tmp_path):
    models = [reference.load(each) for each in (everything, compiled(everything, tmp_path / "m.mlmodelc"))]
    states = [model.new_state() for model in models]
    for _ in range(2):
        first, second = (model.predict({"x": X}, state) for model, state in zip(models, states))
        assert [v.dtype for v in first.values()] == [v.dtype for v in second.values()]
        assert list(map(np.ndarray.tobytes, first.values())) == list(map(np.ndarray.tobytes, second.values()))


def test_the_older_dialect_and_flexible_shapes(mil, tmp_path):
    x = X.astype(np.float32)
    weight = RNG.standard_normal((8, 64)).astype(np.float32)

    def body(x):
        y = mil.mb.linear(x=x, weight=weight, bias=np.zeros(8, np.float32))
        return mil.mb.clip(x=y, alpha=np.float32(-0.1), beta=np.float32(0.3))

    shape = (mil.ct.RangeDim(1, 4), 64)
    path = mil.write(tmp_path / "m.mlpackage", {"x": x}, body, target="iOS16", flexible={"x": shape})
    folder = compiled(path, tmp_path / "m.mlmodelc")
    said = (folder / "model.mil").read_text()
    assert said.startswith("program(1.0)") and "tensor<fp32, [?, 64]> x" in said
    three = np.repeat(x, 3, 0)
    made = [next(iter(reference.load(each).predict({"x": three}).values())) for each in (path, folder)]
    np.testing.assert_array_equal(*made)


WRITTEN = """program(1.0)
[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"coremlc-component-MIL", "3304.5.2"}, {"note", "a \\"b\\""}})]
{
    func main<ios16>(tensor<fp16, [1, 2]> x) [FlexibleShapeInformation = tuple<tensor<string, []>>(("none"))] {
            tensor<fp16, [3, 2]> w = const()[name = tensor<string, []>("w"), val = tensor<fp16, [3, 2]>(BLOBFILE(
                path = tensor<string, []>("@model_path/weights/weight.bin"), offset = tensor<uint64, []>(64)))];
            tensor<fp16, [3]> b = const()[name = tensor<string, []>("b"),
                val = tensor<fp16, [3]>([0x1p+0, -0x1.8p+1, 0x0p+0])];
            tensor<fp16, [1, 3]> y = linear(bias = b, weight = w, x = x)[name = tensor<string, []>("y")];
        } -> (y);
}
"""


@pytest.fixture
def written(tmp_path):
    folder = tmp_path / "w.mlmodelc"
    (folder / "weights").mkdir(parents=True)
    values = np.float16([[1, 0], [0, 1], [1, 1]])
    with BlobWriter(folder / "weights" / "weight.bin") as writer:
        writer.add_pieces(1, values.nbytes, 0, iter([values.tobytes()]))
    (folder / "model.mil").write_text(WRITTEN)
    return folder


def test_a_text_in_the_style_of_the_compiler(written):
    model = reference.load(written)
    assert model.predict({"x": np.float16([[2, 5]])})["y"].tolist() == [[3, 2, 7]]
    assert model.program.opset == "CoreML6" and model.spec.specificationVersion == 7


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace("linear(", "linear_of_2030("), "lacks .*linear_of_2030"),
        (lambda t: t.replace("ios16", "ios99"), r"line 4: the opset ios99 is not known; known: ios15"),
        (lambda t: t[:700], r"line \d: expected .*give the .mlpackage"),
        (lambda t: t.replace("fp16, [3]> b", "fp16, [3]"), "line 7: "),
        (lambda t: t.replace("[0x1p+0,", "[#,"), "line 8: .* is no MIL"),
        (lambda t: t.replace("[0x1p+0,", "[true,"), "line 8: could not convert string to float: 'true'"),
        (lambda t: t.replace("x = x", "x = nobody"), "reads 'nobody', which nothing makes"),
        (lambda t: t.replace("offset = tensor<uint64, []>(64)", "offset = tensor<uint64, []>(6400000)"), "no record can start there"),
        (lambda t: t.replace("weights/weight.bin", "../../w.bin"), "outside the package"),
        (lambda t: "program(1.0) {" + "tensor<" * 20000, "line 1: "),
        (lambda t: t.replace("1, 2]", "1, 2000000000000]"), "no machine can hold|has shape|cannot be held"),
        (lambda t: "", "line 1: expected program, found the end"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_text_is_said_with_its_line(written, change, words):
    (written / "model.mil").write_text(change(WRITTEN))
    with pytest.raises(PackageError, match=words):
        reference.load(written).predict({"x": np.float16([[2, 5]])})


def test_an_encrypted_text_and_none_at_all(written):
    (written / "model.mil").write_bytes(bytes(range(128, 256)))
    with pytest.raises(PackageError, match="encrypted or damaged"):
        reference.load(written)
    (written / "model.mil").unlink()
    with pytest.raises(PackageError, match=r"a compiled model without model\.mil"):
        reference.load(written)


def test_every_cut_of_a_text_is_an_error_and_nothing_else(written, tmp_path):
    for end in range(0, len(WRITTEN) - 2, 37):
        (written / "model.mil").write_text(WRITTEN[:end])
        with pytest.raises(PackageError):
            text.read(written / "model.mil")
