"""README is true: its commands parse, what it names exists, its first screen is what the house promises."""

import re
import shlex
from pathlib import Path

import pytest

from ane_sweep import config, help
from ane_sweep.__main__ import VERBS
from ane_sweep.bench.__main__ import NAMES
from ane_sweep.schema import KEYS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^ +(?:.*&& )?(ane-sweep [^\n#]*?)(?:  +#.*)?$", README, re.MULTILINE)


def test_the_two_commands_are_there_to_the_letter():
    start = "python3 -m venv .venv && . .venv/bin/activate && pip install -e "
    assert f"    {start}'.[demo]' && ane-sweep -m model=minilm variant=original,split_einsum chunks=1,2\n" in README
    assert f"    {start}'.[test]' && pytest\n" in README


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_readme_is_one(command):
    words = shlex.split(command)[1:]
    if words and words[0] in VERBS and words[0] != "plan":
        return
    words = words[1:] if words and words[0] == "plan" else words
    if "--help" not in words and "--cfg" not in words and "--config-dir" not in words:
        assert config.load([word.replace("...", "x") for word in words]).cells


def test_every_benchmark_of_the_readme_exists():
    named = {name for names in re.findall(r"ane_sweep\.bench ([\w\s]+)`", README) for name in names.split()}
    assert named and named <= set(NAMES)


def test_every_file_of_the_readme_exists():
    for path in set(re.findall(r"`((?:ane_sweep|conf|tests|\.ci|\.github)/[\w./-]+)`", README)):
        assert "NAME" in path or "FAMILY" in path or (ROOT / path).exists(), path


def test_ci_runs_the_readmes_test_command():
    pattern = re.search(r"sed -n 's/(.*?)/\\1/p'", (ROOT / ".ci" / "run").read_text())
    assert pattern is not None
    assert re.search(r"^    python3 -m venv .*pytest$", README, re.MULTILINE)


def test_help_names_every_verb_and_key():
    said = help.text([])
    assert [verb for verb in VERBS if verb != "sweep" and verb not in said.split()] == []
    assert [key for key in KEYS if not key.startswith("limits.") and key not in said] == []
