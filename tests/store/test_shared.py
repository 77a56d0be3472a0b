"""The store that machines share: complete or absent, held to its digests, and no cell's trouble whatever it does."""

import errno
import json
import threading
from pathlib import Path

import fsspec
import pytest

from ane_sweep.bridge.task import TaskResult
from ane_sweep.errors import ConfigError
from ane_sweep.store import files, remote, shared
from ane_sweep.store.cache import Store

KEY, OTHER = "ab" + "0" * 62, "cd" + "0" * 62
WEIGHTS = b"weights" * 1000


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(remote, "PAUSES", (0.0, 0.0))


@pytest.fixture(params=["folder", "memory"])
def url(request, tmp_path):
    if request.param == "folder":
        return f"{tmp_path}/nfs"
    fsspec.filesystem("memory").store.clear()
    return "memory://bucket/ane"


@pytest.fixture
def here(tmp_path):
    with Store(tmp_path / "here") as cache:
        yield cache


@pytest.fixture
def there(tmp_path):
    with Store(tmp_path / "there") as cache:
        yield cache


def made(cache: Store, key: str = KEY, stage: str = "convert", content: bytes = WEIGHTS, inputs=None) -> Path:
    aside = cache.stage_aside(stage, key)
    (aside / "model.mlpackage" / "Data").mkdir(parents=True)
    (aside / "model.mlpackage" / "Data" / "weight.bin").write_bytes(content)
    (aside / "model.mlpackage" / "Manifest.json").write_text(f'"{stage}"')
    return cache.commit(aside, stage, key, TaskResult(stage, key, "ok", facts={"ops": 3}), inputs or {})


