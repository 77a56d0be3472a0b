"""Stores that lie, send without end, redirect or never answer: no cell is lost to one, and nobody waits for one."""

import gzip
import http.server
import json
import os
import resource
import threading
import time

import pytest
import stores

from ane_sweep.bridge.task import TaskResult
from ane_sweep.store import files, remote, shared
from ane_sweep.store.cache import Store

KEY = "ab" + "0" * 62
WEIGHTS = b"weights" * 1000
PLACE = f"ac/convert/ab/{KEY}.json"


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(remote, "PAUSES", (0.0, 0.0))


def made(cache, content=WEIGHTS):
    aside = cache.stage_aside("convert", KEY)
    (aside / "weight.bin").write_bytes(content)
    return cache.commit(aside, "convert", KEY, TaskResult("convert", KEY, "ok"))


@pytest.fixture
def served(tmp_path):
    """A folder that is a store with one artifact."""
    with Store(tmp_path / "here") as here:
        made(here)
        shared.Shared(str(tmp_path / "served")).push(here, "convert", KEY)
    return tmp_path / "served"


@pytest.fixture
def there(tmp_path):
    with Store(tmp_path / "there") as cache:
        yield cache


def weights(served):
    (path,) = [path for path in served.glob("cas/*/*") if path.stat().st_size == len(WEIGHTS)]
    return path


class Server(http.server.ThreadingHTTPServer):
    """Answers with a function of the request; counts what it has sent."""

    daemon_threads = True
    sent = 0
    handle_error = lambda *_: None  # noqa: E731  whoever hangs up


def serve(answer):
    class Handler(http.server.BaseHTTPRequestHandler):
        do_GET = do_HEAD = lambda self: answer(self)
        log_message = lambda *_: None  # noqa: E731

    return Server(("127.0.0.1", 0), Handler)


def send(handler, body, **headers):
    handler.send_response(200)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def endless(handler):
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(1 << 16))
        handler.server.sent += 1 << 16


def plain_or(served, odd, when):
    """An answer: the file that lies there, but `odd` for paths that `when` says."""

    def answer(handler):
        path = served / handler.path.removeprefix("/")
        if when(handler.path):
            odd(handler)
        elif path.is_file():
            send(handler, path.read_bytes())
        else:
            handler.send_error(404)

    return answer


@pytest.mark.parametrize("what", ["manifest", "file"])
def test_what_is_sent_without_end_is_cut_off(what, served, there):
    when = (lambda path: "/ac/" in path) if what == "manifest" else (lambda path: weights(served).name in path)
    server = serve(plain_or(served, endless, when))
    with stores.serving(server):
        store = shared.Shared(f"http://127.0.0.1:{server.server_port}", (told := []).append)
        assert store.pull(there, "convert", KEY) is None
        assert server.sent < 64 << 20
        assert "is refused" in told[0] and "is longer than" in told[0] and store.damage("convert", KEY) is not None
        assert not list((there.root / "tmp").glob("*/convert*"))  # what came of it is gone
    made(there)


def test_a_file_that_is_longer_than_its_manifest_says_is_cut_off_on_a_mounted_folder(served, there):
    weights(served).write_bytes(WEIGHTS + bytes(50 << 20))
    copied = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "sha256", lambda path: copied.append(path) or "")
        assert shared.Shared(str(served)).pull(there, "convert", KEY) is None
    assert copied == []  # it was never there in full


@pytest.mark.slow
@pytest.mark.parametrize("what", ["/ac/", pytest.param("/cas/", marks=pytest.mark.ci)])
def test_a_bomb_is_not_unpacked(what, served, there):
    bomb = gzip.compress(bytes(400 << 20))
    server = serve(plain_or(served, lambda one: send(one, bomb, Content_Encoding="gzip"), lambda path: what in path))
    with stores.serving(server):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        store = shared.Shared(f"http://127.0.0.1:{server.server_port}", (told := []).append)
        assert store.pull(there, "convert", KEY) is None
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB
    if what == "/cas/":
        assert f"is longer than {len(WEIGHTS)} bytes" in told[0]


