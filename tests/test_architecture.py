"""The outside of the house: the wall between planner and worker, who may import what, and how things are added."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from ane_sweep import runner, versions

PACKAGE = Path(__file__).parent.parent / "ane_sweep"
WORKER_ROOMS = (
    "worker.py", "faults.py", "run.py", "diff.py", "stages", "compress", "models", "mil", "runtimes", "coreml_anywhere", "upstream",
)  # fmt: skip
HEAVY = {"torch", "coremltools", "transformers"}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "conf" not in path.relative_to(PACKAGE).parts[:1])


def imports(path: Path, *, top_only: bool) -> set[str]:
    """Names of the packages a file imports; top_only leaves out what is imported inside functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_only else list(ast.walk(tree))
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_wall_between_planner_and_worker(path):
    if room(path) in WORKER_ROOMS:
        assert not imports(path, top_only=False) & {"hydra", "omegaconf", "mlflow"}
    elif room(path) != "bench":
        assert not imports(path, top_only=False) & HEAVY
    if room(path) in ("stages",) or (room(path) == "runtimes" and path.parent.name == "runtimes"):
        assert not imports(path, top_only=True) & HEAVY, "heavy packages are imported inside functions here"


def test_hydra_and_mlflow_have_one_door_each():
    doors = {"hydra": set(), "omegaconf": set(), "mlflow": set()}
    for path in modules():
        for name in doors.keys() & imports(path, top_only=False):
            doors[name].add(path.relative_to(PACKAGE).as_posix())
    assert doors["hydra"] == doors["omegaconf"] == {"compose.py"}
    assert {door.split("/")[0] for door in doors["mlflow"]} == {"tracking"}


def test_planning_never_loads_the_heavy_packages(tmp_path):
    code = (
        "import sys; from ane_sweep.__main__ import main; "
        "main(['plan', '-m', 'model=tiny-gpt2', 'weights=random', 'chunks=1,2', f'out={sys.argv[1]}']); "
        "print(sorted({'torch', 'coremltools', 'transformers', 'mlflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def own_imports(path: Path) -> set[Path]:
    """Files of ours that a file imports, wherever in it; packages' own files left out."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            start = path.parents[node.level - 1] if node.level else PACKAGE.parent
            module = start.joinpath(*(node.module or "").split("."))
            found |= {module.with_suffix(".py"), *(module / f"{alias.name}.py" for alias in node.names)}
    return {file for file in found if PACKAGE in file.parents and file.is_file()}


# Words and names; and doors behind which lies what these stages do not ask for: Core ML itself, predicted plans.
NO_MATTER = {"cell.py", "errors.py", "bridge/figures.py", "bridge/task.py"}
DOORS = {"runtimes/coreml.py", "coreml_anywhere/plan.py"}


@pytest.mark.parametrize("stage", sorted(versions.CODE.keys() - {*runner.UNSTORED, "compile"}))
def test_what_a_stored_result_is_made_by_is_in_its_key(stage):
    """Else a change in it would go on being answered from the cache. (What compile leaves is Apple's compiler's.)"""
    start = PACKAGE / "stages" / f"{stage}.py"
    seen, new = {start}, [start]
    while new:
        reached = own_imports(new.pop()) - seen
        reached = {path for path in reached if path.relative_to(PACKAGE).as_posix() not in DOORS}
        seen, new = seen | reached, [*new, *reached]
    left = {path.relative_to(PACKAGE).as_posix() for path in seen - versions.code_files(stage, None)} - NO_MATTER
    assert not left, f"add to versions.CODE[{stage!r}]: {sorted(left)}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_python_that_we_start_imports_nothing_of_the_folder_it_runs_in(path):
    """Else a json.py that lies there is executed: -P or -I follows the interpreter in every command."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.List | ast.Tuple):
            for word, after in zip(node.elts, [*node.elts[1:], None]):
                command = ast.unparse(word) == "python" and isinstance(after, ast.Constant)
                if command or ast.unparse(word) == "sys.executable":
                    assert isinstance(after, ast.Constant) and after.value in ("-P", "-I"), f"{path}:{node.lineno}"


def test_adding_things_is_adding_files():
    """No list of names anywhere: a family, a runtime, a benchmark and an option are found by looking at their folder."""
    names = {
        "models": [p.stem for p in (PACKAGE / "models").glob("[a-z]*.py") if p.stem != "weights"],
        "runtimes": [p.stem for p in (PACKAGE / "runtimes").glob("[a-z]*.py")],
    }
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.List | ast.Tuple | ast.Set):
                listed = {item.value for item in node.elts if isinstance(item, ast.Constant)}
                assert not any(listed >= set(stems) for stems in names.values()), (
                    f"{path}:{node.lineno} lists all of them"
                )


def test_the_top_level_holds_nothing_else():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=PACKAGE.parent, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    if not any(tracked):
        pytest.skip("not a git checkout")
    top = {line.split("/")[0] for line in tracked if line}
    assert top <= {
        "conf", "ane_sweep", "tests", "outputs", "pyproject.toml", "README.md", ".ci", ".github", ".gitignore", "LICENSE",
    }  # fmt: skip
