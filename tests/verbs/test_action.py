"""The composite action, its shell code run step by step, on a repository with a baseline."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from placement.by_hand import convolutions
from verbs.action_steps import run_action

ACTION = Path(__file__).parent.parent.parent / ".github" / "actions" / "lint" / "action.yml"


@pytest.fixture
def repository(tmp_path):
    """A repository whose last commit holds two packages; the second one lost an op of the ANE since."""
    folder = tmp_path / "their repository"
    (folder / "models").mkdir(parents=True)
    convolutions(folder / "models" / "same.mlpackage", odd="relu")
    convolutions(folder / "models" / "with a space.mlpackage", odd="relu")

    def git(*words):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", *words], cwd=folder, check=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    shutil.rmtree(folder / "models" / "with a space.mlpackage")
    convolutions(folder / "models" / "with a space.mlpackage", odd="cumsum")
    runner = tmp_path / "runner"
    (runner / "ane-sweep" / "bin").mkdir(parents=True)
    (runner / "ane-sweep" / "bin" / "ane-sweep").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ane_sweep "$@"\n')
    (runner / "ane-sweep" / "bin" / "ane-sweep").chmod(0o755)
    return folder, runner


def test_the_action_fails_where_an_op_left_and_leaves_its_files(repository):
    folder, runner = repository
    given = {"packages": "models/*.mlpackage\n", "baseline": "HEAD:", "chips": "m4,a17_pro"}
    made = run_action(ACTION, given, folder=folder, temporary=runner, skip=("Install ane-sweep",))
    assert made.code == 1 and made.outputs["exit-code"] == "1", made.printed
    assert "::error" in made.printed and "cumsum" in made.printed
    report = json.loads(Path(made.outputs["json"]).read_text())
    assert {Path(one["path"]).name for one in report["packages"]} == {"same.mlpackage", "with a space.mlpackage"}
    assert json.loads(Path(made.outputs["sarif"]).read_text())["version"] == "2.1.0"
    assert "<testsuite" in Path(made.outputs["junit"]).read_text() and "<svg" in Path(made.outputs["badge"]).read_text()
    assert "cumsum" in made.summary and made.summary == Path(made.outputs["markdown"]).read_text()


def test_the_action_passes_one_package_without_a_comment(repository):
    folder, runner = repository
    given = {"packages": "models/same.mlpackage", "baseline": "HEAD:", "comment": "false", "arguments": "--max-ms 50"}
    made = run_action(ACTION, given, folder=folder, temporary=runner, skip=("Install ane-sweep",))
    assert (made.code, made.outputs["exit-code"], made.summary) == (0, "0", ""), made.printed
