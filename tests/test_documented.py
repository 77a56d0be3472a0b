"""Every thing that one can ask for is named where a user looks for it: in a topic, or in a list that is made of the declarations."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from ane_sweep import verbs
from ane_sweep.__main__ import main
from ane_sweep.bridge import families
from ane_sweep.bridge.cell import AXES
from ane_sweep.bridge.executors import EXECUTORS
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.bridge.metrics import METRICS, shown_in
from ane_sweep.bridge.rewrites import REWRITES
from ane_sweep.bridge.runtimes import RUNTIMES
from ane_sweep.bridge.stages import STAGES
from ane_sweep.placement import chips
from ane_sweep.planner import options
from ane_sweep.planner.paths import conf_dir

ROOT = Path(__file__).parent.parent
DOCS = "ane_sweep/docs/"
TEXTS = {  # what one more of each needs beside its code: kind -> (names, file, how the file names it)
    "verb": (set(verbs.names()) - {"sweep", "version"}, f"{DOCS}commands.md", r"ane-sweep {}\b"),
    "axis": (AXES, f"{DOCS}matrix.md", "`{}`"),
    "rewrite": (REWRITES, f"{DOCS}matrix.md", "`{}`"),
    "runtime": (RUNTIMES.ours, f"{DOCS}matrix.md", r"`runtime` \([^)]*\b{}\b"),
    "stage": (STAGES, f"{DOCS}inside.md", r"(?m)^\| [^|]*\b{}\b"),
    "family": (
        set(families.names()) - {"module", "onnx", "exported"},
        f"{DOCS}models.md",
        "{}",
    ),  # a net of one's own: own_models.md
}
LISTS = {  # made of the declarations: kind -> (names, the words that list them, the file that makes the list)
    "executor": (EXECUTORS, ["help", "executor.name"], "ane_sweep/planner/help.py"),
    "runtime": (RUNTIMES.ours, ["help", "runtime"], "ane_sweep/planner/help.py"),
    "precision": (options.names([conf_dir()], "precision"), ["help", "precision"], "ane_sweep/planner/help.py"),
    "size": (options.names([conf_dir()], "model"), ["help", "model"], "ane_sweep/planner/help.py"),
    "axis": (AXES, ["help", "axes"], "ane_sweep/planner/help.py"),
    "verb": (set(verbs.names()) - {"sweep"}, ["--help"], "ane_sweep/verbs/__init__.py"),
    "chip": (chips.table(), ["devices"], "ane_sweep/verbs/devices.py"),
    "metric": ([spec.search_word for spec in shown_in("best")], ["best", "nothing>=1"], "ane_sweep/search/goal.py"),
    "kind of model": (KINDS, ["plan", "model=tiny-gpt2", "model.task=nothing"], "ane_sweep/planner/help.py"),
}


def missing(names: Iterable[str], text: str, form: str = r"(?<![\w-]){}(?![\w-])") -> list[str]:
    return [name for name in names if not re.search(form.format(re.escape(name)), text)]


@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_names_each_thing_of_a_kind(kind):
    names, file, form = TEXTS[kind]
    text = (ROOT / file).read_text(encoding="utf-8")
    if kind == "family":  # gpt_bigcode is GPT-BigCode to people
        text, names = re.sub(r"[^a-z0-9`]", "", text.lower()), {name.replace("_", ""): name for name in names}
    lacking = missing(names, text, form)
    assert not lacking, f"{file} does not name the {kind} {', '.join(lacking)}: add it there"


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_that_is_made_names_each_thing_of_a_kind(kind, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, words, file = LISTS[kind]
    main(words)
    lacking = missing(names, "".join(capsys.readouterr()))
    assert not lacking, f"`ane-sweep {' '.join(words)}` does not list the {kind} {', '.join(lacking)}: see {file}"


def test_each_metric_of_the_registry_is_shown_somewhere():
    hidden = [name for name, spec in METRICS.items() if not spec.shows]
    assert not hidden, (
        f"ane_sweep/bridge/metrics.py: `shows` of {', '.join(hidden)} says nowhere; a row is for what is shown"
    )
