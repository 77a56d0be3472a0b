"""Real workers, real signals, real pids. Stages here are written into a temporary folder by each test."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from rooms import REPO, Room

import ane_sweep
from ane_sweep.bridge import autopsy
from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.protocol import EXIT_NO_SPACE, WAITING_VARIABLES
from ane_sweep.machine import processes
from ane_sweep.runner import fork_server, isolate
from ane_sweep.runner.fork_server import ForkServers

MIB = 1 << 20
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.fixture(params=["cold", pytest.param("warm", marks=[linux, pytest.mark.slow, pytest.mark.ci])])
def room(request, tmp_path):
    """Every test here holds for workers started cold and for those forked from a parent."""
    if request.param == "cold":
        yield Room(tmp_path)
        return
    with ForkServers() as fork_servers:
        yield Room(tmp_path, fork_servers)


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def gone_within(seconds: float, *pids: int) -> bool:
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 20
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.01)
    return path.read_text()


def test_a_good_task_comes_back_whole(room):
    result = room.run(
        """
(out / "model.bin").write_bytes(b"x" * 10)
print("to stdout"); print("to stderr", file=sys.stderr)
seen = {"cwd": os.getcwd(), "tmpdir": os.environ["TMPDIR"], "threads": os.environ["OMP_NUM_THREADS"],
        "seed": os.environ["PYTHONHASHSEED"], "role": str(inputs["program"])}
return StageResult([Metric("convert_s", 1.5, "s")], {"texts": "real"}, seen)
""",
        inputs={"program": Path("relative/folder")},
    )
    assert (result.status, result.reason, result.exit, result.doubts) == ("ok", None, 0, [])
    assert result.metrics == [Metric("convert_s", 1.5, "s")]
    assert result.realised == {"texts": "real"}
    tmp = str(room.base / "tmp")
    assert result.facts == {
        "cwd": tmp,
        "tmpdir": tmp,
        "threads": "1",
        "seed": "0",
        "role": os.path.abspath("relative/folder"),
    }
    assert 5 * MIB < result.peak_bytes < 200 * MIB
    assert (room.folder / "stdout.txt").read_text() == "to stdout\n"
    assert (room.folder / "stderr.txt").read_text() == "to stderr\n"
    assert (room.base / "out" / "model.bin").read_bytes() == b"x" * 10
    assert result.seconds > 0


def test_an_earlier_result_is_never_taken_for_this_one(room):
    assert room.run().status == "ok"
    result = room.run("os._exit(3)")
    assert (result.status, result.exit) == ("failed", 3)
    assert result.reason == "fake exited with code 3 and left no result: nothing on stderr"


def test_a_result_of_another_task_counts_as_none(room):
    result = room.run("""
import json
text = json.dumps({"schema": 1, "stage": "fake", "key": "other", "status": "ok"})
Path(sys.argv[1]).with_name("result.json").write_text(text)
os._exit(0)
""")
    assert result.status == "failed"
    assert "exited with code 0 and left no result" in result.reason


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ("raise StageError('the program has 3 cut points')", "failed", "the program has 3 cut points"),
        ("raise Unavailable('needs macOS')", "unavailable", "needs macOS"),
        ("len(5)", "failed", "TypeError: object of type 'int' has no len()"),
        ("sys.exit(4)", "failed", "the stage called sys.exit(4)"),
        ("raise MemoryError('no more')", "out_of_memory", "a memory allocation was refused: MemoryError: no more"),
    ],
)
def test_exceptions_become_a_status_and_one_sentence(room, body, status, reason):
    result = room.run(body)
    assert (result.status, result.reason, result.exit) == (status, reason, 1)
    assert "Traceback" in (room.folder / "stderr.txt").read_text()


def test_a_missing_stage_is_a_failure_with_its_name(room):
    result = room.run(stage="nonesuch")
    assert result.reason == "ModuleNotFoundError: No module named 'ane_sweep.worker.stages.nonesuch'"


def test_segfault_names_the_signal_and_the_place(room):
    result = room.run(fault="segfault")
    assert (result.status, result.exit) == ("crashed", "SIGSEGV")
    assert result.reason.startswith("fake crashed with SIGSEGV (File ")
    assert "Segmentation fault" in result.stderr_tail


def test_a_hang_that_ignores_sigterm_is_killed(room):
    started = time.monotonic()
    result = room.run(fault="hang", timeout_s=4)  # time enough for a busy machine to start it
    assert 4 <= time.monotonic() - started < 6.5
    assert (result.status, result.exit) == ("timeout", "SIGKILL")
    assert result.reason == "fake had not ended after 4 s and was killed"


def test_a_timeout_tells_where_it_was(room):
    result = room.run("time.sleep(60)", timeout_s=4)
    assert result.status == "timeout"
    assert 'fake.py", line' in result.reason


@pytest.mark.slow
@pytest.mark.ci
def test_timeout_leaves_nothing_of_the_group_alive(room):
    pids = room.base / "pids"
    result = room.run(
        f"""
