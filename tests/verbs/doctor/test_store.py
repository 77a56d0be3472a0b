"""`doctor store=URL`: can this machine write, read and delete there?"""

import pytest

from ane_sweep.errors import ConfigError
from ane_sweep.store import remote
from ane_sweep.verbs.doctor import doctor, probes


@pytest.fixture(autouse=True)
def once(monkeypatch):
    monkeypatch.setattr(remote, "PAUSES", ())


def test_a_store_is_written_read_and_left_as_it_was(tmp_path):
    found = probes.store(f"{tmp_path}/nfs")
    assert found.can and found.needed and "written, read back and deleted" in found.evidence
    assert not [path for path in (tmp_path / "nfs").rglob("*") if path.is_file()]


def test_one_that_can_only_be_read_is_a_no_that_says_so(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError("Access Denied")

    monkeypatch.setattr(remote, "_put", refuse)
    found = probes.store(f"{tmp_path}/nfs")
    assert not found.can and "can be read, may not be written: Access Denied" in found.evidence


def test_one_out_of_reach_says_why(tmp_path):
    found = probes.store(f"{tmp_path}/not/mounted")
    assert not found.can and "is it mounted?" in found.evidence


def test_a_password_is_refused_before_any_probe():
    with pytest.raises(ConfigError, match="environment"):
        doctor(["store=sftp://me:secret@host/folder"])
