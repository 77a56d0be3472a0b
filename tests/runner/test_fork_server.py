"""Parents that fork workers: what is theirs alone. That a forked worker is as isolated as another: test_isolate.py."""

import os
import sys
import threading

import psutil
import pytest
from rooms import Room

from ane_sweep.bridge.stages import ALL
from ane_sweep.machine import stand_in
from ane_sweep.runner import fork_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
MIB = 1 << 20
WHO = "return StageResult(facts={'parent': os.getppid(), 'pid': os.getpid()})"


@pytest.fixture
def room(tmp_path):
    with fork_server.ForkServers() as fork_servers:
        yield Room(tmp_path, fork_servers)


def the_parent(room: Room) -> fork_server.ForkServer:
    (parent,) = room.fork_servers._live.values()
    return parent


def test_tasks_have_one_parent_and_leave_no_zombie(room):
    first, second = room.run(WHO), room.run(WHO)
    parent = the_parent(room)
    assert first.facts["parent"] == second.facts["parent"] == parent.process.pid
    assert first.facts["pid"] != second.facts["pid"]
    assert psutil.Process(parent.process.pid).children() == []
    room.fork_servers.__exit__()
    assert not psutil.pid_exists(parent.process.pid)


def test_what_a_task_changes_in_its_process_is_not_there_for_the_next(room):
    look = """
import json, random, resource
changed = {"environment": os.environ.get("LEFT_BEHIND"), "cwd": os.getcwd(), "path": "/left/behind" in sys.path,
           "module": hasattr(json, "left_behind"), "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
           "umask": os.umask(0o077), "signal": str(__import__("signal").getsignal(12)), "group": os.getpgid(0) == os.getpid(),
           "arguments": sys.argv[1:], "opened": len(os.listdir("/proc/self/fd")), "drawn": random.random()}
os.environ["LEFT_BEHIND"] = "1"; os.chdir("/"); sys.path.append("/left/behind"); json.left_behind = 1
resource.setrlimit(resource.RLIMIT_NOFILE, (77, 77)); __import__("signal").signal(12, lambda *_: None)
sys.argv.append("left behind"); kept = [os.dup(1) for _ in range(5)]; random.seed(0)
import threading; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
return StageResult(facts=changed)
"""
    first, second = room.run(look).facts, room.run(look).facts
    assert first.pop("drawn") != second.pop("drawn")
    assert first == second
    assert first["environment"] is None
    assert first["cwd"] == str(room.base / "tmp")
    assert first["group"]


def test_what_kills_a_task_leaves_its_parent_and_the_next_task_alone(room):
    before = room.run(WHO)
    assert room.run(fault="segfault").exit == "SIGSEGV"
    assert room.run("os._exit(3)").exit == 3
    assert room.run(fault="memory", memory_bytes=250 * MIB).status == "out_of_memory"
    assert room.run("os.kill(os.getpid(), 9)").exit == "SIGKILL"
    assert room.run("os.kill(os.getppid(), 0); os.closerange(3, 99); return StageResult()").status == "ok"
    assert room.run(WHO).facts["parent"] == before.facts["parent"]


def test_a_task_whose_parent_is_killed_is_done_again_cold_and_so_are_the_next(room):
    room.run()
    parent = the_parent(room)
    body = "(out / 'tries').open('a').write('x'); once = Path(params['once'])\n"
    body += "if not once.exists(): once.write_text('x'); os.kill(os.getppid(), 9); time.sleep(60)\n"
    body += "return StageResult(facts={'parent': os.getppid(), 'tries': (out / 'tries').read_text()})"
    result = room.run(body, params={"once": str(room.base / "once")})
    assert (result.status, result.facts) == ("ok", {"parent": os.getpid(), "tries": "x"})
    assert parent.gone
    assert room.run(WHO).facts["parent"] == os.getpid()


def test_libraries_find_the_environment_of_their_task_so_another_one_has_another_parent(room, monkeypatch):
    parents = []
    for offline in ("0", "1", "0"):
        monkeypatch.setenv("HF_HUB_OFFLINE", offline)
        parents.append(room.run(WHO).facts["parent"])
    one, two, again = parents
    assert one == again != two
    assert {os.getpid()}.isdisjoint({one, two})


def test_tasks_with_other_numbers_of_threads_have_one_parent(room, monkeypatch):
    monkeypatch.setattr("rooms.LOADS", ("torch",))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    look = "import torch; facts = {'threads': torch.get_num_threads(), 'env': os.environ['OMP_NUM_THREADS']}\n"
    look += "return StageResult(facts=facts | {'parent': os.getppid()})"
    parent = None
    for count, expected in ((2, 2), (None, 1), (2, 2)):
        facts = room.run(look, threads=count).facts
        parent = parent or facts["parent"]
        assert facts == {"parent": parent, "threads": expected, "env": str(expected)}
    assert parent != os.getpid()


