"""README and its topics (ane_sweep/docs/) are true: their commands parse, what they name exists, README stays short."""

import json
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ane_sweep import verbs
from ane_sweep import words as command
from ane_sweep.__main__ import main
from ane_sweep.bridge.cell import AXES
from ane_sweep.planner import config, free, help
from ane_sweep.planner.schema import KEYS
from ane_sweep.search import goal
from ane_sweep.terminal import EXIT_CODES
from ane_sweep.verbs import _pages
from tests.bench.__main__ import NAMES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
TOPICS = sorted((ROOT / "ane_sweep" / "docs").glob("*.md"))
BENCHES = sorted((ROOT / "tests" / "bench").glob("*.md"))
TEXTS = {path: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *TOPICS, *BENCHES)}
ALL = "\n".join(TEXTS.values())
COMMANDS = sorted(set(re.findall(r"^ {4,}(?:.*&& )?(ane-sweep [^\n#]*?)(?: +#.*)?$", ALL, re.MULTILINE)))
PLACEHOLDERS = ("NAME", "FAMILY", "STAMP", "KIND")


def named(pattern: str, text: str = ALL) -> set[str]:
    """What stands at a pattern's group; lines are joined, since a line may break within code."""
    return set(re.findall(pattern, re.sub(r"\s+", " ", text)))


def test_the_two_commands_are_there_to_the_letter():
    start = "python3 -m venv .venv && . .venv/bin/activate && pip install -e "
    assert f"    {start}'.[demo]' && ane-sweep -m model=minilm variant=original,split_einsum chunks=1,2\n" in README
    assert f"    {start}'.[test]' && pytest\n" in README


def test_readme_is_short():
    assert len(README.split()) <= 1500
    assert len(README.splitlines()) <= 150


def test_its_first_screen_has_the_command_and_the_table_that_it_prints():
    first = README.splitlines()[:20]
    assert [line for line in first if line.startswith("    ") and "ane-sweep -m" in line]
    assert len([line for line in first if line.startswith("| minilm |")]) == 4


@pytest.mark.parametrize("path", TOPICS, ids=lambda path: path.name)
def test_a_topic_has_a_title_and_a_sentence_and_is_linked(path):
    title, sentence, _ = TEXTS[path].split("\n\n", 2)
    assert re.fullmatch(r"# [A-Z][^\n]*", title)
    assert sentence[0].isupper() and sentence.endswith(".") and ". " not in sentence and "\n" not in sentence
    assert f"| [{title[2:]}](ane_sweep/docs/{path.name}) |" in README


CKPT = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2,
        "vocab_size": 99, "n_positions": 512}  # fmt: skip


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_is_one(line, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("ckpt").mkdir()
    Path("ckpt/config.json").write_text(json.dumps(CKPT))
    words = shlex.split(line)[1:]
    verb = words.pop(0) if words[0] in verbs.names() else "sweep"
    if verb == "best":
        words = goal.parse([word for word in words if word != "--explain"])[1]
        if (space := free.space(words)) is not None:
            words = space.trial(next(space.middles()))
    elif verb not in ("sweep", "plan"):
        end = words.index("--") if "--" in words else len(words)
        read = parser(verb, monkeypatch).read(words[:end])
        words = getattr(read, "matrix", []) + words[end + 1 :]  # a sweep's keys, and what a nightly starts
        words = ["-m", *words] if getattr(read, "compare", False) is True else words
    if not {"--help", "--cfg", "--config-dir"} & set(words):
        assert config.load(words).cells


def parser(verb: str, monkeypatch) -> command.Parser:
    """A verb's own, taken where it would read its words."""
    made = []

    def read(self, args):
        made.append(self)
        raise SystemExit(0)

    with monkeypatch.context() as patch:
        patch.setattr(command.Parser, "read", read)
        main([verb])
    return made[0]


def test_there_are_commands_of_every_verb():
    assert {line.split()[1] for line in COMMANDS} >= set(verbs.names()) - {"sweep", "version", "import"}


def test_every_command_within_a_sentence_begins_with_a_verb_or_a_key():
    for line in named(r"`(?:uv run [^`]*)?ane-sweep ([^`]+)`"):
        first = line.split()[0]
        assert first in {*verbs.names(), "VERB", "..."} or "=" in first or first.startswith("-"), line


def test_every_module_that_is_run_exists():
    for module in named(r"`(?:[^`]* )?python -m ([\w.]+)"):
        assert find_spec(module) is not None, module


def test_every_benchmark_exists():
    benchmarks = {name for names in named(r"tests\.bench ([\w ]+)`") for name in names.split()}
    assert benchmarks and benchmarks <= set(NAMES)
    assert benchmarks == set(NAMES), "FIGURES.md lists them"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_file_that_is_named_exists(path):
    for file in named(r"(?<![\w./-])((?:ane_sweep|conf|tests|\.ci|\.github)/[\w./-]*\w/?)", TEXTS[path]):
        assert any(word in file for word in PLACEHOLDERS) or (ROOT / file).exists(), file


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_link_leads_to_a_file(path):
    for link in named(r"\]\(([^)#\s]+)", TEXTS[path]):
        assert "://" in link or (path.parent / link).is_file(), link


def test_what_code_says_of_a_topic_is_there():
    """Docstrings and messages name topics by their path, and README by nothing that was moved out of it."""
    for path in [*(ROOT / "ane_sweep").rglob("*.py"), *(ROOT / "conf").rglob("*.yaml"), ROOT / "pyproject.toml"]:
        text = path.read_text(encoding="utf-8")
        for topic in named(r"\bdocs/(\w+\.md)", text):
            assert (ROOT / "ane_sweep" / "docs" / topic).is_file(), f"{path}: {topic}"
        assert not named(r"(\(README,|(?<!safetensors, )README \"|see the README)", text), path


@pytest.mark.skipif(sys.platform == "darwin", reason="Core ML is here")
def test_the_stages_that_readme_calls_unavailable_are_those_of_a_plan(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "model=tiny-gpt2", "weights=random", "--json"]) == 0
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    assert [task["stage"] for task in tasks if task["unavailable"]] == ["compile", "place"]
    assert "load" not in {task["stage"] for task in tasks}
    said = "`compile` and `place` are recorded as `unavailable`, and a record has no stage `load`"
    assert said in re.sub(r"\s+", " ", README)


def test_ci_runs_the_readmes_test_command():
    pattern = re.search(r"sed -n 's/(.*?)/\\1/p'", (ROOT / ".ci" / "run").read_text())
    assert pattern is not None
    assert re.search(r"^    python3 -m venv .*pytest$", README, re.MULTILINE)


def test_help_names_every_verb_and_key():
    said, everything = _pages.short(), help.keys()
    assert [verb for verb in verbs.names() if verb != "sweep" and verb not in said.split()] == []
    assert [key for key in KEYS if not key.startswith("limits.") and key not in everything] == []


def test_the_texts_name_every_verb_axis_and_exit_code_and_no_key_that_is_not_there():
    words = named(r"`(?:ane-sweep )?([a-z]+)\b") | {line.split()[1] for line in COMMANDS}
    assert set(verbs.names()) - {"sweep", "version"} <= words
    assert [axis for axis in AXES if not re.search(rf"`{axis}\b", ALL)] == []
    assert [code for code in EXIT_CODES if f"\n| {code} | {EXIT_CODES[code]} |" not in ALL] == []
    groups = {key.split(".")[0] for key in KEYS if "." in key}
    for key in named(rf"`((?:{'|'.join(sorted(groups))})\.[\w.]+)"):
        assert key in KEYS or key.startswith("limits.STAGE."), key
