"""Damaged and hostile bundles at the door that takes them: refused before anything is written, or shown by every verb."""

import json
import re
import shutil
import struct
import zipfile

import constructed
import pytest
from bundles.test_bundle import rewritten
from fuzz import hostile

from ane_sweep.__main__ import main
from ane_sweep.bridge.figures import Artifact, Look, Timing
from ane_sweep.bridge.record import FILE_NAME, read_records, varying_axes, write_records
from ane_sweep.bundles import bundle
from ane_sweep.tracking import describe, layout

READERS = (
    ["report"], ["report", "--json"], ["report", "--markdown"], ["compare", "last", "last"], ["history"], ["nightly"],
    ["compare", "last", "last", "--json"], ["history", "--json"], ["export", "AGAIN"],
)  # fmt: skip
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A bundle with all that a record can hold. Not to be changed."""
    out = tmp_path_factory.mktemp("source")
    folder = out / "runs" / constructed.STAMP
    records = constructed.records(8)
    for n, record in enumerate(records):
        record.cell |= {"precision_options": {"weights": {"bits": 4}}, "latency": {"samples": 3}, "effects": None}
        record.realised |= {
            "verdict": "agrees",
            "observed": "ane",
            "verdict_reasons": ["so"],
            "evidence": {"power": "off"},
        }
        record.timings = [
            Timing(
                k, 1.0 + n, 9.0, 2.0, warmup_ms=[1.5], samples_ms=[1.0 + n, 1.1 + n], notes=["odd"],
                gate=Look(False, 0.1, ["busy"]),
            )
            for k in (1, 2, 3)
        ]  # fmt: skip
        record.artifacts = [Artifact("model.mlmodel", str(out / "m"), 1, "a" * 64)]
    write_records(folder, records)
    moment = "2026-01-02T03:00:00+00:00"
    info = {"schema": 1, "stamp": folder.name, "command": ["-m", "model=gpt2"], "axes": ["chunks"], "cells": 8}
    (folder / "run.json").write_text(json.dumps({**info, "plan_key": "p", "started": moment, "finished": moment}))
    rates = {"own": 1e-3, "jump": 1e-4, "drift": None}
    op = {"index": 3, "psnr_db": 40.0, "name": "add_1", "type": "add", **rates}
    drift = {"psnr_db": 50.0, "model": "gpt2", "numerics": "fp16", "values": [[0, 80.0], [3, 40.0]]}
    (folder / "drift.json").write_text(json.dumps({**drift, "grown": [op], "lossy": [op], "blocks": [op]}))
    path = tmp_path_factory.mktemp("bundles") / "whole.zip"
    bundle.export(folder, path, out)
    return path


def takes_or_refuses(path, there, draw, capsys):
    """Import; where that is refused nothing is written, where not some other verbs show what came."""
    shutil.rmtree(there, ignore_errors=True)
    code = main(["import", str(path), f"out={there}"])
    said = capsys.readouterr()
    assert "Traceback" not in said.err and not CONTROL.search(said.out + said.err) and len(said.err) < 5_000
    if code == 2:
        assert said.err.startswith("error:") and not there.exists()
        return
    assert code == 0
    for verb in draw.sample(READERS, 3):
        main([*(str(path) + ".again" if word == "AGAIN" else word for word in verb), f"out={there}"])
        said = capsys.readouterr()
        assert "Traceback" not in said.err and not CONTROL.search(said.out + said.err), verb
    (folder,) = (there / "runs").iterdir()
    for file in folder.glob("report.*"):
        assert not CONTROL.search(file.read_text())
    records = read_records(folder)
    axes = varying_axes(records)
    described = [
        describe.describe_sweep(records, axes, {}),
        *(describe.describe_cell(r, axes, folder) for r in records),
    ]
    for text in described:
        assert all(abs(step) < 1 << 63 for _, _, step in text.metrics)
        json.dumps([text.params, text.tags, text.metrics]).encode("utf-8")
    layout.shared_view(records, axes)


def test_a_changed_bundle_is_refused_or_shown(source, tmp_path, tries, capsys):
    """One part of its JSON is something else, and every checksum fits again: what an attacker would send."""
    for _, draw in tries:
        takes_or_refuses(rewritten(source, tmp_path / "x.zip", in_one_part(draw)), tmp_path / "there", draw, capsys)


def in_one_part(draw):
    def change(manifest, parts):
        name = draw.choice((FILE_NAME, FILE_NAME, FILE_NAME, "run.json", "drift.json"))
        if draw.random() < 0.1:
            return hostile.changed_json(manifest, draw)
        lines = parts[name].split(b"\n") if name == FILE_NAME else [parts[name]]
        place = draw.randrange(len(lines) - (name == FILE_NAME))
        lines[place] = hostile.changed_json(json.loads(lines[place]), draw).encode("utf-8", "surrogatepass")
        parts[name] = b"\n".join(lines)
        return None

    return change


def test_a_damaged_file_is_refused(source, tmp_path, tries, capsys):
    """Bytes are something else; its seal was made anew, so that what is behind it is read."""
    content = source.read_bytes()
    for _, draw in tries:
        path = tmp_path / "x.zip"
        path.write_bytes(hostile.changed_bytes(content[: -bundle.SEAL_BYTES], draw) + content[-bundle.SEAL_BYTES :])
        if draw.random() < 0.9:
            bundle.seal(path)
        takes_or_refuses(path, tmp_path / "there", draw, capsys)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_archive_is_refused(source, tmp_path, tries, capsys):
    """Other names, methods, sizes and flags in its directory; files that unpack to a thousand times their size."""
    with zipfile.ZipFile(source) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for _, draw in tries:
        path = tmp_path / "x.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in parts.items():
                for _ in range(draw.choice((1, 1, 1, 1, 2, 0))):
                    called = draw.choice((name,) * 12 + tuple(text for text in hostile.TEXTS if text.isprintable()))
                    made = content if draw.random() < 0.9 else b"\n" * draw.choice((1, 1 << 20, 1 << 26))
                    method = draw.choice(
                        (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
                    )
                    archive.writestr(zipfile.ZipInfo(called[:60_000]), made, compress_type=method)
            archive.comment = bytes(bundle.SEAL_BYTES)
        damaged = bytearray(path.read_bytes())
        entries = [found.start() for found in re.finditer(b"PK\x01\x02", damaged)]
        for place in draw.sample(entries, min(len(entries), draw.choice((0, 0, 1, 2)))):
            offset, size = draw.choice(((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (42, 4)))
            number = struct.pack("<Q", draw.choice(hostile.NUMBERS) % 2**64)[:size]
            damaged[place + offset : place + offset + size] = number
        path.write_bytes(damaged)
        bundle.seal(path)
        takes_or_refuses(path, tmp_path / "there", draw, capsys)