import subprocess
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(99)"
sleep = [sys.executable, "-S", "-c", code]
own = subprocess.Popen(sleep)
away = subprocess.Popen(sleep, start_new_session=True)
time.sleep(0.2)
Path({str(pids)!r}).write_text(f"{{os.getpid()}} {{own.pid}} {{away.pid}}")
time.sleep(99)
""",
        timeout_s=4,
    )
    assert result.status == "timeout"
    assert result.doubts == []
    assert gone_within(1, *map(int, pids.read_text().split()))


def test_helpers_left_running_by_a_good_task_are_ended(room):
    pids = room.base / "pids"
    result = room.run(f"""
import subprocess
helper = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(99)"])
Path({str(pids)!r}).write_text(str(helper.pid))
return StageResult()
""")
    assert result.status == "ok"
    assert gone_within(1, int(pids.read_text()))


@linux
def test_memory_ends_at_the_kernel_limit(room):
    result = room.run(fault="memory", memory_bytes=200 * MIB)
    assert result.status == "out_of_memory"
    assert result.reason.startswith("a memory allocation was refused: MemoryError")
    assert result.peak_bytes < 240 * MIB


def test_the_memory_fault_refuses_to_run_without_a_limit(room):
    result = room.run(fault="memory")
    assert result.status == "failed"
    assert "this task has no memory limit" in result.reason


def test_unknown_faults_list_the_known_ones(room):
    assert room.run(fault="flood").reason == (
        "unknown fault 'flood'; known faults: segfault, hang, memory, raise, corrupt_weights"
    )


@linux
def test_the_watch_kills_what_the_kernel_limit_does_not_see(room):
    result = room.run(
        """
import resource
resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
held = b"x" * (400 << 20)
time.sleep(60)
""",
        memory_bytes=150 * MIB,
        watch_memory=True,
    )
    assert (result.status, result.exit) == ("out_of_memory", "SIGKILL")
    assert result.reason == "fake was killed above its memory limit of 0.15 GiB"
    assert result.peak_bytes > 150 * MIB


@linux
def test_the_watch_adds_up_the_whole_tree(room):
    result = room.run(
        """
import subprocess
held = "import time; held = b'x' * (90 << 20); time.sleep(60)"
subprocess.Popen([sys.executable, "-S", "-c", held])
held = b"x" * (90 << 20)
time.sleep(60)
""",
        memory_bytes=150 * MIB,
        watch_memory=True,
    )
    assert result.status == "out_of_memory"


@linux
def test_a_real_bad_alloc_in_native_code(room):
    body = """
import ctypes
ctypes.CDLL("libstdc++.so.6")._Znwm(ctypes.c_size_t(1 << 60))
"""
    try:
        import ctypes

        ctypes.CDLL("libstdc++.so.6")
    except OSError:
        pytest.skip("no libstdc++ on this machine")
    result = room.run(body, memory_bytes=500 * MIB)
    assert (result.status, result.exit) == ("out_of_memory", "SIGABRT")
    assert "refused memory (limit 0.49 GiB)" in result.reason
    result = room.run(body)
    assert result.status == "crashed"  # without a limit it is a bug of the code that asked for so much


@linux
def test_what_a_users_module_prints_is_no_evidence_of_memory(room):
    body = """
