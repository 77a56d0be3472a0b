"""Packages as other people's converters, repositories and disks leave them: what lint and run say of them."""

import pytest
from placement.by_hand import conv_chain

from ane_sweep.__main__ import main

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
