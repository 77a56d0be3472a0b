"""What a user installs: the wheel carries conf/ and data, and works from any folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


@pytest.mark.slow
@pytest.mark.ci
def test_the_wheel_holds_options_data_and_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for needed in (
        "conf/config.yaml",
        "conf/model/gpt2.yaml",
        "conf/sweep/crash_test.yaml",
        "conf/sweep/notebooks/gpt2-family.yaml",
        "data/sentences.txt",
        "data/tale/model.safetensors",
        "data/texts/moods.tsv",
        "data/published.csv",
        "docs/errors.md",
        "report/page.css",
        "report/page.js",
        "report/templates/page.html.j2",
        "machine/log_lines.csv",
        "docs/notebook.md",
        "examples/which_ops.ipynb",
        "py.typed",
    ):
        assert f"ane_sweep/{needed}" in names
    assert not [name for name in names if name.startswith(("tests/", "outputs/", "conf/"))]


@pytest.mark.slow
@pytest.mark.ci
def test_an_installed_wheel_plans_from_any_folder(wheel, tmp_path):
    target = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(target)
    done = subprocess.run(
        [sys.executable, "-m", "ane_sweep", "plan", "-m", "model=tiny-gpt2", "weights=random", "chunks=1,2"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(target)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.startswith("2 cells over chunks"), done.stderr
    code = "import ane_sweep; print(ane_sweep.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(target)}
    where = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert str(target) in where.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"site", "outputs"}