os.write(2, b"MemoryError\\nterminate called after throwing an instance of 'std::bad_alloc'\\n  what():  std::bad_alloc\\n")
"""
    theirs = {"inputs": {"code": room.base}, "memory_bytes": 500 * MIB}
    result = room.run(body + "os._exit(3)", **theirs)
    assert (result.status, result.exit) == ("failed", 3)
    result = room.run(body + "os.abort()", **theirs)
    assert (result.status, result.exit) == ("crashed", "SIGABRT")
    assert "its limit was 0.49 GiB: limits.fake.memory_gib=GIB sets another" in result.reason
    assert (
        room.run("print('no MemoryError was seen', file=sys.stderr); os._exit(3)", memory_bytes=500 * MIB).status
        == "failed"
    )


@pytest.mark.slow
@pytest.mark.ci
@linux
@pytest.mark.parametrize("call", ["numpy.ones(1 << 28)", "torch.ones(1 << 29)"])
def test_real_libraries_under_the_limit(room, call):
    result = room.run(f"import {call.split('.')[0]}\n{call}", memory_bytes=900 * MIB)
    assert result.status == "out_of_memory"
    assert "1 << 2" not in result.reason


@linux
def test_a_limit_below_what_a_library_takes_ends_the_task_when_that_is_loaded(room):
    """OpenBLAS, which comes with numpy, asks for its buffers again and again while they are refused."""
    result = room.run("import numpy", memory_bytes=40 * MIB, timeout_s=20)
    assert result.status == "out_of_memory", result.reason
    assert "its limit of 0.04 GiB" in result.reason or "a memory allocation was refused" in result.reason


@linux
def test_kill_from_outside(room, monkeypatch):
    def murder():
        os.kill(int(wait_for(room.base / "pid")), signal.SIGKILL)

    body = f"Path({str(room.base / 'pid')!r}).write_text(str(os.getpid())); time.sleep(60)"
    killer = threading.Thread(target=murder)
    killer.start()
    result = room.run(body)
    killer.join()
    assert (result.status, result.exit) == ("crashed", "SIGKILL")
    assert "killed by SIGKILL from outside" in result.reason

    (room.base / "pid").unlink()
    counts = iter([3, 4])
    monkeypatch.setattr(processes, "oom_kills", lambda: next(counts))
    killer = threading.Thread(target=murder)
    killer.start()
    result = room.run(body)
    killer.join()
    assert (result.status, result.reason) == ("out_of_memory", "fake was killed by the kernel's out-of-memory killer")


def test_an_endless_stderr_costs_no_memory(room):
    before = psutil.Process().memory_info().rss
    result = room.run("""
for _ in range(300):
    os.write(2, b"x" * (1 << 20))
os.write(2, b"\\nthe last word \\xff\\n")
os._exit(9)
""")
    assert result.reason == "fake exited with code 9 and left no result: the last word \ufffd"
    assert psutil.Process().memory_info().rss - before < 50 * MIB


def test_a_worker_that_cannot_start(room):
    task = room.task()
    result = isolate.run_task(
        task, room.folder, timeout_s=5, watch_memory=False, python=str(room.base / "nonesuch"), **room.how()
    )
    assert result.status == "failed"
    assert result.reason.startswith("the worker could not be started: [Errno 2]")
    assert not task.tmp.exists()


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 1 MiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(mount)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount a small tmpfs here: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_full_disk_is_said_and_the_half_written_goes(room, small_disk):
    out = small_disk / "out"
    room.folder = small_disk / "task"
    result = room.run("(out / 'weight.bin').write_bytes(b'x' * (2 << 20))", out=out)
    assert result.status == "failed"
    assert result.reason.startswith(f"no space left on device while writing {out}")
    assert result.reason.endswith("free space or move outputs with out=PATH; nothing half-written stays")
    assert list(out.iterdir()) == []


def test_a_disk_too_full_even_for_the_result(room, small_disk):
    room.folder = small_disk / "task"
    task = room.task(f"""
