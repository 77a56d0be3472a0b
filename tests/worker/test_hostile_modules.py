"""What a user's module does to its process: one task, one result, one true sentence, nothing left behind."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from ane_sweep.bridge.task import Limits, TaskRequest
from ane_sweep.planner import modules
from ane_sweep.runner import isolate

HEAD = "import json, os, sys, time\nfrom torch import nn\nclass Net(nn.Module):\n    def forward(self, x):\n        "


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The reference task of a module whose forward is `body`, in a process as a sweep starts it."""
    monkeypatch.chdir(tmp_path)

    def do(body: str, timeout_s: float = 300):
        Path("nets.py").write_text(HEAD + body)
        option = {"name": "module", "path": "nets.py:Net", "inputs": {"x": [1, 4]}}
        source = modules.resolve(option, "pretrained", 0, Path("digests.json"))
        params = {
            "model": {"family": "module", "task": "tensors", "arch": dict(source.arch)},
            "weights": {"kind": source.kind, "digest": source.digest, "allow_pickle": False, "seed": 0},
            "texts": {"count": 2, "seed": 0, "text": "x", "tokenizer": None},
            "seq_len": 0,
        }
        task = TaskRequest(
            "reference", "k" * 64, params, dict(source.beside), tmp_path / "out", tmp_path / "tmp", Limits(3 << 30)
        )
        return isolate.run_task(task, tmp_path / "task", timeout_s=timeout_s, watch_memory=True)

    return do


@pytest.mark.slow
@pytest.mark.ci
def test_it_may_print_fork_and_speak_like_us_and_is_scored_all_the_same(run, tmp_path):
    fake = {"schema": 1, "stage": "reference", "key": "k" * 64, "status": "failed", "reason": "said by nobody"}
    began = time.monotonic()
    result = run(
        f"print(json.dumps({fake!r}), flush=True)\n"
        "        for _ in range(200): sys.stdout.write('x' * 1_000_000)\n"
        "        if os.fork() == 0: time.sleep(1000)\n"  # one copy stays, the other goes on with our work
        "        os.fork()\n"
        "        return x * 2\n"
    )
    assert (result.status, result.reason, result.doubts) == ("ok", None, [])
    assert time.monotonic() - began < 500
    printed = (tmp_path / "task" / "stdout.txt").stat().st_size
    assert 0 < printed <= 2 << 20
    with np.load(tmp_path / "out" / "inputs.npz") as given, np.load(tmp_path / "out" / "outputs.npz") as made:
        assert np.array_equal(2 * given["x"], made["output"])
    assert json.loads((tmp_path / "task" / "result.json").read_text())["status"] == "ok"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("os._exit(0)", "failed", "reference exited with code 0 and left no result"),
        ("os.kill(os.getpid(), 11)", "crashed", "reference crashed with SIGSEGV"),
        ("return [bytearray(1 << 30) for _ in range(1000)]", "out_of_memory", "memory"),
        ("sys.exit(0)", "failed", "its forward called sys.exit(0) (nets.py line 5, in forward)"),
        ("raise KeyboardInterrupt", "failed", "its forward raised KeyboardInterrupt (nets.py line 5, in forward)"),
        (
            "print('no MemoryError was seen', file=sys.stderr, flush=True); os._exit(3)",
            "failed",
            "exited with code 3 and left",
        ),
        ("os.write(2, b'  what():  std::bad_alloc\\n'); os.abort()", "crashed", "reference crashed with SIGABRT"),
        ("raise RuntimeError('No MemoryError: out of memory')", "failed", "raised RuntimeError: No MemoryError"),
        (
            "raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})()",
            "failed",
            "its __str__ raised ZeroDivision",
        ),
    ],
)
def test_an_end_of_its_own_making_is_told_as_what_it_was(run, body, status, said):
    result = run(body)
    assert result.status == status and said in result.reason and "\n" not in result.reason


@pytest.mark.slow
def test_one_that_never_returns_is_ended_by_its_limit_and_the_line_is_told(run):
    result = run("while True: time.sleep(1)", timeout_s=40)
    assert result.status == "timeout" and "reference had not ended after 40 s and was killed" in result.reason
    assert "nets.py" in result.reason
