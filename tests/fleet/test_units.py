"""Files for systemd and launchd: their command is a scheduler's or worker's, as the same verb reads it, with absolute paths."""

import plistlib
import shlex
import shutil
import subprocess
import sys

import pytest

from ane_sweep.__main__ import main
from ane_sweep.fleet import certificates
from ane_sweep.verbs import fleet

AT = "tls://hub.local:8786"


@pytest.fixture
def write(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    certificates.make(tmp_path / "100% sure")
    monkeypatch.setenv(certificates.VARIABLE, "100% sure")

    def written(*words):
        assert main(["fleet", "write", *words]) == 0
        said = capsys.readouterr().out
        (path,) = (tmp_path / "files").iterdir()
        assert path.name in said and "then: " in said
        return path.name, path.read_bytes()

    return written


def _read(command):
    """The words of a command as the verb takes them."""
    assert command[:5] == [sys.executable, "-P", "-m", "ane_sweep", "fleet"]
    return fleet._parser().read(command[5:])


def test_a_worker_for_launchd_starts_with_the_mac_and_again_after_each_end(write, tmp_path):
    options = ["--name", "m4-a", "--port", "8790", "--prepare", "0", "--memory-gib", "8", "--store", "a store"]
    name, text = write("launchd", "worker", "files", AT, *options, "out=o u t")
    values = plistlib.loads(text)
    assert name == "ane-sweep-worker-m4-a.plist" and values["Label"] == name.removesuffix(".plist")
    assert values["RunAtLoad"] and values["KeepAlive"] and values["ProcessType"] == "Standard"
    assert values["ProgramArguments"][:2] == ["/usr/bin/caffeinate", "-i"]
    given = _read(values["ProgramArguments"][2:])
    assert (given.what, given.words, given.name, given.port, given.prepare) == ("worker", [AT], "m4-a", 8790, 0)
    assert (given.memory_gib, given.store, given.out) == (8, str(tmp_path / "a store"), tmp_path / "o u t")
    assert given.certificates == str(tmp_path / "100% sure"), "the service has another environment and folder"
    log = tmp_path / "o u t" / "fleet" / "ane-sweep-worker-m4-a.log"
    assert values["StandardOutPath"] == values["StandardErrorPath"] == str(log) and log.parent.is_dir()


def test_a_scheduler_for_systemd_is_started_again_and_may_be_stopped(write, tmp_path):
    name, text = write("systemd", "scheduler", "files")
    lines = text.decode().splitlines()
    assert name == "ane-sweep-scheduler.service" and {
        "Restart=always",
        "SuccessExitStatus=130",
        "WantedBy=default.target",
    } <= {*lines}
    (start,) = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=")]
    assert "100%% sure" in start
    given = _read(shlex.split(start.replace("%%", "%")))
    assert (given.what, given.words, given.out) == ("scheduler", [fleet.LISTEN], tmp_path / "outputs")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_itself_takes_a_worker(write, tmp_path):
    name, _ = write("systemd", "worker", "files", AT, "--name", "m4-a", "--store", "file:///mnt/a b")
    path = str(tmp_path / "files" / name)
    done = subprocess.run(["systemd-analyze", "verify", "--user", path], capture_output=True, text=True, check=False)
    assert not [line for line in done.stderr.splitlines() if name in line], done.stderr


@pytest.mark.parametrize("words", [["worker", "files", AT], ["scheduler", "files"]])
def test_what_would_fail_at_every_start_is_refused_now(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(certificates.VARIABLE, "nowhere")
    assert main(["fleet", "write", "systemd", *words]) == 2
    assert "no certificates" in capsys.readouterr().err and not list(tmp_path.iterdir())
