"""An axis is one declaration: what one more needs is counted, and what the others say is looked at."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ane_sweep.bridge import axes, cell
from ane_sweep.bridge.cell import AXES, DECLARED, digest
from ane_sweep.bridge.rewrites import plain_values
from ane_sweep.bridge.stages import STAGES
from ane_sweep.planner import config
from ane_sweep.planner.paths import conf_dir

ROOT = Path(__file__).parent.parent
FIELDS = (  # of a cell when the keys below were written down: one more axis is one more field of every key
    "model", "family", "size", "variant", "chunks", "precision", "compute_units", "seq_len", "target", "runtime", "weights",
    "seed", "allow_pickle", "fault", "chunk_by", "own_chunks", "pipeline", "limits_for", "copies", "copies_kind",
    "copies_order", "copies_sizes", "head", "mask", "embeddings", "lm_head_splits", "norm", "pad_last_axis", "cache",
    "inputs", "numerics", "effects", "throughput", "evidence", "compiler", "device", "latency", "limits", "model_options",
    "precision_options",
)  # fmt: skip
CHANGED = [
    "copies=2", "copies_sizes=[0.9,1]", "numerics=ane", "effects=[tables]", "latency.samples=7", "model=tiny-bert",
    "weights=random",
]  # fmt: skip
KEYS = [
    (["model=tiny-gpt2", "weights=random"], "2fb68c6bbf79cf254d5c19cc2b3de624ca1ee36d828418c47045e230d089f27b"),
    (["model=gpt2", "weights=random"], "282a2eaa51318c828c32d3b35f973dd0d0373b9c2b85b42d5d07db15747d9c95"),
    (CHANGED, "c28161adb59afeb3bfddb2c424cb0f6bccd103bcaed429cce7c73506947a0de8"),
]


@pytest.mark.parametrize(("words", "key"), KEYS)
def test_records_of_earlier_nights_still_match(words, key):
    (made,) = config.load(words).cells
    values = made.as_dict()
    assert digest({name: values[name] for name in FIELDS}) == key
    late = {
        "rewrite",
        "toolchain",
        "converter",
        "torch_version",
        "compressor",
        "output_type",
        "reshape_frequency",
        "specialization",
        "low_precision_accumulation",
    }
    assert made.key == digest({name: value for name, value in values.items() if name not in late}), (
        "the key before them"
    )


def test_an_axis_that_came_late_enters_the_key_of_cells_that_set_it():
    for word in ("rewrite=ane", "specialization=fast_prediction"):
        (plain,), (made,) = (config.load(["model=tiny-gpt2", *words]).cells for words in ([], [word]))
        name, late = word.partition("=")[0], [name for name, axis in DECLARED.items() if axis.late]
        values = {key: value for key, value in made.as_dict().items() if key == name or key not in late}
        assert made.key == digest(values) != plain.key


def test_plain_values_are_the_shipped_defaults():
    shipped = {**plain_values(), **yaml.safe_load((conf_dir() / "config.yaml").read_text())}
    for name, one in DECLARED.items():
        if one.key and (one.enters or one.unhonoured or not all(pair.when for pair in one.only)):
            assert one.plain == shipped[name] and not one.key.problem(name, one.plain)


def test_what_an_axis_names_is_there():
    known = {*DECLARED, "task", "compute", "ios_target"}
    for name, one in DECLARED.items():
        assert {*one.enters, *one.shapes} <= {*STAGES, axes.RUNS, axes.LOADS}, name
        for pair in one.only:
            assert pair.other in known and all(one.key.problem(name, value) is None for value in pair.when), name


def test_a_field_that_enters_keys_needs_a_value_that_leaves_them_alone():
    with pytest.raises(TypeError, match="needs a plain value"):
        axes.axis("what for", enters=("latency",))


FIELD = """    tiling: str = axis(
        "how the loops are tiled",
        choices=("none", "rows"),
        plain="none",
        enters=("latency",),
        only=(axes.Only("cache", ("none",), "tiling={value} knows nothing of cache={cache}; use cache=none"),),
    )
