"""What a stage's version is made of: its code, along the imports, and nothing that decides no result of it."""

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from ane_sweep.bridge.programs import DEFAULT
from ane_sweep.bridge.stages import ALL
from ane_sweep.planner import versions

PACKAGE = versions.PACKAGE
ASKED = """
import json
from ane_sweep.planner import versions
from ane_sweep.bridge.stages import ALL
found = {stage: versions.code_digest(stage, "gpt2") for stage in ALL}
found |= {f"score {name}": versions.code_digest("score", "gpt2", name) for name in ("reference", "coreml", "torch_eager")}
print(json.dumps(found))
"""


@pytest.fixture
def changed(tmp_path) -> Callable[..., set[str]]:
    """changed(file, old, new) -> the stages whose version that gives another value, in a copy of the package."""
    shutil.copytree(PACKAGE, tmp_path / "ane_sweep", ignore=shutil.ignore_patterns("__pycache__"))

    def digests() -> dict[str, str]:
        command = [sys.executable, "-P", "-c", ASKED]
        done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    before = digests()

    def change(file: str, old: str = "", new: str = "# another line\n") -> set[str]:
        path = tmp_path / "ane_sweep" / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1) if old else text + new)
        after = digests()
        path.write_text(text)
        return {stage for stage in after if after[stage] != before[stage]}

    return change


def test_every_module_of_kernels_is_part_of_a_score_s_version():
    """Modules that are imported by a computed name would not be: a changed kernel would then leave cached scores as they are."""
    files = versions.code_files("score", None, "reference", DEFAULT, ())
    kernels = {
        path for path in (PACKAGE / "reference").glob("*.py") if re.search(r"^@(op|kernel)\(", path.read_text(), re.M)
    }
    assert len(kernels) > 10 and kernels <= files


@pytest.mark.slow
@pytest.mark.ci
def test_a_change_in_what_a_stage_uses_is_another_version_and_nothing_else_is(changed):
    assert changed("worker/stages/convert.py") == {"convert"}
    assert {"convert", "compress", "calibrate"} <= changed("worker/programs/mlprogram/size.py")
    assert not changed("worker/programs/mlprogram/size.py") & {"predict", "chunk", "reference", "compile"}
    assert {"reference", "convert", "score torch_eager"} <= changed("worker/models/gpt2.py"), (
        "the family that was asked for"
    )
    assert {"reference", "convert", "score torch_eager"} <= changed("worker/models/_decoder.py"), (
        "and what that is made of"
    )
    assert not changed("worker/models/bert.py"), "another family decides nothing"
    assert changed("data/passage.txt") == {"reference"}
    assert {"chunk", "predict"} <= changed("placement/data/rules.json", " ", "  ")
    assert {"score reference", "calibrate"} <= changed("reference/linear.py")
    assert not changed("reference/linear.py") & {"reference", "convert", "compress", "chunk", "predict", "compile"}
    coreml = changed("worker/runtimes/coreml.py")
    assert "score coreml" in coreml and not coreml & {
        "score",
        "score reference",
        "score torch_eager",
        "calibrate",
        "compile",
    }


@pytest.mark.slow
@pytest.mark.ci
def test_words_names_and_declarations_decide_nothing(changed):
    assert changed("worker/stages/convert.py", "timeout_s=7200", "timeout_s=60") == set()
    assert changed("worker/runtimes/torch_mps.py", 'hardware="Apple"', 'hardware="CPU"') == set()
    for file in (
        "planner/help.py",
        "bridge/cell.py",
        "bridge/axes/__init__.py",
        "errors.py",
        "report/table.py",
        "bridge/stages.py",
    ):
        assert changed(file) == set(), file


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_import_is_overlooked(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            start = path.parents[node.level - 1] if node.level else PACKAGE.parent
            module = start.joinpath(*(node.module or "").split("."))
            found |= {module.with_suffix(".py"), *(module / f"{alias.name}.py" for alias in node.names)}
    assert {file for file in found if PACKAGE in file.parents and file.is_file()} <= versions.imported(path)


@pytest.mark.parametrize("stage", ALL)
def test_what_a_stage_names_is_there(stage):
    assert all(list(PACKAGE.glob(pattern)) for pattern in ALL[stage].reads)
    assert all(versions._file(name) for name in versions.DECIDE_NOTHING)
