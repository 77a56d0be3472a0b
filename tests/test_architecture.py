"""The house from outside: its floors, the wall between planner and worker, and what a Python that we start may import."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "ane_sweep"
HEAVY = {"torch", "coremltools", "transformers"}
PLANNERS = {"hydra", "omegaconf", "mlflow"}
# A room imports from floors below its own, wherever in a module the import stands.
FLOORS = (
    {"errors", "native_errors", "memory_limits", "csv_files"},
    {"mil", "stats"},
    {"hwx", "reference"},
    {"placement"},
    {"outward", "folders", "data"},
    {"terminal", "installed", "tables"},
    {"bridge"},
    {"words", "machine", "fix"},
    {"coreml_anywhere", "hazards"},
    {"store"},
    {"fleet"},
    {"planner"},
    {"runner", "worker"},
    {"results"},
    {"compare"},
    {"report", "tracking"},
    {"bundles"},
    {"ci"},
    {"engine"},
    {"nightly", "search", "talk", "calibration"},
    {"api"},
    {"verbs"},
    {"__main__"},
)
# Libraries: whoever knows nothing of sweeps can use them. They import each other and the lowest floor.
LIBRARIES = {"mil", "reference", "hwx", "stats", "placement"}
WORKER_ROOMS = ("worker", "reference", "coreml_anywhere")
# these run a program themselves, with the reference runtime
IN_PROCESS = {
    "verbs.run", "verbs.diff", "verbs._asset_diff", "verbs.fix", "verbs.lint", "verbs._hazards", "fix.driver", "fix.proof",
    "fix.host_proof", "fix.need", "fix.trials", "fix.whole",
    "hazards.running", "hazards.rules.fp16_range", "hazards.rules.effects_part", "",
}  # fmt: skip


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "conf" not in path.relative_to(PACKAGE).parts[:1])


def name(path: Path) -> str:
    """Dotted, within the package: `planner.tasks`; a package's own file by the package's name."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


NAMES = {name(path): path for path in modules()}


def room(path: Path) -> str:
    return name(path).partition(".")[0]


@cache
def imports(path: Path, *, top_only: bool = False) -> frozenset[str]:
    """Names of the packages a file imports; top_only leaves out what is imported inside functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_only else list(ast.walk(tree))
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return frozenset(module.split(".")[0] for module in found)


@cache
def own(module: str) -> frozenset[str]:
    """Modules of ours that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(NAMES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ane_sweep":
            base = (node.module or "").removeprefix("ane_sweep").removeprefix(".")
            both = [(f"{base}.{alias.name}".removeprefix("."), base) for alias in node.names]
            found |= {full if full in NAMES else base for full, base in both}
        elif isinstance(node, ast.Import):
            named = (alias.name.removeprefix("ane_sweep.") for alias in node.names)
            found |= {module for module in named if module in NAMES}
    return frozenset(found - {""})


def packages(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def reached(module: str) -> set[str]:
    """The modules that it imports, and those that they import, and so on."""
    found, new = {module}, [module]
    while new:
        at = new.pop()
        fresh = own(at) - found
        found, new = found | fresh, [*new, *fresh]
    return found


def test_every_import_is_absolute_and_every_room_has_a_floor():
    for module, path in NAMES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [n.lineno for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level], module
    assert {room(path) for path in modules()} - {""} == set().union(*FLOORS)


@pytest.mark.parametrize("module", NAMES)
def test_data_runs_one_way(module):
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    here = module.partition(".")[0]
    for other in own(module):
        there = other.partition(".")[0]
        assert here in (there, "") or floor[there] < floor[here], f"{module} imports {other}"


@pytest.mark.parametrize("module", [name for name in NAMES if name.partition(".")[0] in LIBRARIES])
def test_a_library_imports_libraries_and_errors_alone(module):
    assert {other.partition(".")[0] for other in own(module)} <= LIBRARIES | FLOORS[0]


def test_no_module_imports_itself_by_way_of_others():
    for module in NAMES:
        behind = set().union(*map(reached, own(module)), set())
        assert module not in behind, f"{module} is among what it imports"


@pytest.mark.parametrize("module", NAMES)
def test_the_wall_between_planner_and_worker(module):
    """Followed through modules, not only for what a file imports itself."""
    everything = reached(module)  # and the packages that these lie in, whose own files are run first
    everything |= set().union(*(reached(package) for other in everything for package in packages(other)))
    brought = set().union(*(imports(NAMES[other]) for other in everything))
    if module.partition(".")[0] in WORKER_ROOMS:
        assert not brought & PLANNERS
    elif module not in IN_PROCESS:
        assert not brought & HEAVY
        assert not [other for other in everything if other.partition(".")[0] == "worker"]


@pytest.mark.parametrize("module", NAMES)
def test_the_package_imports_nothing_of_the_tests(module):
    assert "tests" not in imports(NAMES[module])


def test_the_stand_in_has_one_seam():
    """Scripts, and what plays them, lie in the tests; one module of the product names that plug-in, and the worker alone a fault."""
    naming = [module for module, path in NAMES.items() if "tests.stand_in" in path.read_text(encoding="utf-8")]
    assert naming == ["machine.stand_in"]
    assert not [module for module in NAMES if "script" in module.rpartition(".")[2]]
    reading = [
        module
        for module, path in NAMES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr == "fault" and ast.unparse(node.value) in ("cell", "task"))
        or (isinstance(node, ast.Call) and node.args and ast.unparse(node.args[0]) == "'fault'")
    ]
    assert set(reading) == {"worker.faults"}


def test_hydra_mlflow_and_dask_have_one_door_each():
    doors = {"hydra": set(), "omegaconf": set(), "mlflow": set(), "distributed": set(), "dask": set()}
    for path in modules():
        for name in doors.keys() & imports(path):
            doors[name].add(path.relative_to(PACKAGE).as_posix())
    assert doors["hydra"] == doors["omegaconf"] == {"planner/compose.py", "planner/option_sources.py"}
    assert {door.split("/")[0] for door in doors["mlflow"]} == {"tracking"}
    assert doors["distributed"] == {"fleet/link.py", "fleet/serve.py"} and doors["dask"] == {"fleet/link.py"}


def test_planning_never_loads_the_heavy_packages(tmp_path):
    code = (
        "import sys; from ane_sweep.__main__ import main; "
        "main(['plan', '-m', 'model=tiny-gpt2', 'weights=random', 'chunks=1,2', f'out={sys.argv[1]}']); "
        "print(sorted({'torch', 'coremltools', 'transformers', 'mlflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


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
        "models": [p.stem for p in (PACKAGE / "worker" / "models").glob("[a-z]*.py") if p.stem != "weights"],
        "runtimes": [p.stem for p in (PACKAGE / "worker" / "runtimes").glob("[a-z]*.py")],
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
        ".pre-commit-hooks.yaml",
    }  # fmt: skip