@pytest.mark.parametrize("change", [{"files": []}, {"bytes": -1}])
def test_a_manifest_that_lists_nothing_or_less_is_none(change, served, there):
    plain = json.loads((served / PLACE).read_text())
    if "files" in change:
        plain["listing"]["files"] = []
    else:
        plain["listing"]["files"][0]["bytes"] = -1
    (served / PLACE).write_text(json.dumps(plain))
    store = shared.Shared(str(served))
    assert not store.has("convert", KEY) and store.pull(there, "convert", KEY) is None
    assert there.lookup("convert", KEY) is None
    made(there)
    store.push(there, "convert", KEY)
    assert json.loads((served / PLACE).read_text())["listing"]["files"]


def test_what_no_disk_has_room_for_is_not_begun(served, there):
    plain = json.loads((served / PLACE).read_text())
    plain["listing"]["files"][0]["bytes"] = 1 << 60
    (served / PLACE).write_text(json.dumps(plain))
    store = shared.Shared(str(served), (told := []).append)
    assert store.pull(there, "convert", KEY) is None and "free here" in told[0]


def test_an_empty_artifact_is_no_hit_and_gives_way(there):
    empty = there.commit(there.stage_aside("convert", KEY), "convert", KEY, TaskResult("convert", KEY, "ok"))
    assert empty.is_dir() and there.lookup("convert", KEY) is None
    assert there.fault("convert", KEY, {}) == "it holds no files"
    assert made(there) == there.lookup("convert", KEY)


@pytest.mark.parametrize("name", ["manifest", "file"])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_pipe_in_place_of_a_file_hangs_nobody(name, kind, served, there):
    path = served / PLACE if name == "manifest" else weights(served)
    path.unlink()
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    store, found = shared.Shared(str(served), (told := []).append), []
    thread = threading.Thread(target=lambda: found.append(store.pull(there, "convert", KEY)), daemon=True)
    thread.start()
    thread.join(20)
    assert found == [None] and "is refused" in told[0] and "is no regular file" in told[0]
    if kind == "pipe":
        made(there)
        store.push(there, "convert", KEY)
        assert path.is_file()  # it is replaced


@pytest.mark.parametrize("what", ["manifest", "file"])
def test_ctrl_c_does_not_wait_for_a_store_that_never_answers(what, served, there):
    asked = threading.Event()

    def silent(handler):
        asked.set()
        time.sleep(60)

    server = serve(plain_or(served, silent, lambda path: ("/ac/" if what == "manifest" else "/cas/") in path))
    with stores.serving(server):
        stop, told = threading.Event(), []
        store = shared.Shared(f"http://127.0.0.1:{server.server_port}", told.append, stop=stop)
        puller = threading.Thread(target=lambda: store.pull(there, "convert", KEY), daemon=True)
        puller.start()
        assert asked.wait(20)
        stop.set()
        puller.join(5)
        assert not puller.is_alive() and told == []


def test_a_redirect_stays_on_its_host(served, there, tmp_path):
    """To the same host and port it is followed; to another, where a store of anybody's lies, it is not."""
    with stores.web(served) as elsewhere:
        asked = []

        def redirect(handler):
            asked.append(handler.path)
            if handler.path.startswith("/near/"):
                path = served / handler.path.removeprefix("/near/")
                return send(handler, path.read_bytes()) if path.is_file() else handler.send_error(404)
            handler.send_response(302)
            to = elsewhere if handler.path.startswith("/far/") else "/near"
            handler.send_header("Location", to + handler.path.removeprefix("/far").removeprefix("/here"))
            handler.end_headers()

        server = serve(redirect)
        with stores.serving(server):
            base = f"http://127.0.0.1:{server.server_port}"
            store = shared.Shared(f"{base}/far", (told := []).append)
            assert store.pull(there, "convert", KEY) is None
            assert "redirects to http://127.0.0.1" in told[0] and len(told) == 1 and len(asked) == 1
            assert shared.Shared(f"{base}/here", told.append).pull(there, "convert", KEY) is not None, told