"""
PLAN = """
import json, sys
sys.path.insert(0, sys.argv[1])
from planner.test_plan import planned
made = planned("-m", "model=tiny-gpt2", "weights=random", "runtime=reference", *sys.argv[2:])
tasks = [[[made.tasks[key].stage, key, made.tasks[key].label] for key in chain] for chain in made.chains.values()]
print(json.dumps([tasks, list(made.refused.values())]))
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The package with one more axis, and how to run it."""
    root = tmp_path_factory.mktemp("copy")
    for name in ("ane_sweep", "conf"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path, before, more in (
        (root / Path(cell.__file__).relative_to(ROOT), "    latency: ", FIELD),
        (root / "conf" / "config.yaml", "latency:\n", "tiling: none\n"),
    ):
        text = path.read_text()
        assert text.count(before) == 1
        path.write_text(text.replace(before, more + before))

    def python(*args: str, where: Path = root) -> subprocess.CompletedProcess:
        env = {**os.environ, "PYTHONPATH": str(where), "ANE_SWEEP_OUT": str(root / "outputs"), "COLUMNS": "200"}
        return subprocess.run([sys.executable, "-P", *args], capture_output=True, text=True, env=env, cwd=root)

    return python


@pytest.mark.slow
@pytest.mark.ci
def test_one_more_axis_is_a_field_and_a_default(copied):
    """Two files, and all of it follows: help, check, matrix, labels, keys, refusals."""
    said = copied("-m", "ane_sweep", "help", "keys").stdout
    assert (
        "tiling                 how the loops are tiled (none, rows; default: none)" in said.partition("settings:")[0]
    )
    wrong = copied("-m", "ane_sweep", "tiling=row")
    assert wrong.returncode == 2 and "tiling=row: unknown (did you mean 'rows'?); choices: none, rows" in wrong.stderr
    planned = copied("-m", "ane_sweep", "plan", "-m", "model=tiny-gpt2", "weights=random", "tiling=none,rows")
    assert planned.returncode == 0 and "2 cells" in planned.stdout and "tiling=rows" in planned.stdout


def test_an_axis_without_a_default_is_said_once(copied):
    where = "from ane_sweep.planner.paths import conf_dir; print(conf_dir())"
    conf = Path(copied("-c", where).stdout.strip()) / "config.yaml"
    kept = conf.read_text()
    conf.write_text(kept.replace("tiling: none\n", ""))
    try:
        found = copied("-m", "ane_sweep", "plan", "tiling=rows")
    finally:
        conf.write_text(kept)
    said = [line for line in found.stderr.splitlines() if "tiling" in line]
    assert (
        found.returncode == 2 and len(said) == 1 and "tiling: has no default: conf/config.yaml lacks the key" in said[0]
    )


@pytest.mark.slow
@pytest.mark.ci
def test_its_value_enters_the_stages_that_it_names_and_its_plain_value_none(copied):
    tests = str(ROOT / "tests")
    (plain, rows), refused = json.loads(copied("-c", PLAN, tests, "tiling=none,rows").stdout)
    differ = [(stage, ours != theirs) for (stage, ours, _), (_, theirs, _) in zip(plain, rows)]
    assert [stage for stage, changed in differ if changed] == ["latency"] and not refused
    labels = [label for *_, label in rows]
    assert "latency tiny-gpt2 tiling=rows" in labels and [label for label in labels if "tiling" in label] == labels[-1:]
    ((before,), _) = json.loads(copied("-c", PLAN, tests, where=ROOT).stdout)
    assert [key for _, key, _ in plain] == [key for _, key, _ in before], "the axis would make all that is stored anew"
    _, refused = json.loads(copied("-c", PLAN, tests, "tiling=none,rows", "cache=stateful").stdout)
    assert refused == ["tiling=rows knows nothing of cache=stateful; use cache=none"]


def test_the_axes_are_listed_as_they_were():
    assert AXES[:3] == ("model", "variant", "chunks") and AXES[-3:] == ("compiler", "device", "machine")
