"""Damaged and hostile packages at the doors that take them: lint, run, diff and the chunker."""

import json
import shutil

import numpy as np
import pytest
from fuzz import hostile
from placement.by_hand import Writer
from runtimes.conftest import everything, mil  # noqa: F401

from ane_sweep.__main__ import main
from ane_sweep.errors import StageError
from ane_sweep.mil import chunker, package, pipeline
from ane_sweep.mil.proto import Model_pb2


@pytest.fixture(scope="module")
def sources(everything, mil, tmp_path_factory):  # noqa: F811
    """Packages of several kinds. Not to be changed."""
    folder = tmp_path_factory.mktemp("sources")
    x = np.zeros((2, 3), np.float16)

    def shapes(x):
        mb = mil.mb
        y = mb.tile(x=x, reps=[2, 2])
        y = mb.concat(values=[y, mb.fill(shape=np.int32([4, 6]), value=np.float16(2))], axis=0)
        y = mb.pad(x=y, pad=[1, 1, 0, 2], constant_val=np.float16(0))
        hot = mb.one_hot(
            indices=np.arange(10, dtype=np.int32),
            one_hot_vector_size=8,
            on_value=np.float16(1),
            off_value=np.float16(0),
        )
        y = mb.add(x=y, y=hot)
        y = mb.upsample_nearest_neighbor(
            x=mb.reshape(x=y, shape=[1, 2, 5, 8]), scale_factor_height=2, scale_factor_width=2
        )
        return mb.reduce_sum(x=y, axes=[-1])

    found = [everything, mil.write(folder / "shapes.mlpackage", {"x": x}, shapes)]
    size = mil.ct.RangeDim(1, 8, default=3)
    found.append(mil.write(folder / "flexible.mlpackage", {"x": x}, _by_shape(mil.mb), flexible={"x": (2, size)}))
    pipeline.merge([found[1]], folder / "pipeline.mlpackage")
    return [*found, folder / "pipeline.mlpackage"]


def _by_shape(mb):
    """A net whose inner shapes hang on that of its input."""

    def body(x):
        size = mb.gather(x=mb.shape(x=x), indices=np.int32([1]), axis=0)
        wide = mb.fill(shape=mb.concat(values=[np.int32([2]), size], axis=0), value=np.float16(1))
        return mb.reshape(x=mb.add(x=x, y=wide), shape=mb.concat(values=[size, np.int32([2])], axis=0))

    return body


def damaged(source, folder, draw):
    """A copy of a package with something wrong in it."""
    copy = folder / "damaged.mlpackage"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy)
    inside = copy / "Data" / "com.apple.CoreML"
    how = draw.random()
    if how < 0.08:
        manifest = json.loads((copy / "Manifest.json").read_text())
        (copy / "Manifest.json").write_text(hostile.changed_json(manifest, draw))
        return copy
    weights = sorted((inside / "weights").iterdir())
    target = draw.choice(weights) if weights and how < 0.2 else inside / "model.mlmodel"
    if how < 0.5:
        target.write_bytes(hostile.changed_bytes(target.read_bytes(), draw))
        return copy
    spec = Model_pb2.Model()
    spec.ParseFromString((inside / "model.mlmodel").read_bytes())
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        hostile.change_message(spec, draw)
    (inside / "model.mlmodel").write_bytes(spec.SerializeToString())
    return copy


def ended(capsys, *words) -> tuple[int, str]:
    """Exit code of a command in this process, and what it said."""
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err and len(said.err) < 20_000
    assert code != 2 or said.err.startswith("error:")
    return code, said.err


def test_lint_reads_it_or_says_why_not(sources, tmp_path, tries, capsys):
    for _, draw in tries:
        code, _ = ended(capsys, "lint", damaged(draw.choice(sources), tmp_path, draw), "--chip", "m1,m4")
        assert code in (0, 1, 2)


def test_run_computes_or_says_why_not(sources, tmp_path, tries, capsys):
    for _, draw in tries:
        words = draw.choice(((), ("--watch",), ("--drift", "3")))
        code, _ = ended(capsys, "run", damaged(draw.choice(sources), tmp_path, draw), "--random", "0", *words)
        assert code in (0, 2)


def test_diff_compares_or_says_why_not(sources, tmp_path, tries, capsys):
    for _, draw in tries:
        source = draw.choice(sources)
        pair = [source, damaged(source, tmp_path, draw)]
        draw.shuffle(pair)
        code, _ = ended(capsys, "diff", *pair, "--random", "0")
        assert code in (0, 2)


def test_the_chunker_cuts_or_says_why_not(sources, tmp_path, tries):
    for number, draw in tries:
        out = tmp_path / f"chunks{number}"
        try:
            chunker.chunk(damaged(draw.choice(sources[:2]), tmp_path, draw), out, chunker.ChunkRequest(2))
        except StageError as error:
            assert str(error)
        shutil.rmtree(out, ignore_errors=True)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A compiled model: only its model.mil."""
    from ane_sweep.coreml_anywhere import miltext

    writer = Writer(x=("fp16", (1, 4, 8, 8)))
    value = writer.op("relu", ("fp16", (1, 4, 8, 8)), x="x")
    value = writer.op("tile", ("fp16", (1, 8, 8, 8)), x=value, reps=writer.const("int32", (4,), (1, 2, 1, 1)))
    writer.block.outputs.append(value)
    path = writer.save(tmp_path_factory.mktemp("text") / "m.mlpackage")
    return miltext.program(package.read(path).spec)


def test_the_text_of_a_compiled_model_is_read_or_refused(text, tmp_path, tries, capsys):
    folder = tmp_path / "m.mlmodelc"
    folder.mkdir()
    for _, draw in tries:
        made = hostile.changed_bytes(text.encode(), draw)
        if draw.random() < 0.5:
            words = text.split(" ")
            words[draw.randrange(len(words))] = str(hostile.value(draw))
            made = " ".join(words).encode(errors="replace")
        (folder / "model.mil").write_bytes(made)
        code, _ = ended(capsys, *draw.choice((("lint",), ("run", "--random", "0"))), folder)
        assert code in (0, 1, 2)
