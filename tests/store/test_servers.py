"""The store behind servers that people have: S3 with TLS on, SFTP, HTTP. Credentials come from the environment alone."""

import shutil
import threading

import fsspec
import pytest
import stores
from fsspec.config import conf, set_conf_env

from ane_sweep.bridge.task import TaskResult
from ane_sweep.store import files, remote, shared, transports
from ane_sweep.store.cache import Store

KEY, OTHER = "ab" + "0" * 62, "cd" + "0" * 62
WEIGHTS = b"weights" * 100_000


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(remote, "PAUSES", (0.0,))


@pytest.fixture(params=["s3", "sftp", "http"])
def url(request, tmp_path, monkeypatch):
    """A store behind a server, reached as the environment says."""
    served = tmp_path / "served"
    served.mkdir()
    if request.param == "http":
        with stores.web(served) as address:
            yield f"{address}/ane"
        return
    with stores.s3(served) if request.param == "s3" else stores.sftp(served, tmp_path / "home") as (address, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        before = {**conf}
        set_conf_env(conf)  # as fsspec does in a process that begins
        if request.param == "s3":
            fsspec.filesystem("s3", skip_instance_cache=True).mkdir("lab")
        yield address
        conf.clear()
        conf.update(before)


def made(cache: Store, key: str = KEY, stage: str = "convert", content: bytes = WEIGHTS):
    aside = cache.stage_aside(stage, key)
    (aside / "weight.bin").write_bytes(content)
    (aside / "Manifest.json").write_text(f'"{key}"')
    return cache.commit(aside, stage, key, TaskResult(stage, key, "ok"))


@pytest.mark.slow
@pytest.mark.ci
def test_an_artifact_goes_there_and_back_and_equal_weights_go_once(url, tmp_path):
    with Store(tmp_path / "here") as here, Store(tmp_path / "there") as there:
        folder = made(here)
        made(here, OTHER, "compress")
        store = shared.Shared(url, (told := []).append)
        assert not store.has("convert", KEY) and store.pull(there, "convert", KEY) is None
        store.push(here, "convert", KEY)
        store.push(here, "compress", OTHER)
        assert told == [] and len(store.tally.pushed) == 2
        assert len(WEIGHTS) < store.tally.pushed_bytes < 1.1 * len(WEIGHTS)
        other = shared.Shared(url, told.append)
        for stage, key in (("convert", KEY), ("compress", OTHER)):
            assert other.has(stage, key) and other.pull(there, stage, key) is not None, told
        assert (there.path("convert", KEY) / "weight.bin").read_bytes() == WEIGHTS
        assert files.digest(there.path("convert", KEY)) == files.digest(folder)

        digest = files.sha256(folder / "weight.bin")
        (bad := tmp_path / "bad").write_bytes(b"W" + WEIGHTS[1:])
        remote.Remote(url).put(f"cas/{digest[:2]}/{digest}", bad)
        there.remove("convert", KEY)
        third = shared.Shared(url, told.append)
        assert third.pull(there, "convert", KEY) is None and digest in told[0]
        made(there)
        third.push(there, "convert", KEY)
        assert shared.Shared(url, told.append).pull(there, "convert", KEY) is not None
        assert remote.Remote(url).size("cas/none") is None


def test_a_server_that_takes_no_put_is_read_only(tmp_path):
    with Store(tmp_path / "here") as here, stores.web(tmp_path, writable=False) as url:
        made(here)
        store = shared.Shared(url, (told := []).append)
        store.push(here, "convert", KEY)
        assert len(told) == 1 and "cannot be written: 405" in told[0] and store._rests["write"][0] == float("inf")
        assert not store.has("convert", KEY)


@pytest.mark.slow
@pytest.mark.ci
def test_an_s3_server_of_an_unknown_authority_is_refused(tmp_path, monkeypatch):
    with stores.s3(tmp_path) as (url, variables), Store(tmp_path / "here") as here:
        made(here)
        for name, value in variables.items():
            if name != "AWS_CA_BUNDLE":
                monkeypatch.setenv(name, value)
        store = shared.Shared(url, (told := []).append)
        store.push(here, "convert", KEY)
        assert "certificate" in told[0].lower() and not store.tally.pushed


def test_a_host_that_nobody_knows_is_refused_before_the_password_is_told(tmp_path, monkeypatch):
    with stores.sftp(tmp_path, tmp_path / "home") as (url, variables), Store(tmp_path / "here") as here:
        made(here)
        shutil.rmtree(tmp_path / "home")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        store = shared.Shared(url, (told := []).append)
        store.push(here, "convert", KEY)
        assert "not found in known_hosts" in told[0] and not (tmp_path / "ane-sweep").exists()


def test_ctrl_c_gives_up_what_is_on_its_way(tmp_path, monkeypatch):
    """As the sweep's signal handler does: `stop` is set while a piece arrives."""
    check = transports.Halting.call

    def pressed(self, *args, **kwargs):
        self.stop.set()
        check(self, *args, **kwargs)

    monkeypatch.setattr(transports.Halting, "call", pressed)
    with Store(tmp_path / "here") as here, stores.web(tmp_path) as url:
        made(here)
        store = shared.Shared(url, (told := []).append, stop=threading.Event())
        store.push(here, "convert", KEY)
        assert (
            told == []
            and not store.tally.pushed
            and store.tally.unpushed == {("convert", KEY): "the sweep was stopped"}
        )
        assert not (tmp_path / "ac").exists() and store.pull(here, "convert", OTHER) is None
