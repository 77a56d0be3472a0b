"""Completion: what a Tab offers, in a real bash, and what it imports for that."""

import shutil
import subprocess
import sys

import pytest

from ane_sweep import verbs
from ane_sweep.__main__ import main
from ane_sweep.verbs import completion


@pytest.fixture
def here(tmp_path, monkeypatch):
    for stamp in ("20260101-000000", "20260102-000000"):
        (tmp_path / "outputs" / "runs" / stamp).mkdir(parents=True)
        (tmp_path / "outputs" / "runs" / stamp / "run.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANE_SWEEP_OUT", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["rep"], ["report"]),
        (["chunk"], ["chunk", "chunks=", "chunk_by="]),
        (["plan", "model=tiny-gpt2", "varia"], ["variant="]),
        (["-m", "variant="], ["variant=original", "variant=split_einsum", "variant=split_einsum_v2"]),
        (["-m", "variant=original,"], ["variant=original,split_einsum", "variant=original,split_einsum_v2"]),
        (["-m", "model=minilm", "model=tinyll"], ["model=tinyllama-1.1b"]),
        (["precision=int4_b"], ["precision=int4_block32", "precision=int4_block64"]),
        (["runtime=tor"], ["runtime=torch_eager", "runtime=torch_mps"]),
        (["tracking.enabled="], ["tracking.enabled=true", "tracking.enabled=false"]),
        (["+sweep=nigh"], ["+sweep=nightly"]),
        (["report", ""], ["last", "20260102-000000", "20260101-000000"]),
        (["get", "2026010"], ["20260102-000000", "20260101-000000"]),
        (["report", "--ht"], ["--html"]),
        (["generate", "last"], ["last"]),
        (["generate", "varia"], ["variant="]),
        (["classify", "variant=sp"], ["variant=split_einsum", "variant=split_einsum_v2"]),
        (["generate", "--co"], ["--compare"]),
        (["lint", "--chi"], ["--chip"]),
        (["help", "placem"], ["placement"]),
        (["completion", "f"], ["fish"]),
        (["lint", "mod"], []),
    ],
)
def test_a_tab_offers_what_may_stand_there(line, expected, here):
    assert completion.words(line) == expected


def test_every_flag_that_a_verb_has_is_offered():
    for verb in set(verbs.names()) - {"sweep", "plan", "help"}:
        assert set(completion.words([verb, "-"])) >= {"--help"}
    for verb, flag in (("list", "--json"), ("doctor", "--json"), ("report", "--drift"), ("diff", "--input")):
        assert flag in completion.words([verb, "--"])


def test_a_tab_imports_nothing_heavy(here):
    code = (
        "import sys; from ane_sweep.__main__ import main; main(['completion', 'words', '--', 'model=t']); "
        "main(['completion', 'words', '--', 'report', '']); "
        "print(sorted({'hydra', 'omegaconf', 'mlflow', 'rich', 'numpy', 'pandas', 'torch', 'yaml', 'msgspec', 'jinja2'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.fixture
def command(here):
    """`ane-sweep` as a command of this Python."""
    (here / "bin").mkdir()
    script = here / "bin" / "ane-sweep"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m ane_sweep "$@"\n')
    script.chmod(0o755)
    return here


BASH = """
PATH="$PWD/bin:$PATH"; eval "$(ane-sweep completion bash)"
COMP_LINE="$1"; COMP_POINT=${#1}
read -ra COMP_WORDS <<< "$2"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_ane_sweep; printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "broken", "expected"),
    [  # as bash breaks it: = and : are words of their own
        ("ane-sweep rep", "ane-sweep rep", ["report"]),
        ("ane-sweep variant=", "ane-sweep variant =", ["original", "split_einsum", "split_einsum_v2"]),
        (
            "ane-sweep -m variant=original,s",
            "ane-sweep -m variant = original,s",
            ["original,split_einsum", "original,split_einsum_v2"],
        ),
        ("ane-sweep report 20260101", "ane-sweep report 20260101", ["20260101-000000"]),
    ],
)
def test_bash_completes(line, broken, expected, command):
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", line, broken], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split("\n")[:-1] == expected, done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_another_shell_reads_its_lines(shell, command, capsys):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert main(["completion", shell]) == 0
    subprocess.run([shell, "-n"], input=capsys.readouterr().out, text=True, check=True, timeout=60)


def test_fish_completes(command):
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    line = 'set -x PATH $PWD/bin $PATH; ane-sweep completion fish | source; complete -C "ane-sweep rep"'
    done = subprocess.run(["fish", "-N", "-c", line], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["report"]
