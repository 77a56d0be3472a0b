"""Stage install: a package in a folder of its own, by a real pip from a folder of wheels that this file writes."""

import os
import subprocess
import sys
import zipfile

import pytest

from ane_sweep.bridge import protocol
from ane_sweep.errors import StageError
from ane_sweep.worker.stages import install

INFO = "coremltools-8.9.dist-info"


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A folder with a coremltools 8.9 that holds its version alone; pip looks nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "coremltools-8.9-py3-none-any.whl", "w") as wheel:
        wheel.writestr("coremltools/__init__.py", "__version__ = '8.9'\n")
        wheel.writestr(
            f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: coremltools\nVersion: 8.9\nRequires-Dist: absent\n"
        )
        wheel.writestr(
            f"{INFO}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{INFO}/RECORD", "")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    return folder


def test_a_process_finds_it_before_the_installed_one(wheels, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    made = install.run({"package": "coremltools==8.9", "python": "3.11"}, {}, out)
    assert sorted(path.name for path in out.iterdir()) == ["installed.txt", "site"] and not made.facts, (
        "the runner takes a fact `folder` for the artifact"
    )
    assert (out / "installed.txt").read_text() == "coremltools==8.9\n"
    code = "import coremltools, ane_sweep, importlib.metadata as m; print(coremltools.__version__, m.version('coremltools'))"
    env = protocol.python_environment() | {"PYTHONPATH": protocol.python_path(out / "site")}
    done = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "8.9 8.9\n", done.stderr


def test_what_it_requires_comes_along_only_where_that_is_asked(wheels, tmp_path):
    with pytest.raises(StageError, match="absent"):
        install.run({"package": "coremltools==8.9", "python": "3.11", "requirements": True}, {}, tmp_path)


def test_a_version_that_is_not_there_is_told_in_pips_words(wheels, tmp_path):
    with pytest.raises(StageError, match=r"coremltools==8\.8 could not be installed: .*from versions: 8\.9"):
        install.run({"package": "coremltools==8.8", "python": "3.11"}, {}, tmp_path)


def test_without_pip_and_uv_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(install, "find_spec", lambda name: None)
    monkeypatch.setattr(install.shutil, "which", lambda name: None)
    with pytest.raises(StageError, match="pip install pip"):
        install.run({"package": "coremltools==8.9", "python": "3.11"}, {}, tmp_path)
