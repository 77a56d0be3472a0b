"""Files for schedulers, as far as Linux can tell: parsed by what would read them, and their command is ours to the word."""

import json
import plistlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from ane_sweep.__main__ import main
from ane_sweep.errors import ConfigError
from ane_sweep.nightly import files


@pytest.fixture
def job(tmp_path):
    """A folder and an override with everything that shells, systemd, cron and YAML give a meaning to."""
    return files.job(tmp_path / "out 100% $HOME", "03:05", ["+sweep=nightly", "weights='/a b'", "model=it's"])


def test_what_is_asked_for_is_what_runs(job):
    assert job.command[:4] == [sys.executable, "-P", "-m", "ane_sweep"] and job.command[-1] == f"out={job.out}"
    assert files.job(job.out, "0:00", []).command[4] == "+sweep=nightly"
    for wrong in ("25:00", "3", "03:60", "x:y"):
        with pytest.raises(ConfigError, match="time of day"):
            files.job(job.out, wrong, [])


def test_launchd(job):
    values = plistlib.loads(files.launchd(job)[f"{files.LABEL}.plist"].encode())
    assert values["ProgramArguments"] == ["/usr/bin/caffeinate", "-i", *job.command] and values["Label"] == files.LABEL
    assert values["StartCalendarInterval"] == {"Hour": 3, "Minute": 5}
    assert set(values) <= {
        "Label",
        "ProgramArguments",
        "StartCalendarInterval",
        "ProcessType",
        "StandardOutPath",
        "StandardErrorPath",
    }


def test_cron(job):
    (line,) = files.cron(job).values()
    minute, hour, *days, rest = line.rstrip("\n").split(" ", 5)
    assert (minute, hour, days) == ("5", "3", ["*"] * 3)
    assert "%" not in rest.replace("\\%", "")
    words = shlex.split(rest.replace("\\%", "%"))
    assert words[: len(job.command)] == job.command and words[len(job.command)] == ">>" and words[-1] == "2>&1"


def test_github(job):
    (text,) = files.github(job).values()
    flow = yaml.safe_load(text)
    on = flow.get("on", flow.get(True))  # YAML 1.1 reads `on` as a truth value
    assert on["schedule"] == [{"cron": "5 3 * * *"}] and flow["permissions"] == {"contents": "read"}
    steps = {step.get("name"): step for step in flow["jobs"]["nightly"]["steps"]}
    own = ["latency.repeats=auto", "nightly.cache_gb=4"]
    assert shlex.split(steps["Tonight"]["run"]) == ["ane-sweep", *job.command[4:-1], *own]
    assert flow["jobs"]["nightly"]["runs-on"] == "ubuntu-latest"
    nights = [step for step in flow["jobs"]["nightly"]["steps"] if "actions/cache" in step.get("uses", "")]
    assert [step["with"]["path"] for step in nights] == ["outputs", "outputs"] and nights[1]["if"] == "always()"


def test_a_workflow_is_for_anybodys_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (text,) = files.github(files.job(tmp_path / "out", "03:05", ["+sweep=nightly", "latency.repeats=2"])).values()
    paths = {str(tmp_path), str(Path.home()), sys.prefix, str(Path(files.__file__).parents[2]), tempfile.gettempdir()}
    assert not [path for path in paths if path in text], "nothing of this machine"
    assert not re.search(r"(?<![:/\w.])/[\w.-]+/", text.replace("actions/", "")), "nor any absolute path"
    steps = {step.get("name"): step for step in yaml.safe_load(text)["jobs"]["nightly"]["steps"]}
    assert shlex.split(steps["Install"]["run"]) == ["pip", "install", "ane-sweep[run]"]
    assert steps["Tonight"]["run"].split() == ["ane-sweep", "+sweep=nightly", "latency.repeats=2", "nightly.cache_gb=4"]


def test_a_workflow_installs_the_checkout_it_lies_in_or_the_git_commit_of_this_install(tmp_path, monkeypatch):
    """Only in its own .github: the workflow that was written elsewhere from inside the checkout installed it too."""
    ours, theirs = tmp_path / "ours" / ".github" / "workflows", tmp_path / "ours"
    ours.mkdir(parents=True)
    (theirs / "pyproject.toml").write_text('[project]\nname = "ane-sweep"\n')
    monkeypatch.chdir(theirs)
    for folder, said, then in ((ours, True, "this repository alone"), (theirs, False, "of any repository")):
        (path,) = files.write("github", folder, files.job(tmp_path / "out", "03:05", []))
        assert ("pip install -e" in path.read_text()) == said and then in files.next_step("github", folder)
    source = {"url": "https://jane:s3cret@example.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    monkeypatch.setattr(
        files.metadata, "distribution", lambda _: SimpleNamespace(read_text=lambda _: json.dumps(source))
    )
    text = files.github(files.job(tmp_path, "03:05", []))[f"{files.LABEL}.yml"]
    assert "example.org/a.git@abc" in text and "s3cret" not in text


