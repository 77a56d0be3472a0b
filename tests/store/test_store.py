"""The cache: complete or absent, whoever dies or meets whom."""

import contextlib
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import played
import pytest

from ane_sweep.bridge import disk
from ane_sweep.bridge.figures import Artifact
from ane_sweep.bridge.protocol import Interrupted
from ane_sweep.bridge.task import TaskResult
from ane_sweep.errors import StoreError
from ane_sweep.store import cache as store
from ane_sweep.store import files, locks, past
from ane_sweep.store.cache import Store

REPO = Path(store.__file__).resolve().parent.parent
KEY = "ab" + "0" * 62
STOP = threading.Event()
STOP.set()
OK = TaskResult("convert", KEY, "ok")


@pytest.fixture
def cache(tmp_path):
    with Store(tmp_path / "cache") as opened:
        yield opened


def put(cache: Store, key: str = KEY, content: bytes = b"weights", stage: str = "convert") -> Path:
    aside = cache.stage_aside(stage, key)
    (aside / "model.mlpackage").mkdir()
    (aside / "model.mlpackage" / "weight.bin").write_bytes(content)
    return cache.commit(aside, stage, key, OK)


def spawn(code: str, *arguments: object) -> subprocess.Popen:
    """Another process with the package and `cache = Store(arguments[0])` at hand; reads lines, prints lines."""
    head = "import os, sys, time; from pathlib import Path; from ane_sweep.store import cache as store, files\n"
    head += f"a = sys.argv[1:]; cache = store.Store(Path(a[0])); KEY = {KEY!r}\n"
    head += "from ane_sweep.bridge.task import TaskResult; OK = TaskResult('convert', KEY, 'ok')\n"
    head += "def say(x): print(x, flush=True)\n"
    head += "def filled(key): path = cache.stage_aside('convert', key); (path / 'f').write_text('x'); return path\n"
    return subprocess.Popen(
        [sys.executable, "-c", head + code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPO,
    )


def end(process: subprocess.Popen) -> str:
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    return out


# Artifacts


def test_an_artifact_is_absent_then_complete(cache):
    assert cache.lookup("convert", KEY) is None
    path = put(cache)
    assert path == cache.root / "convert" / "ab" / KEY == cache.lookup("convert", KEY)
    assert TaskResult.read(path / "result.json") == OK
    assert cache.lookup("chunk", KEY) is None
    held = [cache.has(SimpleNamespace(stage=stage, key=KEY)) for stage in ("convert", "chunk")]
    assert held == [True, False]
    digest = hashlib.sha256(b"weights").hexdigest()
    name = "model.mlpackage/weight.bin"
    assert files.artifact_files(path) == [Artifact(name, str(path / name), 7, digest)]


def test_files_are_hashed_once_and_listed_for_any_folder(cache, tmp_path, monkeypatch):
    path = put(cache)
    monkeypatch.setattr(files.hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
    assert len(files.artifact_files(path)) == 1
    monkeypatch.undo()
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "b").write_bytes(b"1")
    (tmp_path / "loose" / "a").write_bytes(b"")
    (tmp_path / "loose" / "link").symlink_to("a")
    assert [(file.name, file.bytes) for file in files.artifact_files(tmp_path / "loose")] == [("a", 0), ("b", 1)]
    assert files.artifact_files(tmp_path / "absent") == []


def test_only_good_results_are_stored(cache):
    aside = cache.stage_aside("convert", KEY)
    with pytest.raises(ValueError, match="only ok results are stored, this one is 'failed'"):
        cache.commit(aside, "convert", KEY, TaskResult("convert", KEY, "failed"))
    assert cache.lookup("convert", KEY) is None


def test_asides_are_fresh_and_discarded(cache):
    first, second = cache.stage_aside("convert", KEY), cache.stage_aside("convert", KEY)
    assert first != second
    assert list(first.iterdir()) == []
    (first / "x").write_text("x")
    cache.discard(first)
    cache.discard(first)
    assert not first.exists() and second.exists()
    assert os.stat(second).st_dev == os.stat(cache.root).st_dev


def spoil(path: Path, content: bytes) -> None:
    """Other bytes under the same times, as a bad disk leaves them; and as a later process finds them."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    files._hashed.clear()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("model.mlpackage/weight.bin", b"weigh", "model.mlpackage/weight.bin has 5 bytes of 7"),
        ("model.mlpackage/weight.bin", None, "model.mlpackage/weight.bin cannot be read (No such file or directory)"),
        ("result.json", b"{}", "result.json has 2 bytes of 263"),
        ("result.json", None, "result.json cannot be read (No such file or directory)"),
        ("files.json", b"{", "its files.json is missing or damaged"),
        ("files.json", b'{"files": []}', "its files.json is missing or damaged"),
        ("files.json", None, "its files.json is missing or damaged"),
    ],
)
def test_missing_and_shortened_files_are_seen_at_every_lookup(cache, name, content, said):
    path = put(cache)
    (path / name).unlink() if content is None else (path / name).write_bytes(content)
    assert cache.lookup("convert", KEY) is None and cache.fault("convert", KEY, {}) == said
    put(cache, content=b"another")  # whoever makes it again takes the place of what is damaged
    assert cache.fault("convert", KEY, {}) is None and cache.lookup("convert", KEY) == path


@pytest.mark.parametrize(("name", "content"), [("model.mlpackage/weight.bin", b"\0" * 7), ("result.json", b" " * 263)])
def test_other_bytes_of_the_same_length_are_seen_before_anything_is_derived(cache, name, content):
    path = put(cache)
    spoil(path / name, content)
    assert cache.lookup("convert", KEY) == path and cache.intact("convert", KEY) is None  # sizes alone do not tell
    assert cache.fault("convert", KEY, {}) == f"{name} holds other bytes than when it was stored"
    cache.remove("convert", KEY)
    assert not path.exists() and cache.fault("convert", KEY, {}) is None
    cache.remove("convert", KEY)


def test_an_artifact_made_from_something_else_is_at_fault(cache):
    made_from = {"program": files.Origin("k", files.digest(put(cache)))}
    aside = cache.stage_aside("chunk", KEY)
    (aside / "weight.bin").write_bytes(b"chunk")
    cache.commit(aside, "chunk", KEY, OK, made_from)
    assert cache.fault("chunk", KEY, made_from) is None
    cache.remove("convert", KEY)
    other = {"program": files.Origin("k", files.digest(put(cache, content=b"other")))}
    assert cache.fault("chunk", KEY, other) == "what it was made from has been made again since, and is not the same"


def test_the_second_to_commit_gets_the_first_ones(cache):
    first = put(cache, content=b"first")
    aside = cache.stage_aside("convert", KEY)
    (aside / "other").write_text("other")
    assert cache.commit(aside, "convert", KEY, OK) == first
    assert not aside.exists()
    assert (first / "model.mlpackage" / "weight.bin").read_bytes() == b"first"
    assert not (first / "other").exists()


def test_a_broken_folder_in_the_way_is_replaced(cache):
    broken = cache.path("convert", KEY)
    broken.mkdir(parents=True)
    (broken / "half").write_text("half")
    assert cache.lookup("convert", KEY) is None
    path = put(cache)
    assert not (path / "half").exists()
    assert cache.lookup("convert", KEY) == path


def test_two_processes_commit_one_key(tmp_path):
    code = """
for number in range(30):
    key = f"{number:064x}"
    aside = cache.stage_aside("convert", key)
    for part in range(3):
        (aside / f"part{part}").write_text(a[1])
    path = cache.commit(aside, "convert", key, OK)
    assert len({(path / f"part{part}").read_text() for part in range(3)}) == 1
cache.close()
"""
    pair = [spawn(code, tmp_path / "cache", name) for name in ("one", "two")]
    for process in pair:
        end(process)
    with Store(tmp_path / "cache") as cache:
        for number in range(30):
            path = cache.lookup("convert", f"{number:064x}")
            assert len(files.artifact_files(path)) == 3
        assert list((cache.root / "tmp").iterdir()) == []


@pytest.mark.parametrize("moment", ["before the result", "before the rename"])
def test_kill_9_in_the_middle_of_a_commit_leaves_absence(tmp_path, moment):
    hook = "files.disk.write_json" if moment == "before the result" else "os.rename"
    process = spawn(
        f"""
def stop(*_):
    say("here"); time.sleep(60)
aside = cache.stage_aside("convert", KEY)
(aside / "weight.bin").write_bytes(b"x" * 1000)
{hook} = stop
cache.commit(aside, "convert", KEY, OK)
""",
        tmp_path / "cache",
    )
    assert process.stdout.readline() == "here\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with Store(tmp_path / "cache") as cache:
        assert cache.lookup("convert", KEY) is None
        left = cache.sweep_tmp()
        assert len(left) == 1 and left[0].name.startswith(f"{process.pid}-")
        assert list((cache.root / "tmp").iterdir()) == []
        assert put(cache) == cache.lookup("convert", KEY)


def test_sweeping_spares_the_living(tmp_path):
    process = spawn("say(cache.scratch()); sys.stdin.readline(); say(os.path.isdir(a[0]))", tmp_path / "cache")
    theirs = Path(process.stdout.readline().strip())
    with Store(tmp_path / "cache") as cache:
        ours = cache.scratch()
        (cache.root / "tmp" / "stray").write_text("x")
        (cache.root / "tmp" / f"{os.getpid()}-1-abcd").mkdir()  # our own pid, but nobody holds its lock
        assert [path.name for path in cache.sweep_tmp()] == [f"{os.getpid()}-1-abcd"]
        assert theirs.is_dir() and ours.is_dir()
        assert not (cache.root / "tmp" / "stray").exists()
        process.kill()
        process.communicate()
        assert cache.sweep_tmp() == [theirs.parent]


def test_closing_removes_what_was_neither_committed_nor_discarded(tmp_path):
    with Store(tmp_path / "cache") as cache:
        aside = cache.scratch()
    assert not aside.exists()


# Folders that cannot be used


def test_another_schema_is_refused_and_left_alone(tmp_path):
    Store(tmp_path).close()
    (tmp_path / "SCHEMA").write_text("0\n")
    with pytest.raises(StoreError) as caught:
        Store(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} has cache schema 0, this ane-sweep needs 1; "
        "move that folder away, or choose another one with out=PATH"
    )
    (tmp_path / "SCHEMA").write_bytes(b"\xff\x00")
    with pytest.raises(StoreError, match="this ane-sweep needs 1"):
        Store(tmp_path)


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match=r"no ane-sweep cache: it has no SCHEMA file, but holds thesis\.tex; move"):
        Store(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "cache").write_text("x")
    for root in (tmp_path / "cache", tmp_path / "cache" / "below"):
        with pytest.raises(StoreError, match=r"has a file where a folder is needed.*out=PATH or ANE_SWEEP_OUT"):
            Store(root)


@contextlib.contextmanager
def mounted(*arguments: str):
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", arguments[-1]], check=True)


def test_a_read_only_file_system(tmp_path):
    with (
        mounted("-t", "tmpfs", "-o", "size=1m,ro", "none", str(tmp_path)),
        pytest.raises(StoreError, match=r"is on a read-only file system.*choose another folder"),
    ):
        Store(tmp_path / "cache")


def test_a_cache_that_became_read_only(tmp_path):
    with mounted("-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)):
        Store(tmp_path / "cache").close()
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
        with pytest.raises(StoreError, match="is on a read-only file system"):
            Store(tmp_path / "cache")


def test_a_full_file_system(tmp_path):
    with mounted("-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)):
        with Store(tmp_path / "cache") as cache:
            aside = cache.stage_aside("convert", KEY)
            with pytest.raises(OSError, match="No space left"), open(tmp_path / "filler", "wb", buffering=0) as filler:
                while True:
                    filler.write(b"x" * 4096)
            with pytest.raises(
                StoreError, match=r"no space left on device while writing .*; free space or move outputs"
            ):
                cache.commit(aside, "convert", KEY, OK)
            assert not aside.exists()
            assert cache.lookup("convert", KEY) is None
            cache.record_history(played.task("convert"), OK)  # not worth a task
        with pytest.raises(
            StoreError, match=r"no space left on device while writing .*; free space or move outputs with out=PATH"
        ):
            Store(tmp_path / "cache")


def test_a_write_that_fails_is_a_full_disk_too(tmp_path, monkeypatch):
    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store.os, "write", full)
    with pytest.raises(StoreError, match="no space left on device"):
        Store(tmp_path)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def none(descriptor, kind):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", none)
    with pytest.raises(StoreError, match=r"without file locks .*choose a folder on a local disk with out=PATH"):
        Store(tmp_path)


# Locks


def test_a_key_is_made_once_by_many_processes(tmp_path):
    code = """
for number in range(20):
    key = f"{number:064x}"
    with cache.lock("convert", key):
        if cache.lookup("convert", key) is None:
            with open(a[1], "a") as made:
                made.write(f"{number}\\n")
            cache.commit(filled(key), "convert", key, OK)
"""
    trio = [spawn(code, tmp_path / "cache", tmp_path / "made") for _ in range(3)]
    for process in trio:
        end(process)
    assert sorted(map(int, (tmp_path / "made").read_text().split())) == list(range(20))
    left = {path.name for path in (tmp_path / "cache" / "locks").iterdir()}
    assert left == {"users.lock", "tmp.lock"}


def test_a_dead_holder_lets_go(tmp_path):
    process = spawn("with cache.lock('convert', KEY): say('held'); time.sleep(60)", tmp_path / "cache")
    process.stdout.readline()
    with Store(tmp_path / "cache") as cache:
        stop = threading.Event()
        threading.Timer(0.3, stop.set).start()
        with pytest.raises(Interrupted), cache.lock("convert", KEY, locks.Waiting(stop)):
            pytest.fail("two hold one lock")
        process.kill()
        process.communicate()
        with cache.lock("convert", KEY):
            pass


def test_the_lock_excludes_threads_too(cache):
    inside, most = [], []

    def work() -> None:
        for _ in range(20):
            with cache.lock("convert", KEY):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1


def comes_first(cache: Store) -> bool:
    """Whether another process' timing waits, and is let in before a preparation of ours: tried until that process has begun."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with cache.machine_lock(shared=True, wait=locks.Waiting(STOP)):
                time.sleep(0.02)
        except Interrupted:
            return True
    return False


def test_preparing_is_shared_and_timing_alone(tmp_path):
    """Two prepare at a time; nobody does while one is timing, also of another process."""
    with Store(tmp_path / "cache") as cache:
        with cache.machine_lock(shared=True), cache.machine_lock(shared=True):
            process = spawn(
                """
with cache.machine_lock(shared=False):
    say("timing"); sys.stdin.readline()
say("done"); sys.stdin.readline()
""",
                tmp_path / "cache",
            )
            assert comes_first(cache), "a timing that waits comes before new preparations"
        assert process.stdout.readline() == "timing\n"
        with pytest.raises(Interrupted), cache.machine_lock(shared=True, wait=locks.Waiting(STOP)):
            pytest.fail("preparing beside a timing")
        with pytest.raises(Interrupted), cache.machine_lock(shared=False, wait=locks.Waiting(STOP)):
            pytest.fail("two timings")
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        with cache.machine_lock(shared=False):
            pass
        process.communicate("\n")


# Use and history


def test_prune_goes_by_last_use(cache):
    keys = [f"{number:02x}" + "0" * 62 for number in range(4)]
    now = time.time()
    for age, key in zip((4, 3, 2, 1), keys, strict=True):
        os.utime(put(cache, key, b"x" * 10000), (now - age * 86400,) * 2)
    cache.lookup("convert", keys[0])  # used just now: the youngest
    assert cache.prune(older_than_days=2.5) == [cache.path("convert", keys[1])]
    size = files.size(cache.path("convert", keys[0]))
    assert cache.prune(max_bytes=size) == [cache.path("convert", keys[2]), cache.path("convert", keys[3])]
    assert cache.lookup("convert", keys[0])
    assert cache.prune() == []
    broken = put(cache)
    (broken / "result.json").unlink()
    assert cache.prune(max_bytes=0) == [cache.path("convert", keys[0]), broken]
    assert not list(cache.root.glob("tmp/*/grave-*"))


def test_prune_waits_for_nobody(tmp_path):
    process = spawn("say('open'); sys.stdin.readline()", tmp_path / "cache")
    process.stdout.readline()
    with Store(tmp_path / "cache") as cache:
        put(cache)
        with pytest.raises(StoreError, match="in use by another ane-sweep; prune it when that has ended"):
            cache.prune(max_bytes=0)
        process.communicate("\n")
        assert len(cache.prune(max_bytes=0)) == 1


def test_history_survives_a_torn_line(cache):
    assert cache.past() == []
    convert = replace(played.task("convert"), work=100, sort="here", rule_s=3.0)
    cache.record_history(convert, replace(OK, seconds=1.5, peak_bytes=7))
    with open(cache.root / "history.jsonl", "a") as file:
        file.write('{"stage": "conv')
    cache.record_history(replace(convert, work=200), replace(OK, seconds=2.5))
    cache.record_history(played.task("chunk"), replace(OK, seconds=0.5, peak_bytes=3))
    assert cache.past()[:2] == [
        past.Past("convert", 100, 1.5, 7, "here", 3.0),
        past.Past("convert", 200, 2.5, None, "here", 3.0),
    ]
    assert [entry.stage for entry in cache.past()] == ["convert", "convert", "chunk"]


def test_history_reads_only_its_newest_part(tmp_path, monkeypatch):
    path = tmp_path / "history.jsonl"
    for number in range(100):
        past.append(path, past.Past("convert", number, 1.0, None))
    monkeypatch.setattr(past, "_READ_BYTES", 1000)
    found = past.read(path)
    assert 5 < len(found) < 20
    assert found[-1].work == 99


def test_write_json_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    disk.write_json(path, {"a": 1})
    with pytest.raises(ValueError):
        disk.write_json(path, {"a": float("nan")})

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk.os, "fsync", full)
    with pytest.raises(OSError):
        disk.write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [found.name for found in tmp_path.iterdir()] == ["x.json"]


