"""Packages as other people's converters, repositories and disks leave them: what lint and run say of them."""

import json
import shutil

import numpy as np
import pytest
from placement.by_hand import Writer, conv_chain

from ane_sweep import reference
from ane_sweep.__main__ import main
from ane_sweep.coreml_anywhere import miltext
from ane_sweep.errors import PackageError
from ane_sweep.mil import chunker, package
from ane_sweep.mil.proto import FeatureTypes_pb2, Model_pb2
from ane_sweep.placement import programs

WEIGHTS = "Data/com.apple.CoreML/weights/weight.bin"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 12345\n" % (b"5e" * 32)


def spoilt(path, position, data):
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def test_a_package_of_an_old_writer_is_judged_and_run(tmp_path, capsys):
    """coremltools up to 7.2 leaves the padding of each record, which means nothing for whole bytes, as its memory was."""
    path = conv_chain(tmp_path / "m.mlpackage", 8, size=8)
    spoilt(path / WEIGHTS, 64 + 24, b"\xff" * 8)
    assert main(["lint", str(path), "--min-ane-share=0"]) == 0
    assert main(["run", str(path), "--random", "0"]) == 0
    assert "float16 [1, 64, 8, 8]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda weights: spoilt(weights, 64, bytes(4)), "lacks the mark"),
        (lambda weights: weights.write_bytes(weights.read_bytes()[:2000]), "not inside the file"),
        (lambda weights: spoilt(weights, 68, b"\2"), "the program says fp16"),
        (lambda weights: weights.write_bytes(POINTER), "a git-lfs pointer of 130 bytes"),
    ],
)
def test_lint_and_run_refuse_the_same_weights_in_the_same_words(tmp_path, capsys, spoil, words):
    path = conv_chain(tmp_path / "m.mlpackage", 2)
    spoil(path / WEIGHTS)
    assert main(["lint", str(path)]) == 2
    said = capsys.readouterr().err.strip()
    assert words in said and main(["run", str(path), "--random", "0"]) == 2
    assert capsys.readouterr().err.strip() == said


def test_a_pointer_in_place_of_the_model_is_told_as_such(tmp_path, capsys):
    path = conv_chain(tmp_path / "m.mlpackage", 2)
    (path / "Data/com.apple.CoreML/model.mlmodel").write_bytes(POINTER)
    for words in (["lint", str(path)], ["run", str(path)]):
        assert main(words) == 2 and "get it with `git lfs pull`" in capsys.readouterr().err


def test_a_package_without_its_weights_is_judged_and_says_so(tmp_path, capsys):
    path = conv_chain(tmp_path / "m.mlpackage", 8)
    (path / WEIGHTS).unlink()
    assert main(["lint", str(path)]) == 0
    said = capsys.readouterr().out
    assert "weights/weight.bin is not there: judged by what the program declares, it cannot be run" in said
    assert main(["run", str(path), "--random", "0"]) == 2


def detector(path, boxes=6):
    """The shape of every YOLO export: an ML Program of a picture, then non-maximum suppression with thresholds as inputs."""
    writer = Writer(image=("fp32", (1, 3, 8, 8)), raw=("fp32", (boxes, 7)))
    weight = writer.const("fp32", (4, 3, 1, 1))
    value = writer.op(
        "relu", ("fp32", (1, 4, 8, 8)), x=writer.op("conv", ("fp32", (1, 4, 8, 8)), x="image", weight=weight)
    )
    axes, keep = writer.const("int32", (4,), (0, 1, 2, 3)), writer.const("bool", (), (False,))
    none = writer.op("reduce_sum", ("fp32", ()), x=value, axes=axes, keep_dims=keep)
    raw = writer.op("add", ("fp32", (boxes, 7)), x="raw", y=none)
    begins = [writer.const("int32", (2,), begin) for begin in ((0, 0), (0, 4))]
    ends = [writer.const("int32", (2,), end) for end in ((boxes, 4), (boxes, 7))]
    made = [
        writer.op("slice_by_index", ("fp32", (boxes, size)), x=raw, begin=begin, end=end)
        for begin, end, size in zip(begins, ends, (4, 3))
    ]
    writer.runs(*made).save(path)
    found = package.read(path)
    image = found.spec.description.input[0].type.imageType
    image.width, image.height, image.colorSpace = 8, 8, FeatureTypes_pb2.ImageFeatureType.RGB
    spec = Model_pb2.Model(specificationVersion=9)
    spec.pipeline.models.add().CopyFrom(found.spec)
    last = spec.pipeline.models.add(specificationVersion=9)
    said = last.nonMaximumSuppression
    said.coordinatesInputFeatureName, said.confidenceInputFeatureName = made
    said.coordinatesOutputFeatureName, said.confidenceOutputFeatureName = "coordinates", "confidence"
    said.iouThresholdInputFeatureName, said.confidenceThresholdInputFeatureName = "iou", "floor"
    said.iouThreshold, said.confidenceThreshold = 0.5, 0.25
    said.pickTop.perClass = True
    last.description.input.extend(found.spec.description.output)
    for name in ("iou", "floor"):
        feature = last.description.input.add(name=name)
        feature.type.doubleType.SetInParent()
        feature.type.isOptional = True
    for name in ("coordinates", "confidence"):
        last.description.output.add(name=name).type.multiArrayType.dataType = FeatureTypes_pb2.ArrayFeatureType.FLOAT32
    spec.description.input.extend([*found.spec.description.input, *last.description.input[2:]])
    spec.description.output.extend(last.description.output)
    found.model_path.write_bytes(spec.SerializeToString())
    return path


