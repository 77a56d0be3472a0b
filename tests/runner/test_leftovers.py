"""Processes that a task's code detaches end with the task, however the task ends."""

import os
import subprocess
import sys
import threading
import time

import psutil
import pytest
from rooms import Room

from ane_sweep.machine import processes
from ane_sweep.runner.fork_server import ForkServers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
# Each leaves a process of another session and group, whose parent has ended, and notes its pid.
DETACHED = """
def detach(run):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(params["pids"]).open("a").write(f"{os.getpid()}\\n")
            run()
        os._exit(0)
    os.wait()
SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(99)"]
Path(params["pids"]).touch()
detach(lambda: time.sleep(99))
detach(lambda: os.execv(SLEEP[0], SLEEP))
if params["bare"]: detach(lambda: os.execve(SLEEP[0], SLEEP, {}))
while len(Path(params["pids"]).read_text().split()) < 2 + params["bare"]: time.sleep(0.01)
"""
ENDS = {
    "ok": "return StageResult()",
    "failed": "raise ValueError('no')",
    "exit": "os._exit(3)",
    "crash": "os.kill(os.getpid(), 11)",
    "killed": "os.kill(os.getpid(), 9)",
    "timeout": "time.sleep(99)",
}


@pytest.fixture(params=["cold", pytest.param("warm", marks=pytest.mark.slow)])
def room(request, tmp_path):
    if request.param == "cold":
        yield Room(tmp_path)
        return
    with ForkServers() as fork_servers:
        yield Room(tmp_path, fork_servers)


def left_of(text: str) -> list[int]:
    deadline = time.monotonic() + 2
    while True:
        left = [pid for pid in map(int, text.split()) if psutil.pid_exists(pid)]
        left = [pid for pid in left if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("end", [pytest.param(end, marks=pytest.mark.ci) if end != "timeout" else end for end in ENDS])
def test_what_a_task_detaches_ends_with_it(room, end):
    pids = room.base / "pids"
    # Of a dead process started cold, what it detached is found by its environment alone (docs/errors.md).
    bare = room.fork_servers is not None or end in ("ok", "failed", "timeout")
    result = room.run(
        DETACHED + ENDS[end], params={"pids": str(pids), "bare": bare}, timeout_s=8 if end == "timeout" else 60
    )
    started = pids.read_text()
    assert len(started.split()) == 2 + bare, result.reason
    left = left_of(started)
    for pid in left:
        os.kill(pid, 9)
    assert left == []


def test_what_another_task_has_detached_is_left_alone_until_that_one_ends(room):
    (room.base / "other").mkdir()
    other, hold = Room(room.base / "other", room.fork_servers), room.base / "hold"
    hold.touch()
    pids = other.base / "pids"
    body = DETACHED + "while Path(params['hold']).exists(): time.sleep(0.02)\nreturn StageResult()"
    asked = {"pids": str(pids), "bare": False, "hold": str(hold)}
    results = []
    lane = threading.Thread(target=lambda: results.append(other.run(body, params=asked, timeout_s=60)))
    lane.start()
    while not pids.exists() or len(pids.read_text().split()) < 2:
        assert lane.is_alive()
        time.sleep(0.02)
    assert room.run("os._exit(3)").exit == 3
    assert room.run().status == "ok"
    assert results == []
    assert all(psutil.pid_exists(int(pid)) for pid in pids.read_text().split())
    hold.unlink()
    lane.join(30)
    assert results[0].status == "ok" and left_of(pids.read_text()) == []


def test_a_process_that_is_found_by_its_environment_is_found_in_the_midst_of_an_exec(tmp_path):
    script = tmp_path / "again.sh"
    script.write_text('exec sh "$0"\n')
    for _ in range(15):
        with subprocess.Popen(
            ["sh", script], env=os.environ | {"TMPDIR": str(tmp_path)}, start_new_session=True
        ) as one:
            time.sleep(0.03)
            processes.end_all_with("TMPDIR", tmp_path / "other")
            assert one.poll() is None
            processes.end_all_with("TMPDIR", tmp_path)
            try:
                assert one.wait(2) == -9
            finally:
                one.kill()