def test_remove_tree_also_takes_read_only_folders(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("x")
    os.chmod(tmp_path / "a" / "b", 0o500)
    disk.remove_tree(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    disk.remove_tree(tmp_path / "a")


def test_lock_files_of_the_dead_go_and_those_of_the_living_stay(tmp_path):
    process = spawn("with cache.lock('convert', KEY): say('held'); sys.stdin.readline()", tmp_path / "cache")
    process.stdout.readline()
    with Store(tmp_path / "cache") as cache:
        dead = cache.root / "locks" / f"chunk-{KEY}.lock"
        dead.touch()
        cache.sweep_tmp()
        assert not dead.exists() and (cache.root / "locks" / f"convert-{KEY}.lock").exists()
        process.kill()
        process.communicate()
        cache.sweep_tmp()
        assert {path.name for path in (cache.root / "locks").iterdir()} == {"users.lock", "tmp.lock"}


def test_many_processes_that_meet_one_damaged_artifact_make_it_again_once(tmp_path):
    with Store(tmp_path / "cache") as cache:
        for number in range(20):
            (put(cache, f"{number:064x}") / "model.mlpackage" / "weight.bin").write_bytes(b"")
    code = """
for number in range(20):
    key = f"{number:064x}"
    with cache.lock("convert", key):
        if cache.fault("convert", key, {}):
            with open(a[1], "a") as made:
                made.write(f"{number}\\n")
            cache.remove("convert", key)
            cache.commit(filled(key), "convert", key, OK)
"""
    trio = [spawn(code, tmp_path / "cache", tmp_path / "made") for _ in range(3)]
    for process in trio:
        end(process)
    assert sorted(map(int, (tmp_path / "made").read_text().split())) == list(range(20))


def test_kill_9_while_a_damaged_artifact_is_deleted_leaves_absence(tmp_path):
    with Store(tmp_path / "cache") as cache:
        put(cache)
    code = """
def stop(*_):
    say("here"); time.sleep(60)
store.disk.remove_tree = stop
cache.remove("convert", KEY)
"""
    process = spawn(code, tmp_path / "cache")
    assert process.stdout.readline() == "here\n"
    process.kill()
    process.communicate()
    with Store(tmp_path / "cache") as cache:
        assert not cache.path("convert", KEY).exists() and len(cache.sweep_tmp()) == 1
        assert list((cache.root / "tmp").iterdir()) == [] and put(cache) == cache.lookup("convert", KEY)