def test_parents_that_need_torch_come_from_one_that_has_imported_it(room, monkeypatch):
    seen = []
    for loads in (("json", "torch"), ("torch", "wave"), ("json", "torch"), ("torch",)):
        monkeypatch.setattr("rooms.LOADS", loads)
        facts = room.run(
            "return StageResult(facts={'parent': os.getppid(), 'loaded': [name in sys.modules for name in ('torch', 'wave')]})"
        ).facts
        assert facts["loaded"] == ["torch" in loads, "wave" in loads]
        seen.append(psutil.Process(facts["parent"]))
    one, two, again, first = seen
    assert one == again != two and one.ppid() == two.ppid() == first.pid
    assert {process.pid for process in first.children()} == {one.pid, two.pid}, (
        "a task that ended takes no parent along"
    )
    one.kill()  # by whatever: what needs other modules goes on
    monkeypatch.setattr("rooms.LOADS", ("torch", "wave"))
    assert room.run(WHO).facts["parent"] == two.pid
    first.kill()
    assert room.run(WHO).facts["parent"] == two.pid
    monkeypatch.setattr("rooms.LOADS", ("torch", "string"))
    assert room.run(WHO).facts["parent"] == os.getpid(), "there is none to come from: it starts cold"
    room.fork_servers.__exit__()
    psutil.wait_procs([one, two, first], timeout=10)
    assert not any(process.is_running() and process.status() != "zombie" for process in (one, two, first))


def test_a_limit_that_the_imports_alone_would_reach_is_for_a_cold_start(room):
    assert room.run(WHO, memory_bytes=500 * MIB).facts["parent"] == the_parent(room).process.pid
    assert room.run(WHO, memory_bytes=the_parent(room).data_bytes() + 10 * MIB).facts["parent"] == os.getpid()


@pytest.mark.parametrize("loads", ["nonesuch", "starts_a_thread"])
def test_a_parent_that_cannot_be_is_done_without(room, monkeypatch, loads):
    """What cannot be imported; and what leaves a thread behind, whose locks a fork would copy as they stand."""
    room.path.joinpath("starts_a_thread.py").write_text(
        "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    monkeypatch.setattr("rooms.LOADS", (loads,))
    assert room.run(WHO).facts["parent"] == os.getpid()
    assert room.run(WHO).facts["parent"] == os.getpid()


def test_numpy_brings_threads_and_the_parent_forks_without_them(room, monkeypatch):
    monkeypatch.setattr("rooms.LOADS", ("numpy",))
    draw = "import numpy\nreturn StageResult(facts={'drawn': numpy.random.rand(), 'product': (numpy.eye(300) @ numpy.eye(300)).sum()})"
    first, second = room.run(draw, threads=None), room.run(draw, threads=None)
    assert first.facts["product"] == second.facts["product"] == 300
    assert first.facts["drawn"] != second.facts["drawn"]
    assert len(os.listdir(f"/proc/{the_parent(room).process.pid}/task")) == 1


def test_a_round_of_timing_begins_with_parents_of_its_own(room):
    room.fork_servers.begin_round(1)
    first = room.run(WHO).facts["parent"]
    room.fork_servers.begin_round(1)
    assert room.run(WHO).facts["parent"] == first
    room.fork_servers.begin_round(2)
    assert not psutil.pid_exists(first)
    assert room.run(WHO).facts["parent"] != first


def test_stopping_ends_a_parent_that_is_still_importing(room, monkeypatch):
    marker = room.base / "importing"
    source = f"import pathlib, time; pathlib.Path({str(marker)!r}).write_text('x'); time.sleep(60)"
    room.path.joinpath("slow_to_import.py").write_text(source)
    monkeypatch.setattr("rooms.LOADS", ("slow_to_import",))
    results = []
    lane = threading.Thread(target=lambda: results.append(room.run(WHO)))
    lane.start()
    while not marker.exists():
        assert lane.is_alive()
    room.fork_servers.stop()
    lane.join(20)
    assert results[0].facts["parent"] == os.getpid()


def test_who_is_forked_and_who_starts_cold():
    assert "torch" in fork_server.list_imports("score", {"runtime": "reference"})
    assert "coremltools" in fork_server.list_imports("convert", {})
    for stage, params in (
        ("latency", {"runtime": "coreml"}),
        ("latency", {"runtime": "reference_cuda"}),
        ("evidence", {"runtime": "reference"}),
        ("fetch", {}),
    ):
        assert fork_server.list_imports(stage, params) == (), stage
    assert not any(ALL[name].warm for name in ALL if ALL[name].on_coreml or ALL[name].network)


def test_where_a_script_stands_in_for_a_mac_every_task_starts_cold(monkeypatch):
    assert fork_server.can_fork()
    monkeypatch.setattr(stand_in, "active", lambda: object())
    assert not fork_server.can_fork()


def test_one_variable_starts_every_task_cold(monkeypatch):
    monkeypatch.setenv(fork_server.COLD_VARIABLE, "1")
    assert not fork_server.can_fork()


def test_without_pidfd_every_task_starts_cold(monkeypatch):
    monkeypatch.setattr(os, "pidfd_open", lambda pid: (_ for _ in ()).throw(OSError(38, "no such call")))
    assert not fork_server.can_fork()
