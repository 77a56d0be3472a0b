"""What Core ML leaves behind: each content once, what is old or out of reach left with a reason."""

import os
import time
from pathlib import Path

from ane_sweep.hwx import copies

SAMPLES = Path(__file__).parent / "samples"


def test_only_what_is_new_is_taken_and_each_content_once(tmp_path):
    cache = tmp_path / "home" / "Library/Caches/python3/com.apple.e5rt.e5bundlecache/25G1/AB"
    service = tmp_path / "aned" / "25G1"
    for folder in (cache, service):
        folder.mkdir(parents=True)
        (folder / "model.hwx").write_bytes((SAMPLES / "conv.hwx").read_bytes())
    (service / "net.plist").write_bytes((SAMPLES / "net.plist").read_bytes())
    (service / "old.hwx").write_bytes(b"old")
    os.utime(service / "old.hwx", (1, 1))
    found = copies.copy_programs(tmp_path / "home", tmp_path / "kept", time.time() - 60, tmp_path / "aned")
    assert [name.split(".", 1)[1] for name in found.files] == ["hwx", "net.plist"] and found.skipped == []
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == found.files


def test_a_cache_that_may_not_be_read_is_said(tmp_path, monkeypatch):
    service = tmp_path / "aned"
    service.mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = copies.copy_programs(tmp_path, tmp_path / "kept", 0, service)
    assert found.files == [] and found.skipped == [
        f"{service} cannot be read by this user, so the programs of the service stay unseen"
    ]


def test_where_there_is_nothing_nothing_is_made(tmp_path):
    found = copies.copy_programs(tmp_path, tmp_path / "kept", 0, tmp_path / "none")
    assert (found.files, found.skipped) == ([], []) and not (tmp_path / "kept").exists()


def test_what_is_too_large_is_counted_and_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(copies, "MAX_BYTES", 2)
    service = tmp_path / "aned"
    service.mkdir()
    (service / "m.hwx").write_bytes(b"123")
    found = copies.copy_programs(tmp_path, tmp_path / "kept", 0, service)
    assert found.files == [] and found.skipped[0].startswith("m.hwx of 0 MB was not kept")