with open({str(small_disk / "filler")!r}, "wb", buffering=0) as file:
    while True:
        file.write(b"x" * 4096)
""")
    result = isolate.run_task(task, room.folder, timeout_s=30, watch_memory=False, env=room.env(), **room.how())
    assert (result.status, result.exit) == ("failed", EXIT_NO_SPACE)
    assert result.reason.startswith("no space left on device while writing")
    assert any("result.json could not be written" in doubt for doubt in result.doubts)
    assert not (room.folder / "result.json").exists()


def test_kill_all_ends_every_lane_and_leaves_no_result(room):
    errors = []

    def lane(number: int) -> None:
        marker = room.base / f"pid{number}"
        body = "Path(params['marker']).write_text(str(os.getpid())); time.sleep(60)"
        task = room.task(body, tmp=room.base / f"tmp{number}", params={"marker": str(marker)})
        folder = room.base / f"task{number}"
        try:
            isolate.run_task(task, folder, timeout_s=60, watch_memory=bool(number), env=room.env(), **room.how())
        except isolate.Interrupted as error:
            errors.append((folder, str(error)))

    lanes = [threading.Thread(target=lane, args=(number,)) for number in range(3)]
    for thread in lanes:
        thread.start()
    pids = [int(wait_for(room.base / f"pid{number}")) for number in range(3)]
    deadline = time.monotonic() + 20  # a forked worker may speak before its start is noted here
    while sorted(child.process.pid for child in room.children._live) != sorted(pids):
        assert time.monotonic() < deadline
    room.children.kill_all()
    for thread in lanes:
        thread.join(5)
    assert len(errors) == 3
    assert gone_within(0.1, *pids)
    assert not [folder for folder, _ in errors if (folder / "result.json").exists()]
    assert not list(room.base.glob("tmp?"))
    with pytest.raises(isolate.Interrupted, match="not started"):
        room.run()
    room.children.reopen()
    assert room.run().status == "ok"


def test_a_stop_in_the_midst_of_spawning(room, monkeypatch):
    """A signal handler can run kill_all between the fork and the registration of the child."""
    owner, name = (fork_server.ForkServer, "fork") if room.fork_servers else (isolate.subprocess, "Popen")
    real, spawned = getattr(owner, name), []

    def spawn(*arguments, **options):
        spawned.append(real(*arguments, **options))
        room.children.kill_all()
        return spawned[-1]

    monkeypatch.setattr(owner, name, spawn)
    with pytest.raises(isolate.Interrupted, match="was killed and left no result"):
        room.run("time.sleep(60)")
    assert gone_within(0.1, spawned[0].pid)
    assert not room.children._live


def spawn_parent(room: Room, marker: Path) -> subprocess.Popen:
    """A real process in the middle that runs one task and waits for it."""
    task = room.task(f"Path({str(marker)!r}).write_text(str(os.getpid())); time.sleep(60)")
    code = (
        "from ane_sweep.runner import isolate, fork_server; from ane_sweep.bridge.task import TaskRequest; from pathlib import Path\n"
        "import json, signal, sys; a = json.loads(sys.argv[1]); task = TaskRequest.read(Path(a['task']))\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job started in the background inherits `ignore`
        "with fork_server.ForkServers() as fork_servers:\n"
        "    isolate.run_task(task, Path(a['folder']), timeout_s=60, watch_memory=False, env=a['env'], fork_servers=fork_servers,\n"
        "                     loads=a['loads'])"
    )
    task.write(room.base / "asked.json")
    argument = json.dumps(
        {
            "task": str(room.base / "asked.json"),
            "folder": str(room.folder),
            "env": room.env(),
            "loads": room.how()["loads"] if room.fork_servers else (),
        }
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, argument], cwd=REPO, stderr=subprocess.PIPE, start_new_session=True
    )


def test_a_killed_parent_takes_its_worker_along(room):
    parent = spawn_parent(room, room.base / "pid")
    worker = int(wait_for(room.base / "pid"))
    assert alive(worker)
    all_of_it = [process.pid for process in psutil.Process(parent.pid).children(recursive=True)]
    assert worker in all_of_it
    parent.kill()
    parent.communicate()
    assert gone_within(1, *all_of_it)
    assert not (room.folder / "result.json").exists()


def test_ctrl_c_in_the_waiting_thread(room):
    parent = spawn_parent(room, room.base / "pid")
    worker = int(wait_for(room.base / "pid"))
    os.kill(parent.pid, signal.SIGINT)
    _, stderr = parent.communicate(timeout=10)
    assert b"KeyboardInterrupt" in stderr
    assert gone_within(0.1, worker)
    assert not (room.folder / "result.json").exists()
    assert not (room.base / "tmp").exists()


@pytest.mark.slow
@pytest.mark.ci
def test_the_parent_rests_while_a_child_is_timed(room):
    room.run()
    before = os.times()
    result = room.run("time.sleep(2)\nreturn StageResult()")
    after = os.times()
    assert result.status == "ok"
    assert after.user - before.user + after.system - before.system < 0.05


def waiters():
    yield "system", lambda pid: processes.ProcessExit(pid)
    if sys.platform == "linux":

        def without_pidfd(pid):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "pidfd_open", lambda pid: (_ for _ in ()).throw(OSError(38, "no such call")))
                return processes.ProcessExit(pid)

        yield "thread", without_pidfd


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in waiters()])
def test_waiting_neither_polls_nor_reaps(make):
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1)"])
    with make(child.pid) as gone:
        switches = psutil.Process().num_ctx_switches().voluntary
        assert not gone.wait(0.3)
        assert gone.wait(10)
        assert gone.wait(None)
        assert psutil.Process().num_ctx_switches().voluntary - switches < 10
    assert child.wait() == 0  # still ours to reap


def test_waiting_for_one_that_is_gone_already():
    child = subprocess.Popen([sys.executable, "-S", "-c", ""])
    time.sleep(0.3)
    with processes.ProcessExit(child.pid) as gone:
        assert gone.wait(0)
    child.wait()


@linux
def test_a_small_child_does_not_inherit_the_peak_of_its_parent(room):
    ballast = b"x" * (400 * MIB)
    result = room.run()
    assert result.peak_bytes < 100 * MIB
    result = room.run(fault="segfault")
    if room.fork_servers:
        assert result.peak_bytes < 100 * MIB
    else:  # nobody could say: rather null than the parent's figure
        assert result.peak_bytes is None
    del ballast


@linux
def test_the_oom_counter_is_readable():
    assert processes.oom_kills() >= 0
    assert any(path.exists() for path in processes._oom_counters())


@pytest.mark.parametrize(("code", "name"), [(0, 0), (7, 7), (-11, "SIGSEGV"), (-6, "SIGABRT"), (None, None)])
def test_exit_names(code, name):
    assert autopsy.exit_name(code) == name


def test_the_environment_finds_the_package_and_keeps_relative_paths(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", f"lib{os.pathsep}{os.pathsep}/else")
    env = isolate.child_environment("/tmp/x")
    assert env["PYTHONPATH"].split(os.pathsep) == [str(REPO), os.path.abspath("lib"), "/else"]
    assert env["TOKENIZERS_PARALLELISM"] == "false"
    monkeypatch.setattr(ane_sweep, "__file__", str(tmp_path / "site-packages" / "ane_sweep" / "__init__.py"))
    monkeypatch.delenv("PYTHONPATH")
    assert "PYTHONPATH" not in isolate.child_environment("/tmp/x")


@linux
def test_idle_threads_spin_shortly_unless_the_user_says_otherwise(monkeypatch):
    for name in (*WAITING_VARIABLES, "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    assert isolate.child_environment("/tmp/x")["GOMP_SPINCOUNT"] == isolate.SPINCOUNT
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert isolate.child_environment("/tmp/x")["GOMP_SPINCOUNT"] == "7"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    assert "GOMP_SPINCOUNT" not in isolate.child_environment("/tmp/x")
