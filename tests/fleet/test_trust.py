"""Who may reach a fleet: addresses, certificates, versions, and that no secret travels."""

import ssl
import stat

import msgspec
import pytest

from ane_sweep.__main__ import main
from ane_sweep.errors import ConfigError
from ane_sweep.fleet import address, certificates, link, members, service

SETTINGS = {"executor": {"name": "dask", "address": "tls://127.0.0.1:1", "certificates": None, "wait_s": 0}}


@pytest.mark.parametrize(
    "text", ["tls://hub.local:8786", "tcp://127.0.0.1:1", "tcp://localhost:8786", "tcp://[::1]:8786"]
)
def test_tls_and_loopback_are_taken(text):
    assert address.checked(text) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tcp://10.0.0.7:8786", "neither loopback nor TLS"),
        ("tcp://0.0.0.0:8786", "neither loopback nor TLS"),
        ("hub.local:8786", "no address of a scheduler"),
        ("tls://hub.local", "no address of a scheduler"),
        ("tls://hub.local:99999", "no address of a scheduler"),
        ("ucx://hub.local:8786", "no address of a scheduler"),
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


def test_tls_without_certificates_says_how_to_make_them(tmp_path):
    with pytest.raises(ConfigError, match="fleet init"):
        link.security("tls://127.0.0.1:8786", tmp_path)
    assert link.security("tcp://127.0.0.1:8786", tmp_path) is None


def test_daskss_own_programs_are_started_with_tls_with_the_dashboard_on_loopback_and_no_retry(tmp_path):
    certificates.make(tmp_path / "c")
    serves = service.scheduler("tls://0.0.0.0:8786", tmp_path / "c")
    works = service.worker("tls://hub:8786", tmp_path / "c", "m4-a", {"PREP": 2, "TIME": 1, "NAME-m4-a": 1e6}, tmp_path)
    for started in (serves, works):
        assert {"--tls-ca-file", "--tls-cert", "--tls-key"} <= set(started.command)
        assert started.environment["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"] == "0"
        assert started.environment["DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED"] == "false"
    assert serves.command[serves.command.index("--dashboard-address") + 1] == "127.0.0.1:8787"
    assert works.command[works.command.index("--nthreads") + 1] == "4", "each waits for a child of its own"
    assert "PREP=2 TIME=1 NAME-m4-a=1e+06" in works.command


class Client:
    """A scheduler's workers, as they answer."""

    def __init__(self, *said: object) -> None:
        self.said = said

    def run(self, function, on_error):
        return {f"tls://10.0.0.{number}:1": one for number, one in enumerate(self.said)}


def _text(name: str, **tools: str) -> str:
    me = msgspec.structs.replace(members.me(), name=name, tools=members.tools() | tools)
    return msgspec.json.encode(me).decode()


def test_a_worker_of_other_versions_is_refused_by_its_name_and_what_differs():
    there, refused = members.of(
        Client(_text("a"), _text("b", coremltools="8.3"), _text("c", code="0"), ValueError("no"))
    )
    assert [one.name for one in there] == ["a"]
    assert refused[0].startswith("b: refused, as its coremltools 8.3 (here ") and "install the same there" in refused[0]
    assert "c: refused, as its code 0" in refused[1] and "gives no facts" in refused[2]


def test_two_workers_of_one_name_are_told():
    assert "another worker has that name" in members.of(Client(_text("a"), _text("a")))[1][0]


def test_a_password_in_the_store_is_refused_and_not_repeated(tmp_path):
    settings = {**SETTINGS, "store": "s3://key:verysecret@host/bucket"}
    with pytest.raises(ConfigError, match="no user and no password") as refused:
        members.places(settings, tmp_path, {None}, wait=False)
    assert "verysecret" not in str(refused.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required"),
        (["wroker"], "did you mean|unknown"),
        (["worker"], "which scheduler"),
        (["status", "tcp://10.0.0.7:1"], "neither loopback nor TLS"),
        (["worker", "tls://hub:1", "--prepare", "many"], "no whole number"),
        (["worker", "tls://hub:1", "--name", "a b"], "expected letters"),
    ],
)
def test_a_wrong_word_is_told_and_nothing_is_started(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fleet", *words]) == 2
    import re

    assert re.search(said, capsys.readouterr().err) and not list(tmp_path.iterdir())
