"""What a newcomer meets: the start page, the short help, topics and keys; all of it at once and within 80 columns."""

import contextlib
import re
import subprocess
import sys

import pytest

from ane_sweep import verbs
from ane_sweep.__main__ import main
from ane_sweep.planner import help, schema
from ane_sweep.terminal import BAD_CONFIGURATION, OK
from ane_sweep.verbs import _pages
from ane_sweep.verbs import help as verb


def test_a_bare_command_starts_no_sweep_and_says_what_to_type(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([]) == OK and list(tmp_path.iterdir()) == []
    said = capsys.readouterr().out
    shown = re.findall(r"^  ane-sweep (\S+)", said, re.MULTILINE)
    assert len(shown) > 5 and all(word in verbs.names() or "=" in word or word == "-m" for word in shown)


@pytest.mark.parametrize("page", [_pages.START, _pages.short()], ids=["start", "help"])
def test_a_page_fits_a_terminal(page):
    assert max(map(len, page.splitlines())) <= 84
    assert len([line for line in page.splitlines() if line not in verbs.lines()]) <= 33, "apart from the verbs"


def test_the_everyday_keys_say_the_defaults_that_there_are():
    shipped = help.defaults()
    assert [(key, default) for key, _, default in _pages.EVERYDAY if shipped[key] != default] == []


def test_help_imports_next_to_nothing():
    code = (
        "import sys; before = set(sys.modules); from ane_sweep.__main__ import main; main(['--help']); "
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)), "
        "sorted({'argparse', 'dataclasses', 'inspect', 'json'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['ane_sweep'] []"


@pytest.mark.parametrize("topic", verb.topics())
def test_every_topic_is_shown_and_listed(topic, capsys):
    assert main(["help", topic]) == OK
    assert (verb.DOCS / f"{topic}.md").read_text().splitlines()[0] in capsys.readouterr().out
    assert main(["help"]) == OK and f"  {topic} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("degraded", "How a cell ends (`ane-sweep help errors`)"),
        ("psnr", "`psnr_worst_db` is that of the worst output"),
        ("gate", "A **gate** is a limit"),
        ("gate", "  gate.wait_s"),
        ("axes", "  chunks "),
        ("exit codes", "| 130 | interrupted |"),
        ("Exit code", "| 130 | interrupted |"),
        ("estimate", "An **estimate** is a latency"),
        ("latency", "Latency (`ane-sweep help kinds`)"),
        ("latency", "  latency.samples"),
        ("fallback", "elsewhere than asked"),
    ],
)
def test_a_word_that_is_no_topic_finds_its_place(words, said, capsys):
    assert main(["help", *words.split()]) == OK
    assert said in capsys.readouterr().out


def test_every_key_is_explained_one_by_one_and_together(capsys):
    assert main(["help", "keys"]) == OK
    everything = capsys.readouterr().out
    for key in schema.KEYS:
        assert help.describe_key(key) and (key.startswith("limits.") or key in everything)
    assert main(["help", "model"]) == OK
    assert "tinyllama-1.1b" in capsys.readouterr().out


@pytest.mark.parametrize("name", verbs.names())
def test_help_of_a_verb_is_the_verbs_own(name, capsys):
    with contextlib.suppress(SystemExit):
        main([name, "--help"])
    own = capsys.readouterr().out.rstrip("\n")
    assert main(["help", name]) == OK
    said = capsys.readouterr().out
    assert said.startswith(own) and "usage: ane-sweep" in own and "exit codes:" in own


def test_all_keys_begin_with_keys_and_not_with_a_hundred_models(capsys):
    assert main(["help", "keys"]) == OK
    _, *rest = capsys.readouterr().out.splitlines()
    shown = [found[1] for line in rest[:14] if (found := re.match(r"  ([a-z_]+) ", line))]
    assert shown[:4] == ["model", "variant", "chunks", "rewrite"]
    first = " ".join(" ".join(rest[:4]).split())
    assert re.search(r"`ane-sweep help model` lists all \d\d+ \(default: minilm\) variant ", first)
    assert not [line for line in rest if "tinyllama" in line or "p1_g16" in line]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["help", "mdels"], "help mdels: unknown (did you mean 'models'?); topics: adding, "),
        (["help", "placemnt"], "did you mean 'placement'?"),
        (["plan", "model=gtp2"], "model=gtp2: unknown (did you mean 'gpt2'?); choices: gpt2, "),
        (["plan", "precision=int4"], "did you mean 'int4_block32'?); choices: int4_block32, int4_block64, int4_channel, "),
        (["plan", "precision=FLOAT16"], "did you mean 'fp16'?"),
        (["plan", "compute_units=CPU_AND_NE"], "did you mean 'cpu_and_ne'?"),
        (["plan", "compute_units=ct.ComputeUnit.ALL"], "did you mean 'all'?"),
        (["plan", "runtime=referense"], "did you mean 'reference'?"),
        (["last"], "last: that is a run; `ane-sweep report last` shows it"),
        (["plan", "last"], "last: no key=value. The form is key=value"),
        (["plan", "budget_minutes=x"], "budget_minutes='x': expected a number or null"),
        (["plan", "chips=[m99]"], "known: "),
        (["plan", "latency=of"], "  latency=of: unknown (did you mean 'off'?); choices: a number, auto, off"),
        (["lint", "x.mlpackage", "--chip", "m99"], "more (`ane-sweep devices`)"),
        (["diff", "a", "b", "--min-psnr", "x"], "x: expected a number of decibels"),
        (["export", "last"], "export last: that is a run; the file to write is missing"),
        (["reprot"], "reprot: unknown word (did you mean 'report'?); verbs: report, "),
    ],
)  # fmt: skip
def test_a_wrong_word_is_answered_with_the_nearest_first_and_where_the_rest_is(
    words, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(words) == BAD_CONFIGURATION
    error = capsys.readouterr().err
    assert said in error and len(error) < 500
    if words[-1].startswith(("model", "precision")):
        assert f"more (`ane-sweep help {words[-1].partition('=')[0]}`)" in error


def test_conf_of_the_working_folder_is_found_and_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "sweep").mkdir(parents=True)
    (tmp_path / "conf" / "sweep" / "mine.yaml").write_text("# @package _global_\nsweep:\n  axes:\n    chunks: [1, 2]\n")
    words = ["plan", "model=tiny-gpt2", "weights=random", "+sweep=mine"]
    assert main(words) == OK
    assert "note: options of ./conf come before the shipped ones" in capsys.readouterr().out
    assert main(["help", "sweep"]) == OK and "mine" in capsys.readouterr().out
    (tmp_path / "other").mkdir()
    assert main([*words, "--config-dir", "other"]) == BAD_CONFIGURATION  # one folder, the one that was given
    capsys.readouterr()
    (tmp_path / "conf" / "config.yaml").write_text("another: program's\n")
    assert main(words) == BAD_CONFIGURATION and "sweep=mine: unknown" in capsys.readouterr().err
