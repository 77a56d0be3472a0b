"""What other packages add by entry point: found without importing it, told by name where it is broken or its name taken."""

import json
import os
import subprocess
import sys

import pytest
from plugins import installed

import ane_sweep
from ane_sweep.bridge import families, plugins
from ane_sweep.bridge.runtimes import RUNTIMES, Runtimes
from ane_sweep.errors import ConfigError, StageError
from ane_sweep.machine import syslog
from ane_sweep.planner import compose, config, versions
from ane_sweep.worker import models

CACHES = (plugins.find_plugins, families.variants, syslog.meanings, versions.code_digest, versions._content)
TINY = "model=tiny-gpt2 weights=random"
CELL = ("model=perceptron-tiny", "weights=random", "seq_len=16", "target=iOS18", "precision=p6_groups_of_8")
LINE = "plugin_example: table too large (64 x 8)"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder to install packages into."""
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield tmp_path
    forget()
    for name in [name for name in sys.modules if name.partition(".")[0] in ("plugin_example", "other")]:
        del sys.modules[name]


def forget():
    for one in CACHES:
        one.cache_clear()


def other(site, kind, name, module="other", version="1.0"):
    installed.declare(site, "other-package", version, {f"ane_sweep.{kind}": {name: module}})
    forget()


def command(site, *args, code=None):
    start = ["-m", "ane_sweep"] if code is None else ["-c", code]
    env = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *start, *args], env=env, cwd=site, capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
@pytest.mark.ci
def test_the_planner_finds_one_of_each_and_imports_none_of_it(site):
    installed.example(site)
    code = (
        "import sys; from ane_sweep.__main__ import main; from ane_sweep.machine import syslog;"
        "code = main(sys.argv[1:]); assert syslog.explain('plugin_example: table too large').source;"
        "assert not [name for name in sys.modules if 'plugin_example' in name]; sys.exit(code)"
    )
    done = command(site, "plan", "-m", *CELL, "runtime=reference,torch_one_thread", code=code)
    assert done.returncode == 0 and "2 cells over runtime" in done.stdout, done.stdout + done.stderr
    shown = [command(site, "help", key).stdout for key in ("model", "precision")]
    assert "perceptron-tiny" in shown[0] and "p6_groups_of_8" in shown[1]


def test_what_is_declared_is_known_by_its_kind(site):
    installed.example(site)
    assert "perceptron" in families.names() and families.variants("perceptron") == ["original"]
    assert models.get("perceptron").__name__ == "plugin_example.perceptron"
    assert Runtimes()["torch_one_thread"].measured.endswith("one thread of this CPU")
    assert "torch_one_thread" not in RUNTIMES, "that was read before"
    assert syslog.explain(LINE).source == "plugin-example's tests"


def test_the_code_and_the_version_of_a_plug_in_are_part_of_what_it_decides(site):
    installed.example(site)
    before = versions.code_digest("convert", "perceptron")
    predicted, ours = versions.code_digest("predict", "perceptron"), versions.code_digest("convert", "gpt2")
    (site / "plugin_example-0.3.1.dist-info").rename(site / "plugin_example-0.3.2.dist-info")
    metadata = site / "plugin_example-0.3.2.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("0.3.1", "0.3.2"))
    forget()
    newer = versions.code_digest("convert", "perceptron")
    (site / "plugin_example" / "__init__.py").write_text("WIDER = True\n")
    forget()
    assert len({before, newer, versions.code_digest("convert", "perceptron")}) == 3
    assert versions.code_digest("predict", "perceptron") == predicted, "which builds no model"
    assert versions.code_digest("convert", "gpt2") == ours


@pytest.mark.parametrize(
    ("kind", "module", "why"),
    [
        ("families", "other.perceptron", "there is no module other.perceptron"),
        ("families", "other:perceptron", "its value is the name of a module"),
        ("precisions", "json", "there is no "),
        ("runtimes", "sys", "its module has no Python source"),
        ("runtimes", "json", "expected one top-level `RUNTIME = Traits("),
    ],
)
def test_a_broken_plug_in_is_told_by_name_and_never_as_an_unknown_one(site, kind, module, why):
    other(site, kind, "mine", module)
    asks = {"families": families.source, "runtimes": Runtimes().__getitem__, "precisions": precision}[kind]
    with pytest.raises(ConfigError) as caught:
        asks("mine")
    said = str(caught.value)
    assert f"'mine' of other-package 1.0 ({module}) cannot be used: " in said and why in said and "unknown" not in said


def precision(name):
    return config.load(["model=tiny-gpt2", "weights=random", f"precision={name}"])


@pytest.mark.parametrize(
    ("text", "why"), [("VARIANTS = {", "cannot be read: "), ("x = 1\n", "has no top-level `VARIANTS")]
)
def test_a_family_that_cannot_be_read_is_told_with_its_package(site, text, why):
    (site / "other.py").write_text(text)
    other(site, "families", "mine")
    with pytest.raises(ConfigError) as caught:
        families.variants("mine")
    assert f"{site / 'other.py'} of other-package 1.0 (other) {why}" in str(caught.value)


def test_a_family_whose_package_is_gone_is_told_where_its_model_is_asked_for(site):
    other(site, "families", "perceptron", "other.perceptron")
    with pytest.raises(
        ConfigError, match=r"model=perceptron-tiny: unknown.*'perceptron' of other-package 1.0 .* cannot be"
    ):
        config.load(["model=perceptron-tiny"])


@pytest.mark.parametrize(
    ("kind", "name", "asks"),
    [
        ("families", "gpt2", lambda _: ane_sweep.plan(TINY)),
        ("runtimes", "reference", lambda name: ane_sweep.plan(f"{TINY} runtime={name}")),
        ("precisions", "p6_groups_of_8", precision),
    ],
)
def test_a_name_that_is_taken_is_refused_with_both_owners(site, kind, name, asks, monkeypatch):
    monkeypatch.chdir(site)
    installed.example(site)
    (site / "other" / "precision").mkdir(parents=True)
    (site / "other" / "__init__.py").touch()
    kept = site / "plugin_example" / "precision" / "p6_groups_of_8.yaml"
    (site / "other" / "precision" / kept.name).write_text(kept.read_text())
    other(site, kind, name)
    with pytest.raises(ConfigError) as caught:
        asks(name)
    said, first = str(caught.value), "plugin-example 0.3.1" if kind == "precisions" else "ane-sweep"
    assert f"claimed by {first}" in said and "and by other-package 1.0" in said and "uninstall" in said
    if kind == "runtimes":
        assert ane_sweep.plan(TINY).plan.chains, "what nobody asks for by its name is ours"


def test_a_plug_in_that_cannot_be_imported_costs_its_cells_and_is_named(site):
    (site / "other.py").write_text('VARIANTS = {"original": None}\nimport nothing_of_that_name\n')
    other(site, "families", "mine")
    assert families.variants("mine") == ["original"]
    with pytest.raises(StageError, match=r"'mine' of other-package 1.0 \(other\) cannot be imported: ModuleNotFound"):
        models.get("mine")


def test_rows_that_are_no_meanings_are_left_out_with_a_word(site, capsys):
    (site / "other.py").touch()
    (site / "mine.csv").write_text("pattern,says,explanation,source\nx,shouts,y,z\n")
    other(site, "log_lines", "mine")
    assert syslog.explain("failed to load ANE model") is not None and syslog.explain(LINE) is None
    assert "log lines 'mine' of other-package 1.0 (other) cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize("given", [True, False], ids=["--config-dir", "./conf"])
def test_a_folder_of_the_users_own_stands_before_a_plug_in(site, tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    installed.example(site)
    mine = tmp_path / "conf" / "precision" / "p6_groups_of_8.yaml"
    mine.parent.mkdir(parents=True)
    kept = site / "plugin_example" / "precision" / "p6_groups_of_8.yaml"
    mine.write_text(kept.read_text().replace("group_size: 8", "group_size: 4"))
    composer = compose.Composer("conf" if given else None)
    assert composer.compose(["precision=p6_groups_of_8"])["precision"]["weights"]["group_size"] == 4
    assert composer.refused("precision", "p6_groups_of_8") is None


@pytest.mark.slow
def test_a_cell_of_a_plug_in_s_model_runtime_and_precision_is_swept_and_its_record_says_whose_they_are(site):
    installed.example(site)
    quick = ("latency.repeats=1", "latency.samples=3", "gate.wait_s=0", "tracking.enabled=false", f"out={site / 'out'}")
    done = command(site, "-m", *CELL, "runtime=reference,torch_one_thread", *quick)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    (path,) = (site / "out" / "runs").glob("*/records.jsonl")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["realised"]["runtime"] for one in records] == ["reference", "torch_one_thread"]
    assert {one["toolchain"]["plugin-example"] for one in records} == {"0.3.1"}
    assert all(metric["value"] for one in records for metric in one["metrics"] if metric["name"] == "latency_median_ms")
