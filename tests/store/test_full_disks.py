"""Disks that are full, that fill up, or that may not be written: a sentence, the right exit code, and a way out."""

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import nights
import pytest

from ane_sweep import engine, native_errors
from ane_sweep.__main__ import main
from ane_sweep.bridge.record import read_records
from ane_sweep.bridge.task import TaskResult
from ane_sweep.errors import StoreError, Unfinished
from ane_sweep.store import cache as store
from ane_sweep.terminal import NOT_ALL_OK
from ane_sweep.verbs import sweep as verb

KEY = "ab" + "0" * 62


class Disk:
    """A small file system of its own."""

    def __init__(self, path: Path):
        self.path = path

    def mount(self, size: str = "4m") -> "Disk":
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", self.path], capture_output=True
        ).returncode:
            pytest.skip("this user cannot mount a tmpfs")
        return self

    def fill(self) -> None:
        with open(self.path / "filler", "wb", buffering=0) as filler:
            while True:
                try:
                    filler.write(b"x" * 4096)
                except OSError:
                    return

    def read_only(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", self.path], check=True)


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    yield Disk(folder)
    subprocess.run(["umount", "-l", folder], capture_output=True)


def cached(out: Path, size: int = 100_000) -> Path:
    with store.Store(out / "cache") as cache:
        aside = cache.stage_aside("convert", KEY)
        (aside / "weight.bin").write_bytes(b"x" * size)
        return cache.commit(aside, "convert", KEY, TaskResult("convert", KEY, "ok"))


def test_prune_is_the_remedy_for_a_full_disk(disk, capsys):
    disk.mount()
    artifact = cached(disk.path)
    disk.fill()
    assert main(["plan", "model=tiny-gpt2", "weights=random", f"out={disk.path}"]) == 2
    said = capsys.readouterr().err
    assert "no space left on device while writing" in said and "; free space or move outputs" in said
    assert main(["prune", "max-gb=0", f"out={disk.path}"]) == 0
    assert "removed 1 artifact" in capsys.readouterr().out and not artifact.exists()
    assert main(["plan", "model=tiny-gpt2", "weights=random", f"out={disk.path}"]) == 0


def test_an_artifact_goes_even_where_not_one_more_folder_can_be_made(tmp_path, monkeypatch):
    artifact = cached(tmp_path)
    with store.Store(tmp_path / "cache", writes=False) as cache:

        def full(name):
            raise StoreError("no space left on device")

        monkeypatch.setattr(cache, "scratch", full)
        assert cache.prune(max_bytes=0) == [artifact] and not artifact.exists()


VERBS = [
    (["nightly", "accept", "last"], 2), (["nightly", "write", "cron", "OUT/files"], 2), (["export", "last", "OUT/x.zip"], 2),
    (["report", "--html", "OUT/x.html"], 2), (["import", "BUNDLE"], 2), (["run", "none", "--random", "1"], 2),
    (["plan", "model=tiny-gpt2", "weights=random"], 2), (["model=tiny-gpt2", "weights=random"], 2), (["report"], 0),
    (["prune", "max-gb=1"], 0),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_every_verb_says_so_in_a_sentence(kind, disk, tmp_path, capsys):
    disk.mount()
    out = disk.path
    cached(out)
    for folder in (out, tmp_path / "other"):
        nights.write_run(folder, "20260101-000000", [nights.cell()])
    for folder in (out, tmp_path / "other"):
        info = json.loads((folder / "runs" / "20260101-000000" / "run.json").read_text())
        info |= {
            "tracking": {"uri": None, "experiment": "x", "ui": None},
            "axes": [],
            "started": "2026-01-01T00:00:00+00:00",
        }
        (folder / "runs" / "20260101-000000" / "run.json").write_text(json.dumps(info))
    assert main(["export", "last", str(tmp_path / "x.zip"), f"out={tmp_path / 'other'}"]) == 0
    disk.fill() if kind == "full" else disk.read_only()
    capsys.readouterr()
    for words, code in VERBS:
        words = [word.replace("OUT", str(out)).replace("BUNDLE", str(tmp_path / "x.zip")) for word in words]
        where = [] if words[0] == "run" else [f"out={out}"]
        ended = main([*words, *where])
        error = capsys.readouterr().err
        if (words[0], kind) == ("prune", "read-only"):
            code = 2
        if words[0] == "import":  # known here already, or new: then its run, or only its report, cannot be written
            assert ended in (1, 2), words
        else:
            assert ended == code, (words, error)
        assert (not error) == (code == 0) and "Traceback" not in error, words


def test_what_the_system_refuses_in_the_midst_of_a_sweep_leaves_it_unfinished(capsys, monkeypatch):
    def perform(*_):
        with engine.report_full_disk():
            raise OSError(errno.ENOSPC, "No space left on device", "/out/runs/x/records.jsonl")

    with pytest.raises(Unfinished):
        perform()
    monkeypatch.setattr(verb, "sweep", perform)
    assert main(["model=tiny-gpt2"]) == NOT_ALL_OK
    assert "no space left on device while writing /out/runs/x/records.jsonl; free space" in capsys.readouterr().err
    assert native_errors.explain(PermissionError(13, "Permission denied", "/x")) == "/x: Permission denied"


@pytest.mark.slow
def test_a_disk_that_fills_during_the_last_timing_costs_no_traceback_and_the_same_command_goes_on(disk):
    disk.mount("60m")
    line = [
        sys.executable, "-m", "ane_sweep", "model=tiny-gpt2", "weights=random", "seq_len=16", "latency.samples=200",
        "latency.warmup=1", "gate.wait_s=0", "runtime=torch_eager", "latency.repeats=1", "tracking.enabled=false", f"out={disk.path}",
    ]  # fmt: skip
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 200
    while not list(disk.path.glob("runs/*/tasks/latency-*/task.json")):
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    disk.fill()
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 1 and "no space left on device" in said and "Traceback" not in said, said
    os.unlink(disk.path / "filler")
    again = subprocess.run(line, capture_output=True, text=True, timeout=200)
    assert again.returncode in (0, 1, 3) and "Traceback" not in again.stderr
    newest = max((disk.path / "runs").iterdir())
    assert read_records(newest)[0].status in ("ok", "degraded"), again.stderr