def held(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def everything(url: str) -> dict[str, bytes]:
    fs, root = fsspec.url_to_fs(url)
    return {name.removeprefix(root + "/"): fs.cat_file(name) for name in fs.find(root)}


def spoil(url: str, name: str, content: bytes) -> None:
    fs, root = fsspec.url_to_fs(url)
    fs.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
    fs.pipe_file(f"{root}/{name}", content)


def blob(folder: Path, name: str = "model.mlpackage/Data/weight.bin") -> str:
    (digest,) = [file.sha256 for file in files.artifact_files(folder) if file.name == name]
    return f"cas/{digest[:2]}/{digest}"


def test_what_one_machine_made_another_has_byte_for_byte(url, here, there):
    folder = made(here)
    store = shared.Shared(url)
    assert not store.has("convert", KEY) and store.pull(there, "convert", KEY) is None
    store.push(here, "convert", KEY)
    other = shared.Shared(url)
    assert other.has("convert", KEY)
    pulled = other.pull(there, "convert", KEY)
    assert pulled == there.path("convert", KEY) and held(pulled) == held(folder)
    assert there.intact("convert", KEY) == pulled
    assert other.tally.pulled == [("convert", KEY)] and not list((there.root / "tmp").glob("*/convert*"))


def test_what_is_here_or_there_already_travels_no_second_time(url, here, there):
    made(here), made(here, OTHER, "compress")
    store = shared.Shared(url)
    store.push(here, "convert", KEY)
    first = everything(url)
    store.push(here, "compress", OTHER)
    new = everything(url).keys() - first.keys()
    assert sorted(name.split("/")[0] for name in new) == ["ac", "cas", "cas"]  # its manifest, result and Manifest.json
    assert store.tally.pushed_bytes < 2 * len(WEIGHTS)
    store.push(here, "convert", KEY)
    assert store.tally.pushed == [("convert", KEY), ("compress", OTHER)]
    store.pull(there, "convert", KEY), store.pull(there, "convert", KEY)
    assert store.tally.pulled == [("convert", KEY)]


def test_figures_of_a_machine_stay_on_it(url, here):
    made(here, stage="score")
    store = shared.Shared(url)
    store.push(here, "score", KEY)
    assert everything(url) == {} and not store.has("score", KEY)
    assert {"convert", "compress", "chunk", "reference", "compile", "predict"} <= shared.SHARED
    assert not {"score", "evaluate", "latency", "throughput", "evidence", "load", "place", "fetch"} & shared.SHARED


@pytest.mark.parametrize("how", ["other bytes", "cut", "gone"])
def test_a_damaged_file_is_refused_by_its_digest_and_replaced(url, here, there, how):
    folder, told = made(here), []
    shared.Shared(url).push(here, "convert", KEY)
    if how == "gone":
        fs, root = fsspec.url_to_fs(url)
        fs.rm_file(f"{root}/{blob(folder)}")
    else:
        spoil(url, blob(folder), b"W" + WEIGHTS[1:] if how == "other bytes" else WEIGHTS[:99])
    store = shared.Shared(url, told.append)
    assert store.pull(there, "convert", KEY) is None and there.lookup("convert", KEY) is None
    assert len(told) == 1 and blob(folder) in told[0]
    assert blob(folder) in store.damage("convert", KEY) and not store.has("convert", KEY)
    made(there)
    store.push(there, "convert", KEY)
    assert everything(url)[blob(folder)] == WEIGHTS and store.has("convert", KEY)
    there.remove("convert", KEY)
    assert held(shared.Shared(url).pull(there, "convert", KEY)) == held(folder)


@pytest.mark.parametrize("text", [b"", b"{", b'{"schema": 1}', b"[" * 100_000, b"\xff\xfe"])
def test_a_torn_manifest_is_absent_and_replaced(url, here, there, text):
    made(here)
    store = shared.Shared(url)
    store.push(here, "convert", KEY)
    place = f"ac/convert/ab/{KEY}.json"
    whole = everything(url)[place]
    spoil(url, place, text)
    assert not store.has("convert", KEY) and store.pull(there, "convert", KEY) is None
    store.push(here, "convert", KEY)
    assert everything(url)[place] == whole


@pytest.mark.parametrize(
    "name",
    ["../../out", "/etc/cron.d/job", "a/../../b", "result.json", "files.json", "a\0b", "x" * 300, "model.mlpackage"],
)
def test_a_manifest_names_nothing_outside_its_folder_and_what_no_disk_holds_is_not_pulled(url, here, there, name):
    made(here)
    store = shared.Shared(url)
    store.push(here, "convert", KEY)
    place = f"ac/convert/ab/{KEY}.json"
    plain = json.loads(everything(url)[place])
    plain["listing"]["files"][0]["name"] = name
    spoil(url, place, json.dumps(plain).encode())
    assert store.pull(there, "convert", KEY) is None and there.lookup("convert", KEY) is None


def test_a_manifest_of_another_task_is_not_taken(url, here, there):
    made(here)
    store = shared.Shared(url)
    store.push(here, "convert", KEY)
    spoil(url, f"ac/convert/cd/{OTHER}.json", everything(url)[f"ac/convert/ab/{KEY}.json"])
    assert store.pull(there, "convert", OTHER) is None


def test_what_was_made_from_something_else_is_not_pulled_and_is_replaced(url, here, there):
    one, two = ({"program": files.Origin(OTHER, digest * 64)} for digest in "12")
    made(here, stage="chunk", inputs=one)
    store = shared.Shared(url)
    store.push(here, "chunk", KEY)
    assert store.pull(there, "chunk", KEY, two) is None
    made(there, stage="chunk", inputs=two)
    store.push(there, "chunk", KEY)
    there.remove("chunk", KEY)
    assert store.pull(there, "chunk", KEY, two) is not None


def test_what_is_damaged_here_is_not_pushed(url, here):
    (made(here) / "model.mlpackage" / "Data" / "weight.bin").write_bytes(b"W" + WEIGHTS[1:])
    shared.Shared(url).push(here, "convert", KEY)
    assert everything(url) == {}


def test_killed_while_it_pushes_a_machine_leaves_nothing_that_another_would_take(url, here, there, monkeypatch):
    made(here)

    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    monkeypatch.setattr(remote.Remote, "write", die)
    with pytest.raises(Killed):
        shared.Shared(url).push(here, "convert", KEY)
    monkeypatch.undo()
    monkeypatch.setattr(remote, "PAUSES", ())
    assert {name.split("/")[0] for name in everything(url)} == {"cas"}
    store = shared.Shared(url)
    assert not store.has("convert", KEY) and store.pull(there, "convert", KEY) is None
    store.push(here, "convert", KEY)
    assert store.pull(there, "convert", KEY) is not None


def test_many_at_once_push_and_pull_one_key(tmp_path):
    url = f"{tmp_path}/nfs"  # fsspec's memory has one reader at a time
    caches = [Store(tmp_path / f"machine{number}") for number in range(6)]
    barrier, found, told = threading.Barrier(6), [], []

    def machine(cache: Store) -> None:
        store = shared.Shared(url, told.append)
        made(cache)
        barrier.wait()
        store.push(cache, "convert", KEY)
        cache.remove("convert", KEY)
        found.append(store.pull(cache, "convert", KEY))

    threads = [threading.Thread(target=machine, args=(cache,)) for cache in caches]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(found) == 6 and None not in found and told == []
    assert len(everything(url)) == 4  # two files, a result, a manifest: nothing under tmp/
    [cache.close() for cache in caches]


# Trouble: said once, and no cell's


class Broken:
    """In place of the file system: fails as told, counts."""

    def __init__(self, error: Exception, times: int = 10**9):
        self.error, self.times, self.calls = error, times, 0

    def __call__(self, url, scheme):
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return fsspec.url_to_fs(url)


def test_what_the_network_lost_is_tried_again(url, here, there, monkeypatch):
    made(here)
    monkeypatch.setattr(remote, "_connected", broken := Broken(ConnectionResetError("cut"), times=2))
    told = []
    store = shared.Shared(url, told.append)
    store.push(here, "convert", KEY)
    assert told == [] and store.tally.pushed == [("convert", KEY)] and broken.calls == 3


def test_a_store_out_of_reach_is_said_once_and_left_alone(url, here, there, monkeypatch):
    made(here), made(here, OTHER)
    monkeypatch.setattr(remote, "_connected", broken := Broken(TimeoutError("no answer in 5 s")))
    told = []
    store = shared.Shared(url, told.append)
    for key in (KEY, OTHER):
        assert store.pull(there, "convert", key) is None
        store.push(here, "convert", key)
    assert broken.calls == 6 and len(told) == 2  # three attempts to read, three to write
    assert "no answer in 5 s" in told[0] and "made here" in told[0] and "stays in the cache" in told[1]
    assert store.tally.unpushed.keys() == {("convert", KEY), ("convert", OTHER)}
    monkeypatch.undo()
    store._rests.clear()  # as after REST_S
    store.push(here, "convert", KEY)
    assert store.tally.unpushed.keys() == {("convert", OTHER)}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no space left on it"),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system"),
        (PermissionError("Access Denied"), "Access Denied"),
    ],
)
def test_a_store_that_is_full_or_read_only_is_still_read(url, here, there, monkeypatch, error, said):
    made(here), made(here, OTHER)
    shared.Shared(url).push(here, "convert", KEY)

    def refuse(*_):
        raise error

    monkeypatch.setattr(remote, "_put", refuse)
    told = []
    store = shared.Shared(url, told.append)
    store.push(here, "convert", OTHER)
    store.push(here, "convert", OTHER)
    assert len(told) == 1 and "cannot be written" in told[0] and said in told[0]
    assert said in store.tally.unpushed["convert", OTHER]
    assert store.pull(there, "convert", KEY) is not None