def test_systemd_says_the_command_in_its_own_grammar(job):
    service = files.systemd(job)[f"{files.LABEL}.service"]
    (line,) = [line for line in service.splitlines() if line.startswith("ExecStart=")]
    words = shlex.split(line.removeprefix("ExecStart="), posix=True)
    assert [word.replace("%%", "%").replace("$$", "$") for word in words] == job.command


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_itself_takes_them(job, tmp_path):
    for name, text in files.systemd(job).items():
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / f"{files.LABEL}.{kind}") for kind in ("service", "timer")]
    done = subprocess.run(["systemd-analyze", "verify", "--user", *paths], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if files.LABEL in line]
    assert not ours, done.stderr
    when = subprocess.run(
        ["systemd-analyze", "calendar", "*-*-* 03:05:00"], capture_output=True, text=True, check=False
    )
    assert when.returncode == 0


@pytest.mark.parametrize("kind", files.KINDS)
def test_the_verb_writes_them(kind, tmp_path, capsys):
    assert main(["nightly", "write", kind, str(tmp_path / "files"), "at=01:15", f"out={tmp_path / 'out'}"]) == 0
    written = sorted(path.name for path in (tmp_path / "files").iterdir())
    assert written and all(name.startswith(files.LABEL) for name in written)
    assert (tmp_path / "out" / "nightly").is_dir() is (kind != "github") and "files/" in capsys.readouterr().out


def test_what_the_verb_refuses(tmp_path, capsys):
    here = [f"out={tmp_path}"]
    for args, said in (
        (["write", "crond", str(tmp_path)], "choices: systemd, launchd, cron, github"),
        (["write", "cron", str(tmp_path), "at=9"], "time of day"),
        (["write", "cron", str(tmp_path), *here, "--", "model=tiny-gpt2"], "add +sweep=nightly"),
        (["write", "cron", str(tmp_path), *here, "--", "+sweep=nightlyy"], "nightlyy"),
        (["wriet"], "expected nothing, accept"),
        (["accept"], "no sweep"),
    ):
        assert main(["nightly", *args, *([] if "--" in args else here)]) == 2
        assert said in capsys.readouterr().err
    assert main(["nightly", *here]) == 0 and "no night yet" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("kind", files.KINDS)
@pytest.mark.parametrize("name", ["a\nExecStart=evil", "a\rb", "a\x1bb", "a\u2028b", "a\udcffb"])
def test_a_word_that_would_break_a_line_is_refused_before_anything_is_written(kind, name, tmp_path, capsys):
    for out, more in ((tmp_path / name, []), (tmp_path, ["--", "+sweep=nightly", f"tracking.experiment='{name}'"])):
        assert main(["nightly", "write", kind, str(tmp_path / "files"), f"out={out}", *more]) == 2
        assert "cannot stand in these files" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("kind", files.KINDS)
@pytest.mark.parametrize(
    "word",
    [
        "tracking.uri=https://jane:s3cret@host:5000", "tracking.uri=postgresql://jane:s3/cret@host/db", "store=https://s3cret@host/x",
        "tracking.uri=https://host/?access_token=s3cret", "store=sftp://jane:s3cret@host/x",
    ],
)  # fmt: skip
def test_a_password_is_refused_before_anything_is_written(kind, word, tmp_path, capsys):
    words = ["nightly", "write", kind, str(tmp_path / "files"), f"out={tmp_path / 'out'}", "--", "+sweep=nightly"]
    assert main([*words, word.replace("=", "='", 1) + "'"]) == 2
    said = capsys.readouterr()
    assert "password or token in an address" in said.err and "s3" not in said.out + said.err
    assert not list(tmp_path.rglob("ane-sweep-nightly*"))


def test_a_store_may_name_its_user(tmp_path):
    assert (
        files.job(tmp_path, "01:00", ["store=sftp://ada@nas.local/srv"]).command[-2] == "store=sftp://ada@nas.local/srv"
    )
