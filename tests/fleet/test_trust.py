"""Who may reach a fleet: addresses, certificates, versions, and that no secret travels."""

import ssl
import stat
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from ane_sweep import folders
from ane_sweep.__main__ import main
from ane_sweep.bridge.settings import read_run
from ane_sweep.errors import ConfigError
from ane_sweep.fleet import address, certificates, link, members

SETTINGS = {"executor": {"name": "dask", "address": "tls://127.0.0.1:1", "certificates": None, "wait_s": 0}}


@pytest.mark.parametrize(
    "text", ["tls://hub.local:8786", "tls://127.0.0.1:1", "tls://localhost:8786", "tls://[::1]:8786"]
)
def test_tls_is_taken(text):
    assert address.checked(text) == text and address.is_loopback(text) == ("hub" not in text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tcp://10.0.0.7:8786", "without TLS"),
        ("tcp://0.0.0.0:8786", "without TLS"),
        ("tcp://127.0.0.1:8786", "without TLS"),
        ("hub.local:8786", "not the address of a scheduler"),
        ("tls://hub.local", "not the address of a scheduler"),
        ("tls://hub.local:99999", "not the address of a scheduler"),
        ("ucx://hub.local:8786", "not the address of a scheduler"),
        ("tls://me:secret@hub.local:8786", "no user and no password"),
    ],
)
def test_any_other_address_is_refused_with_the_form_and_without_its_password(text, said):
    with pytest.raises(ConfigError, match=said) as refused:
        address.checked(text)
    assert "tls://" in str(refused.value) and "secret" not in str(refused.value)


def test_init_makes_certificates_that_show_each_other_and_are_for_their_owner_alone(tmp_path, capsys):
    place = tmp_path / "shelf"
    assert main(["fleet", "init", str(place)]) == 0
    assert sorted(path.name for path in place.iterdir()) == ["ca.pem", "fleet.key", "fleet.pem"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    before = {path: path.read_bytes() for path in place.iterdir()}
    capsys.readouterr()
    assert main(["fleet", "init", str(place)]) == 2 and "left as they are" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in place.iterdir()}
    other = tmp_path / "other"
    certificates.make(other)
    assert _shaken(place, place) and not _shaken(place, other), "another authority's certificate is refused"


def _shaken(server, client) -> bool:
    """Whether two ends that each ask for a certificate take the other's."""
    ends = []
    for place, side in ((server, ssl.PROTOCOL_TLS_SERVER), (client, ssl.PROTOCOL_TLS_CLIENT)):
        context = ssl.SSLContext(side)
        context.check_hostname, context.verify_mode = False, ssl.CERT_REQUIRED
        context.load_verify_locations(place / certificates.AUTHORITY)
        context.load_cert_chain(place / certificates.CERTIFICATE, place / certificates.KEY)
        ends.append(context)
    a_to_b, b_to_a = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = ends[0].wrap_bio(a_to_b, b_to_a, server_side=True)
    two = ends[1].wrap_bio(b_to_a, a_to_b)
    done = set()
    for _ in range(10):
        for end in (two, one):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return False
    return len(done) == 2


def test_a_fleet_on_loopback_makes_certificates_of_its_own_once_and_no_other_fleet_does(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(folders.sys, "platform", "linux")
    own = certificates.folder(None)
    with pytest.raises(ConfigError, match="fleet init"):
        certificates.ensure(own, "tls://hub.local:8786")
    with pytest.raises(ConfigError, match="fleet init"):  # a folder that was named is not made by a slip of the pen
        certificates.ensure(tmp_path / "shelf", "tls://127.0.0.1:8786")
    assert not own.exists()
    with ThreadPoolExecutor(4) as at_once:
        list(at_once.map(lambda _: certificates.ensure(own, "tls://127.0.0.1:8786"), range(4)))
    assert {stat.S_IMODE(path.stat().st_mode) for path in own.iterdir()} == {0o600}
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert [path.name for path in own.parent.iterdir()] == ["fleet"], "nothing half made is left"
    before = (own / certificates.KEY).read_bytes()
    certificates.ensure(own, "tls://127.0.0.1:8786")
    assert (own / certificates.KEY).read_bytes() == before and _shaken(own, own)


def test_without_certificates_nothing_is_connected(tmp_path):
    with pytest.raises(ConfigError, match="fleet init"):
        link.connected("tls://127.0.0.1:8786", tmp_path)


def test_dask_is_set_to_refuse_what_is_not_encrypted_and_to_retry_nothing(tmp_path):
    certificates.make(tmp_path / "c")
    assert link.security(tmp_path / "c").require_encryption
    import dask

    assert dask.config.get("distributed.comm.require-encryption") is True
    assert dask.config.get("distributed.scheduler.allowed-failures") == 0
    assert dask.config.get("distributed.worker.profile.enabled") is False


class Client:
    """A scheduler's workers, as they answer."""

    def __init__(self, *said: object) -> None:
        self.said = said

    def scheduler_info(self, n_workers):
        assert n_workers == -1, "all of them"
        return {"workers": {f"tls://10.0.0.{number}:1": {members.FACTS: one} for number, one in enumerate(self.said)}}


def _text(name: str, **tools: str) -> str:
    me = msgspec.structs.replace(members.describe_self(), name=name, tools=members.tools() | tools)
    return msgspec.json.encode(me).decode()


def test_a_worker_of_other_versions_is_refused_by_its_name_and_what_differs():
    there, refused = members.list_members(Client(_text("a"), _text("b", coremltools="8.3"), _text("c", code="0"), None))
    assert [one.name for one in there] == ["a"]
    assert refused[0].startswith("b: refused, as its coremltools 8.3 (here ") and "install the same there" in refused[0]
    assert "c: refused, as its code 0" in refused[1] and "did not start it" in refused[2]


def test_a_password_in_the_store_is_refused_and_not_repeated():
    settings = {**SETTINGS, "store": "s3://key:verysecret@host/bucket"}
    with pytest.raises(ConfigError, match="no user and no password") as refused:
        members.find_places(read_run(settings), {None}, wait=False)
    assert "verysecret" not in str(refused.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required"),
        (["wroker"], "did you mean|unknown"),
        (["worker"], "which scheduler"),
        (["status", "tcp://10.0.0.7:1"], "without TLS"),
        (["scheduler", "tcp://127.0.0.1:1"], "without TLS"),
        (["worker", "tcp://127.0.0.1:1"], "without TLS"),
        (["worker", "tls://hub:1", "tls://hub:2"], "too many words"),
        (["worker", "tls://hub:1", "--port", "0"], "0: expected a port from 1 to 65,535"),
        (["worker", "tls://hub:1"], "no certificates"),
        (["write", "systemd", "worker", "files"], "ADDRESS"),
        (
            ["write", "systemd", "worker", "files", "tls://hub:1", "--store", "s3://me:verysecret@host/b"],
            "holds no password",
        ),
        (["write", "upstart", "worker", "files", "tls://127.0.0.1:1"], "systemd or launchd"),
        (["worker", "tls://hub:1", "--prepare", "many"], "many: expected a whole number"),
        (["worker", "tls://hub:1", "--name", "a b"], "expected letters"),
    ],
)
def test_a_wrong_word_is_told_and_nothing_is_started(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(certificates.VARIABLE, str(tmp_path / "none"))
    assert main(["fleet", *words]) == 2
    import re

    err = capsys.readouterr().err
    assert re.search(said, err) and "verysecret" not in err and not list(tmp_path.iterdir())