# centre x, centre y, width, height, then a confidence for each of three classes
BOXES = np.array(
    [
        [0.50, 0.50, 0.20, 0.20, 0.1, 0.8, 0.0],
        [0.51, 0.50, 0.20, 0.20, 0.0, 0.9, 0.0],  # covers the one before, better, of the same class
        [0.50, 0.51, 0.20, 0.20, 0.7, 0.0, 0.0],  # covers both, of another class
        [0.20, 0.20, 0.10, 0.10, 0.0, 0.0, 0.3],
        [0.80, 0.80, 0.10, 0.10, 0.0, 0.2, 0.0],  # below the threshold
        [0.22, 0.20, 0.10, 0.10, 0.0, 0.0, 0.29],  # overlaps the one at 0.2 by two thirds
    ],
    np.float32,
)


def test_a_detector_with_suppression_at_its_end_is_run_judged_and_its_program_cut(tmp_path, capsys):
    path = detector(tmp_path / "yolo.mlpackage")
    model = reference.load(path)
    given = {"image": np.zeros((8, 8, 3), np.uint8), "raw": BOXES}
    made = model.predict(given)
    np.testing.assert_array_equal(made["coordinates"], BOXES[[1, 2, 3], :4])
    np.testing.assert_array_equal(made["confidence"], BOXES[[1, 2, 3], 4:])
    assert len(model.predict({**given, "iou": 0.9})["confidence"]) == 4, "the threshold may come from outside"
    assert len(model.predict({**given, "floor": 0.85})["confidence"]) == 1
    assert model.predict({**given, "floor": 0.95})["confidence"].shape == (0, 3)
    assert main(["run", str(path), "--random", "0"]) == 0
    assert main(["lint", str(path), "--min-ane-share=0"]) == 0
    assert "the pipeline's nonMaximumSuppression is no ML Program and is not judged" in capsys.readouterr().out
    facts = chunker.chunk(path, tmp_path / "cut", chunker.ChunkRequest(2))
    assert facts["chunks"] == 2 and facts["left_out"] == ["nonMaximumSuppression"]
    chain = [reference.load(tmp_path / "cut" / package.chunk_name(index)) for index in range(2)]
    values = dict(given)
    for part in chain:
        values |= part.predict({name: values[name] for name in part.inputs})
    np.testing.assert_array_equal(values[next(iter(chain[-1].outputs))], BOXES[:, :4])


def compiled(source, folder, attribute="", metadata=None):
    """A folder as Core ML's compiler leaves it; `attribute` as it writes one at the function."""
    folder.mkdir(parents=True)
    found = package.read(source)
    text = miltext.program(found.spec)
    opening = text.index(") {", text.index("func "))
    (folder / "model.mil").write_text(text[: opening + 1] + attribute + text[opening + 1 :])
    (folder / "coremldata.bin").write_bytes(b"\x00 not ours")
    if metadata is not None:
        (folder / "metadata.json").write_text(json.dumps([metadata]))
    shutil.copytree(found.model_path.parent / "weights", folder / "weights")
    return folder


def any_width(path):
    writer = Writer(x=("fp16", (1, 8, None)))
    weight = writer.const("fp16", (8, 8, 1))
    return writer.runs(writer.op("conv", ("fp16", (1, 8, None)), x="x", weight=weight)).save(path)


RANGE = """ [FlexibleShapeInformation = tuple<tuple<tensor<string, []>, dict<tensor<string, []>, tensor<int32, [?]>>>,
 tuple<tensor<string, []>, dict<tensor<string, []>, list<tensor<int32, [2]>, ?>>>>((("DefaultShapes", {{"x", [1, 8, 24]}}),
 ("RangeDims", {{"x", [[1, 1], [8, 8], [2, 96]]}})))]"""