def test_a_folder_that_is_not_mounted_is_not_made(tmp_path, here):
    made(here)
    told = []
    store = shared.Shared(f"{tmp_path}/mnt/nfs", told.append)
    store.push(here, "convert", KEY)
    assert not (tmp_path / "mnt").exists() and "is it mounted?" in told[0]


# Addresses


@pytest.mark.parametrize(
    "url",
    [
        "sftp://me:hunter2@host/folder",
        "s3://AKIA:hunter2/abc@bucket/folder",
        "https://host/cache?token=hunter2",
        "simplecache::sftp://me:hunter2@host/folder",
    ],
)
def test_an_address_with_a_secret_is_refused_and_not_repeated(url):
    with pytest.raises(ConfigError, match="environment") as caught:
        shared.Shared(url)
    assert "hunter2" not in str(caught.value)


def test_an_address_of_no_file_system_names_those_there_are(monkeypatch):
    with pytest.raises(ConfigError, match=r"no file system is called s4; .*s3, sftp"):
        shared.Shared("s4://bucket")
    with pytest.raises(ConfigError, match="expected a folder or a URL"):
        shared.Shared(" ")

    def lacking(scheme):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "get_filesystem_class", lacking)
    with pytest.raises(ConfigError, match="pip install s3fs"):
        shared.Shared("s3://bucket")


def test_a_user_alone_is_no_secret():
    assert remote.problem("store", "sftp://me@host/folder") is None
