"""Ctrl-C from outside: real processes in a bare locale, interrupted as a terminal does, the whole group at once."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ane_sweep.terminal import AGAIN, KEPT

TINY = ["model=tiny-gpt2", "weights=random"]
SEARCH = [
    "best", *TINY, "seq_len=range(16,80,16)", "runtime=torch_eager", "minimise=latency_ms", "search.trials=2",
    "latency.repeats=1", "latency.samples=5", "gate.wait_s=0", "tracking.enabled=false",
]  # fmt: skip


def started(folder: Path, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "ane_sweep", *words, f"out={folder / 'out'}"],
        env={"PATH": os.environ["PATH"], "HOME": str(folder)}, cwd=folder, start_new_session=True, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # ignored behind nohup
    )  # fmt: skip


def interrupted(process: subprocess.Popen, said: str) -> list[str]:
    """The lines on standard error after Ctrl-C, which is pressed as soon as a line begins so."""
    assert process.stderr is not None
    assert any(line.startswith(said) for line in iter(process.stderr.readline, "")), "it ended before"
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err and (not out or out.endswith("\n"))
    return err.splitlines()


def seen(folder: Path) -> tuple[list[str], dict]:
    """Stamps of the runs, and what the last one says of its search."""
    runs = sorted((folder / "out" / "runs").iterdir())
    path = runs[-1] / "search.json"
    return [run.name for run in runs], json.loads(path.read_text()) if path.exists() else {}


@pytest.mark.slow
def test_a_search_that_is_interrupted_goes_on_with_its_trials(tmp_path):
    assert interrupted(started(tmp_path, *SEARCH), "trial 2")[-1] == AGAIN
    [stamp], found = seen(tmp_path)
    timings = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/runs/*/tasks/latency-*/result.json")}
    assert timings and not found
    again = started(tmp_path, *SEARCH)
    _, err = again.communicate(timeout=120)
    assert again.returncode in (0, 3), err
    assert f"going on with {stamp}, which was interrupted" in err
    stamps, found = seen(tmp_path)
    assert stamps == [stamp] and len(found["trials"]) == 2, "the trials of both, no more than were asked for"
    assert timings.items() <= {path: path.stat().st_mtime_ns for path in timings}.items(), "nothing is timed twice"


@pytest.mark.slow
def test_a_text_that_is_interrupted_ends_its_line(tmp_path):
    process = started(tmp_path, "generate", "model=tale", "prompt=Once upon a time", "samples=1000", "temperature=1")
    assert interrupted(process, "model=tale")[-1] == KEPT
