"""Packages of others, tried: what lacks its weights gets some, and each step says what it came to."""

import json
import re

import pytest
from placement.by_hand import conv_chain
from verbs.test_packages_of_others import detector

from ane_sweep.errors import ConfigError, PackageError
from ane_sweep.mil import package
from tests.bench import _kept, _trial, packages


def tried(path, capsys):
    _trial.main(path)
    return {step: said for line in capsys.readouterr().out.splitlines() for step, said in json.loads(line).items()}


def test_a_package_that_was_left_without_its_weights_is_tried_with_made_ones(tmp_path, capsys):
    path = conv_chain(tmp_path / "m.mlpackage", 3, channels=8, size=8)
    next(path.rglob("weight.bin")).write_text("version https://git-lfs.github.com/spec/v1\nsize 9\n")
    whole, weights, writer, ops = packages._whole(path, tmp_path / "work")
    assert (weights, writer, ops) == ("made here", "not said", 6) and whole != path
    said = tried(whole, capsys)
    assert list(said) == list(packages.STEPS) and all(one["ok"] for one in said.values()), said


def test_a_pipeline_is_tried_whole_and_its_program_cut(tmp_path, capsys):
    said = tried(detector(tmp_path / "yolo.mlpackage"), capsys)
    assert all(one["ok"] for one in said.values()), said


def test_the_counts_of_the_topic_are_those_of_its_table():
    """A cut counts only if the bits of both chunks were compared."""
    topic = (_kept.TOPIC.parent / "PACKAGES.md").read_text(encoding="utf-8")
    table = [line.split(" | ") for line in topic.splitlines() if line.count(" | ") == 8][2:]
    assert len(table) == len(_kept.entries("packages")[-1]["rows"])
    for own, sentence in ((False, "{} linted, {} run, {} cut, two more"), (True, "{} linted, {} run, {} cut.")):
        rows = [row for row in table if row[0].startswith("| here/") == own]
        run = [row for row in rows if row[7].startswith("yes")]
        cut = [row for row in rows if re.fullmatch(r"[\d., ]+ \|", row[8])]
        assert sentence.format(len(rows), len(run), len(cut)) in " ".join(topic.split()), (
            len(rows),
            len(run),
            len(cut),
        )


def test_what_is_no_package_is_not_read_and_no_folder_is_asked_for(tmp_path):
    path = conv_chain(tmp_path / "m.mlpackage", 1)
    package.read(path).model_path.write_text("version https://git-lfs.github.com/spec/v1\nsize 9\n")
    with pytest.raises(PackageError, match="git lfs pull"):
        packages._whole(path, tmp_path / "work")
    assert packages._tried(path, tmp_path).ours.startswith("not read: ")
    with pytest.raises(ConfigError, match="give one or more folders"):
        packages.run()
