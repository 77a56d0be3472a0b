"""The git checkout that a sweep is started in: its commit, and that it was changed since."""

import shutil
import subprocess
from types import SimpleNamespace

import pytest

from ane_sweep.bridge.settings import read_run
from ane_sweep.machine import host
from ane_sweep.store.runs import open_run

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git")
SETTINGS = {
    "resume": None, "nightly": {"enabled": False},
    "tracking": {"enabled": True, "uri": None, "experiment": "e", "ui": None},
}  # fmt: skip


@pytest.fixture
def git(tmp_path):
    def run(*words):
        who = ("-c", "user.name=n", "-c", "user.email=e@x.test", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    run("init", "-q")
    return run


def test_a_commit_is_told_and_whether_tracked_files_differ_from_it(git, tmp_path, monkeypatch):
    assert host.checkout(tmp_path) is None, "there is no commit yet"
    (tmp_path / "file").write_text("a")
    git("add", "file")
    git("commit", "-q", "-m", "m")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "outputs").write_text("what git does not follow is no change")
    commit = git("rev-parse", "HEAD")
    assert host.checkout(tmp_path / "below") == {"commit": commit, "dirty": False}
    (tmp_path / "file").write_text("b")
    monkeypatch.chdir(tmp_path)
    run = open_run(tmp_path / "out", SimpleNamespace(key="k", axes=[], cells=[]), [], read_run(SETTINGS))
    assert run.info["source"] == {"commit": commit, "dirty": True}


def test_where_there_is_no_checkout_or_no_git_nothing_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert host.checkout(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.checkout(tmp_path) is None