LISTED = """ [FlexibleShapeInformation = tuple<tuple<tensor<string, []>, dict<tensor<string, []>, tensor<int32, [?]>>>,
 tuple<tensor<string, []>, dict<tensor<string, []>, dict<tensor<string, []>, tensor<int32, [?]>>>>>((("DefaultShapes",
 {{"x", [1, 8, 24]}}), ("EnumeratedShapes", {{"79ae981e", {{"x", [1, 8, 24]}}}, {"8f5c2d10", {{"x", [1, 8, 48]}}}})))]"""


@pytest.mark.parametrize(
    ("attribute", "kind", "allowed", "refused"), [(RANGE, "range", 96, 97), (LISTED, "enumerated", 48, 25)]
)
def test_a_compiled_model_says_which_shapes_it_takes(tmp_path, attribute, kind, allowed, refused):
    folder = compiled(any_width(tmp_path / "m.mlpackage"), tmp_path / "m.mlmodelc", attribute)
    (flexible,) = programs.load(folder).flexible
    assert (flexible.name, flexible.kind, flexible.default) == ("x", kind, (1, 8, 24))
    model = reference.load(folder)
    assert model.inputs["x"].shape == (1, 8, 24)
    assert next(iter(model.predict({"x": np.ones((1, 8, allowed), np.float16)}).values())).shape == (1, 8, allowed)
    with pytest.raises(PackageError, match=str(refused)):
        model.predict({"x": np.ones((1, 8, refused), np.float16)})


def test_a_compiled_model_that_states_no_default_has_none(tmp_path):
    folder = compiled(any_width(tmp_path / "m.mlpackage"), tmp_path / "m.mlmodelc")
    assert [one.default for one in programs.load(folder).flexible] == [None]


def test_a_compiled_model_takes_pictures_where_its_metadata_says_so(tmp_path):
    source = conv_chain(tmp_path / "m.mlpackage", 1, channels=3, size=8)
    picture = {
        "type": "Image",
        "name": "x",
        "height": "8",
        "width": "8",
        "colorspace": "BGR",
        "hasSizeFlexibility": "0",
    }
    folder = compiled(source, tmp_path / "m.mlmodelc", metadata={"inputSchema": [picture], "outputSchema": []})
    model = reference.load(folder)
    assert str(model.inputs["x"]) == "BGR image 8 x 8"
    model.predict({"x": np.zeros((8, 8, 3), np.uint8)})
    for broken in ("[", "7", '{"inputSchema": [3]}', '[{"inputSchema": [{"type": "Image", "name": "x"}]}]'):
        (folder / "metadata.json").write_text(broken)
        assert reference.load(folder).inputs["x"].kind == "array", "it only adds to what the program says"


def test_a_compiled_pipeline_is_run_and_judged_program_by_program(tmp_path, capsys):
    first = conv_chain(tmp_path / "first.mlpackage", 8)
    second = conv_chain(tmp_path / "second.mlpackage", 8)
    folder = tmp_path / "both.mlmodelc"
    for index, source in enumerate((first, second)):
        compiled(source, folder / f"model{index}")
    (folder / "coremldata.bin").write_bytes(b"\x00 not ours")
    assert [program.weight_file_bytes > 64 for program in programs.load_chain([folder])] == [True, True]
    assert main(["lint", str(folder)]) == 0 and "of 32;" in capsys.readouterr().out
    assert main(["run", str(folder), "--random", "0"]) == 0
    shutil.rmtree(folder / "model1")
    (folder / "model1").mkdir()
    kinds = [{"name": "MLModelType_mlProgram"}, {"name": "MLModelType_nonMaximumSuppression"}]
    (folder / "metadata.json").write_text(
        json.dumps([{"modelType": {"name": "MLModelType_pipeline", "structure": kinds}}])
    )
    assert main(["lint", str(folder)]) == 0 and "nonMaximumSuppression is no ML Program" in capsys.readouterr().out
    assert main(["run", str(folder), "--random", "0"]) == 2
    assert "give the .mlpackage that it was compiled from" in capsys.readouterr().err


LABELLED = """program(1.0)
{
    func main<ios16>(tensor<fp32, [3]> x) {
            tensor<string, [3]> names = const()[name = tensor<string, []>("names"), val = tensor<string, [3]>(["cat", "dog", "eel"])];
            tensor<string, []> label, dict<tensor<string, []>, tensor<fp32, []>> label_probs = classify(classes = names, probabilities = x)[name = tensor<string, []>("label")];
        } -> (label, label_probs);
}
"""  # noqa: E501


def test_a_compiled_classifier_says_its_label(tmp_path):
    folder = tmp_path / "m.mlmodelc"
    folder.mkdir()
    (folder / "model.mil").write_text(LABELLED)
    made = reference.load(folder).predict({"x": np.float32([0.1, 0.7, 0.2])})
    assert made["label"] == "dog" and made["label_probs"]["eel"] == pytest.approx(0.2)
