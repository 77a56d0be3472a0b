"""Bundles: the same figures once, nothing that names a person or a machine, and no trust in what is read."""

import errno
import hashlib
import json
import os
import random
import re
import socket
import time
import zipfile
from dataclasses import replace

import constructed
import pytest

from ane_sweep.__main__ import main
from ane_sweep.bridge.figures import Artifact
from ane_sweep.bridge.record import FILE_NAME, Status, read_records, write_records
from ane_sweep.bundles import bundle, merge, names
from ane_sweep.errors import StoreError


def sweep(out, stamp=constructed.STAMP, count=12, finished="2026-01-02T03:04:05+00:00", seed=0):
    """A finished run as a sweep leaves it, with paths, names and addresses in it that must not travel."""
    folder = out / "runs" / stamp
    records = constructed.records(count, stamp=stamp, seed=seed)
    for record in records:
        record.artifacts = [Artifact("model.mlpackage", str(out / "cache/convert/ab/model.mlpackage"), 1)]
        record.weights = replace(record.weights, source="/Users/ada/models/gpt2")
        record.reason = "convert: '/Users/John Doe/x y' of https://jane:s3cret@host is away"
        record.host["hub"] = "openai-community/gpt2"
        record.host["note"] = f"seen on {socket.gethostname()} at https://example.org/a/b, 3 tokens/s"
    write_records(folder, records)
    info = {
        "schema": 1, "stamp": stamp, "plan_key": "p", "command": ["-m", "model=gpt2", "out=/Users/ada/outputs", "tracking.uri=sqlite:////home/jane/m.db"],
        "axes": ["chunks"], "cells": count, "started": "2026-01-02T03:00:00+00:00", "finished": finished,
        "tracking": {"enabled": True, "uri": "http://secret@tracker", "experiment": "x", "ui": None},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(info))
    return folder


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """(outputs folder, bundle)"""
    monkeypatch.setattr(socket, "gethostname", lambda: "adas-laptop.local")
    out = tmp_path / "here"
    folder = sweep(out)
    bundle.export(folder, tmp_path / "sweep.zip", out)
    return out, tmp_path / "sweep.zip"


def figures(folder):
    return [(r.cell_key, r.status, r.metrics, r.placement, r.timings) for r in read_records(folder)]


def test_the_same_sweep_is_the_same_bytes(exported, tmp_path):
    out, path = exported
    bundle.export(out / "runs" / constructed.STAMP, tmp_path / "again.zip", out)
    assert (tmp_path / "again.zip").read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_figures_arrive_once_however_often_they_are_imported(exported, tmp_path):
    out, path = exported
    there = tmp_path / "there"
    first = merge.take_in(bundle.read(path), there)
    assert (first.new, first.replaced, first.known) == (12, 0, 0)
    again = merge.take_in(bundle.read(path), there)
    assert (again.new, again.replaced, again.known) == (0, 0, 12)
    assert again.folder == first.folder and len(list((there / "runs").iterdir())) == 1
    assert figures(first.folder) == figures(out / "runs" / constructed.STAMP)


def test_an_import_into_its_own_folder_changes_nothing(exported):
    out, path = exported
    folder = out / "runs" / constructed.STAMP
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert merge.take_in(bundle.read(path), out).known == 12
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


@pytest.mark.slow
def test_a_later_export_of_the_sweep_replaces_and_an_earlier_one_does_not(tmp_path):
    out, there = tmp_path / "here", tmp_path / "there"
    early, late = tmp_path / "early.zip", tmp_path / "late.zip"
    bundle.export(sweep(out, count=10), early, out)
    bundle.export(
        sweep(out, count=12, seed=1, finished="2026-01-02T04:00:00+01:30"), late, out
    )  # earlier by the clock's zone
    bundle.export(sweep(out, count=12, seed=1, finished="2026-01-03T03:04:05+00:00"), late, out)
    merge.take_in(bundle.read(early), there)
    merged = merge.take_in(bundle.read(late), there)
    assert (merged.new, merged.replaced) == (2, 10)
    after = figures(merged.folder)
    back = merge.take_in(bundle.read(early), there)
    assert (back.new, back.replaced, back.known) == (0, 0, 10) and figures(back.folder) == after


@pytest.mark.slow
def test_of_two_exports_that_ended_at_once_an_ok_record_is_never_replaced_by_a_failed_one(tmp_path, capsys):
    out, paths = tmp_path / "here", [tmp_path / "first.zip", tmp_path / "second.zip"]
    folder = sweep(out, count=4)
    for n, path in enumerate(paths):
        records = read_records(folder)
        records[n].status, records[n].reason = Status.FAILED, "convert: it failed"
        records[2].metrics[0] = replace(records[2].metrics[0], value=100.0 + n)  # neither is better
        write_records(folder, records)
        bundle.export(folder, path, out)
        write_records(folder, constructed.records(4, stamp=folder.name))
    kept = []
    for n, order in enumerate((paths, paths[::-1])):
        for path in order:
            assert main(["import", str(path), f"out={tmp_path / str(n)}"]) == 0
        said = capsys.readouterr()
        assert "doubt: " in said.err and "of each cell the better status was kept" in said.err
        found = read_records(tmp_path / str(n) / "runs" / folder.name)
        assert [record.status for record in found[:2]] == [Status.OK] * 2
        kept.append([record.to_json() for record in found])
    assert kept[0] == kept[1], "the order of arrival decides nothing"


@pytest.mark.slow
def test_another_machines_sweep_of_the_same_stamp_gets_its_own_name(tmp_path):
    paths = []
    for name in ("one", "two"):
        out = tmp_path / name
        paths.append(tmp_path / f"{name}.zip")
        bundle.export(sweep(out, seed=len(paths)), paths[-1], out)
    there = tmp_path / "there"
    folders = {merge.take_in(bundle.read(path), there).folder for path in [*paths, *paths]}
    assert len(folders) == 2
    for folder in folders:
        assert {record.sweep for record in read_records(folder)} == {folder.name}, "a tracker would mix them"


@pytest.mark.slow
def test_an_exported_import_is_still_the_same_sweep(exported, tmp_path):
    _, path = exported
    there, third = tmp_path / "there", tmp_path / "third"
    merge.take_in(bundle.read(path), there)
    bundle.export(there / "runs" / constructed.STAMP, tmp_path / "second.zip", there)
    merge.take_in(bundle.read(path), third)
    assert merge.take_in(bundle.read(tmp_path / "second.zip"), third).known == 12


def test_no_name_of_a_person_or_machine_travels(exported):
    _, path = exported
    with zipfile.ZipFile(path) as archive:
        text = "".join(archive.read(name).decode() for name in archive.namelist())
    for secret in ("/Users", "Doe", "jane", "s3cret", str(path.parent), "secret", socket.gethostname()):
        assert secret not in text, secret
    assert not re.search(r"\bada\b", text)  # a digest may hold these letters
    assert ".../gpt2" in text and "openai-community/gpt2" in text and "https://example.org/a/b, 3 tokens/s" in text


WORKERS = ("studio-of-lovelace", "m4-basement")
FLEET = ["-m", "model=gpt2", f"machine=m4,{WORKERS[0]}", "executor=dask", "executor.address=tls://hub.local:8786",
         "store=s3://lab-of-lovelace/ane-sweep", "tracking.uri=http://mlflow.lovelace.example:5000"]  # fmt: skip


def of_a_fleet(folder):
    """What a fleet leaves in a run: its workers in fields of their own, and all its names in sentences."""
    records = read_records(folder)
    for n, record in enumerate(records):
        record.host["worker"] = record.realised["machine"] = WORKERS[n % 2]
        record.cell["machine"] = WORKERS[0] if n % 2 else "m4"
        record.reason = (
            f"{WORKERS[n % 2]} (10.1.2.3:41873) went away; s3://lab-of-lovelace/ane-sweep/cas/ab: no bucket lab-of-lovelace; "
            "hub.local:8786 and mlflow.lovelace.example are away, http://192.168.7.9/x too; https://huggingface.co/gpt2 is there"
        )
    write_records(folder, records)
    info = json.loads((folder / "run.json").read_text())
    info |= {"command": FLEET, "machines": {name: {"tasks": 1} for name in WORKERS}, "store": {"unpushed": {}}}
    (folder / "run.json").write_text(json.dumps(info))
    return records


def contents(path) -> str:
    with zipfile.ZipFile(path) as archive:
        return "".join(archive.read(name).decode() for name in archive.namelist())


def test_no_name_of_a_fleet_travels(tmp_path):
    out = tmp_path / "here"
    folder = sweep(out)
    of_a_fleet(folder)
    bundle.export(folder, tmp_path / "fleet.zip", out)
    text = contents(tmp_path / "fleet.zip")
    for name in (*WORKERS, "lovelace", "hub.local", ":8786", "10.1.2.3", "192.168.7", ":41873", "lab-of", "mlflow."):
        assert name not in text, name
    (line, *_) = text[text.index('{"schema": 1, "sweep"') :].splitlines()
    record, info = json.loads(line), text[text.rindex('{\n "stamp"') :]
    assert re.fullmatch(r"worker-[0-9a-f]{8}", record["host"]["worker"])
    assert record["host"]["worker"] == record["realised"]["machine"] and record["reason"].startswith(
        record["host"]["worker"]
    )
    assert "https://huggingface.co/gpt2 is there" in record["reason"] and record["cell"]["machine"] == "m4"
    assert '"store=s3://..."' in info and '"executor.address=tls://..."' in info and '"machine=m4,worker-' in info


@pytest.mark.slow
@pytest.mark.ci
def test_a_worker_has_one_alias_in_all_exports_of_a_folder_and_keeps_it(tmp_path):
    out, there = tmp_path / "here", tmp_path / "there"
    paths = [tmp_path / f"{n}.zip" for n in range(3)]
    for path, stamp in zip(paths, ("20260101-000000", "20260102-000000")):
        folder = sweep(out, stamp)
        of_a_fleet(folder)
        bundle.export(folder, path, out)
    bundle.export(merge.take_in(bundle.read(paths[0]), there).folder, paths[2], there)
    first, other, again = ([record.host["worker"] for record in bundle.read(path).records] for path in paths)
    assert first == other == again and len(set(first)) == 2


@pytest.mark.parametrize("name", ["gpt2", "latency", "m4", "chunks"])
def test_a_worker_that_is_called_as_a_model_is_changes_no_request(tmp_path, name):
    out = tmp_path / "here"
    folder = sweep(out)
    records = read_records(folder)
    for record in records:
        record.host["worker"] = name
    write_records(folder, records)
    bundle.export(folder, tmp_path / "a.zip", out)
    left = bundle.read(tmp_path / "a.zip").records
    assert [r.cell for r in left] == [r.cell for r in records] and [r.metrics for r in left] == [
        r.metrics for r in records
    ]
    assert all(record.host["worker"] != name for record in left)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("store=s3://lab/ane", "store=s3://..."),
        ("executor.address=hub.local:8786", "executor.address=a-host"),
        ("no answer from 10.0.0.7:8786, 127.0.0.1 answers", "no answer from a-host, 127.0.0.1 answers"),
        ("sftp://ada@nas.lan/srv and gs://lab/x", "sftp://... and gs://..."),
        ("model.local.0", "model.local.0"),
        ("coremltools 9.0, torch 2.13.0, line 12", "coremltools 9.0, torch 2.13.0, line 12"),
        ("/home/ada/x.py", ".../x.py"),
        ('File "/tmp/a b/c.py", line 3', None),
        ("~/models/gpt2", ".../gpt2"),
        ("/mnt/John Doe/My Nets/gpt2", ".../gpt2"),
        ("weights=/mnt/John Doe/gpt2 xl", "weights=.../gpt2 xl"),
        ("weights='/mnt/John Doe/gpt2'", "weights='.../gpt2'"),
        ("cannot read '/mnt/John Doe/a b': no such file", "cannot read '.../a b': no such file"),
        (r"C:\Users\John Doe\nets\gpt2", ".../gpt2"),
        ("tracking.uri=sqlite:////srv/jane/m.db", "tracking.uri=sqlite:///.../m.db"),
        ("tracking.uri=https://jane:s3cret@host", "tracking.uri=https://***@host"),
        ("weights=/home/ada/a,/home/ada/b", "weights=.../a,.../b"),
        ("file:///home/ada/x", ".../x"),
        ("weights=/home/ada/w", "weights=.../w"),
        ("https://huggingface.co/a/b", "https://huggingface.co/a/b"),
        ("a/b/c", "a/b/c"),
        ("1/2", "1/2"),
        ("reads / writes", "reads / writes"),
    ],
)
def test_paths_are_cut_and_nothing_else(text, kept):
    if kept is None:
        assert "/tmp" not in names.scrub(text)
    else:
        assert names.scrub(text) == kept


# What is refused


def rewritten(path, target, change):
    """The bundle with its parts changed and every checksum made to fit again: what an attacker would send.

    change   changes what it is given, or returns the text of another manifest
    """
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(parts.pop(bundle.MANIFEST))
    text = change(manifest, parts)
    listed = manifest["files"] if isinstance(manifest["files"], list) else []
    for item in (item for item in listed if isinstance(item, dict)):
        if (content := parts.get(str(item.get("name")))) is not None and not item.pop("kept", False):
            item |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(bundle.MANIFEST, text if isinstance(text, str) else json.dumps(manifest))
        for name, content in parts.items():
            archive.writestr(name, content)
        archive.comment = bytes(bundle.SEAL_BYTES)
    bundle.seal(target)
    return target


def record_with(**changes):
    def change(manifest, parts):
        lines = parts[FILE_NAME].decode().splitlines()
        lines[0] = json.dumps({**json.loads(lines[0]), **changes})
        for raw in (part for part in changes.get("realised", {}).values() if isinstance(part, Raw)):
            lines[0] = lines[0].replace(json.dumps(raw), raw)
        parts[FILE_NAME] = "\n".join(lines).encode()

    return change


def record_part(name, entry):
    return record_with(**{name: [entry]})


def run_with(**changes):
    return lambda manifest, parts: parts.update(
        {"run.json": json.dumps(json.loads(parts["run.json"]) | changes).encode()}
    )


def listed(name, content):
    def change(manifest, parts):
        parts[name] = content
        manifest["files"].append({"name": name})

    return change


def deep(levels):
    """JSON text, as json.dumps would not get that far."""
    return Raw('{"a":' * levels + "1" + "}" * levels)


class Raw(str):
    """Text that `record_with` leaves as it is."""


OPS = {"cpu": 1, "gpu": 0, "ane": 1, "total": 2}
PLACED = {
    "compute_units": "all", "ops": OPS, "cost_share": {"cpu": 0.5, "gpu": 0, "ane": 0.5}, "segments": 1, "transitions": 0,
}  # fmt: skip


def with_file(name, content=b"x"):
    return lambda manifest, parts: parts.update({name: content})


def bomb(manifest, parts):
    parts[FILE_NAME] = b"\n" * (50 << 20)
    next(item for item in manifest["files"] if item["name"] == FILE_NAME).update(bytes=1000, kept=True)


def huge(manifest, parts):
    next(item for item in manifest["files"] if item["name"] == FILE_NAME).update(bytes=1 << 40, kept=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_file("../../evil.txt"), "no part of a bundle"),
        (with_file("/etc/passwd"), "no part of a bundle"),
        (bomb, "unpacks to more than the 1000 bytes"),
        (huge, "more than 256 MiB"),
        (lambda m, p: m.update(sweep="../../x"), "matching regex"),
        (lambda m, p: m.update(host="a/b"), "matching regex"),
        (lambda m, p: m.update(schema=99), "update ane-sweep"),
        (lambda m, p: m.update(format="zip"), "manifest"),
        (lambda m, p: m.update(records=7), "its manifest says 7"),
        (lambda m, p: p.pop("run.json"), "once each"),
        (lambda m, p: m["files"].pop(), "lists"),
        (lambda m, p: p.update({FILE_NAME: p[FILE_NAME] * 2}), "manifest says"),
        (record_with(schema=99), "newer version"),
        (record_with(status="excellent"), "cannot be read"),
        (record_with(metrics=[{"name": "latency_median_ms", "value": "fast"}]), "metrics[0].value"),
        (record_with(cell={}), "no sweep writes"),
        (record_with(artifacts=[{"name": "placement.x", "path": "/etc/passwd"}]), "no path that an export cut"),
        (record_with(stages=[{"stage": "../../x", "status": "ok", "key": "k"}]), "stages[0].stage"),
        (with_file("drift.json", b"{}"), "lists"),
        (listed("drift.json", b"{}"), "drift.json: Object missing required field `model`"),
        (listed("drift.json", b'{"values": [[1e999, NaN]]}'), "drift.json: it is not JSON: NaN"),
        (
            record_part("placement", {"kind": "predicted", **PLACED}),
            "missing required field `chip` - at `$.placement[0]`",
        ),
        (record_part("placement", {"kind": "predicted", "chip": None, **PLACED}), "predicted for no chip"),
        (
            record_part("placement", {"kind": "predicted", "chip": "m1", **PLACED, "ops": {**OPS, "total": None}}),
            "ops.total",
        ),
        (
            record_part("placement", {"kind": "predicted", "chip": "m1", **PLACED, "ops": {"ane": 1, "cpu": 1}}),
            "missing required field `gpu` - at `$.placement[0].ops`",
        ),
        (record_with(realised={"runtime": {"a": 1}}), "realised.runtime"),
        (record_with(realised={"latency_task": []}), "realised.latency_task"),
        (record_with(realised={"verdict_reasons": [{}]}), "realised.verdict_reasons[0]"),
        (record_with(realised={"x": deep(900)}), "nested deeper"),
        (record_with(realised={"x": deep(100_000)}), "nested deeper"),
        (record_with(host={"stand_in": {}}), "host.stand_in"),
        (record_with(toolchain={"torch": 2}), "toolchain[...]"),
        (record_with(cell={"model": "m", "chunks": []}), "cell.chunks"),
        (record_with(cell={"model": "m", "seed": 1 << 64}), "whole number of 65 bits"),
        (record_with(cell={"model": "m", "seed": 1e40}), "the number 1e+40"),
        (record_with(reason="x" * 100_001), "a text of 100001 characters"),
        (record_with(reason="\ud800"), "half a character"),
        (record_with(cell_key="../../x"), "cell_key"),
        (record_with(sweep="../x"), "sweep"),
        (record_part("metrics", {"name": "package_bytes", "value": -1}), "package_bytes is below 0"),
        (record_with(metrics=[{"name": "psnr_db", "value": 1.0}] * 2), "psnr_db stands there twice: measured"),
        (record_part("metrics", {"name": "x", "value": 1, "kind": "guessed"}), "metrics[0].kind"),
        (record_part("timings", {"round": 1, "median_ms": 0}), "timings[0].median_ms"),
        (record_part("timings", {"round": 1, "median_ms": 1, "samples_ms": [0.0]}), "timings[0].samples_ms[0]"),
        (record_part("timings", {"round": 1, "median_ms": 1, "gate": {"doubts": [1]}}), "timings[0].gate"),
        (record_part("stages", {"stage": "load", "status": "ok", "seconds": 1e300}), "the number 1e+300"),
        (record_part("stages", {"stage": "load", "status": "ok", "seconds": -1}), "stages[0].seconds"),
        (run_with(started="2099-01-01T00:00:00+00:00"), "started is no date that a sweep can have by now"),
        (run_with(finished="0001-01-01T00:00:00+14:00"), "finished is no date"),
        (run_with(started="2026-01-01T00:00:00"), "without a time zone"),
        (run_with(started=None), "run.json: started"),
        (run_with(command={}), "run.json: command"),
        (lambda m, p: m.update(files=5), "files"),
        (lambda m, p: m.update(records="12"), "records"),
        (lambda m, p: m["files"][0].update(bytes=-1, kept=True), "files[0].bytes"),
    ],
)
def test_a_bundle_made_with_ill_intent_is_refused_with_the_reason(exported, tmp_path, change, said):
    _, path = exported
    there = tmp_path / "there"
    with pytest.raises(StoreError, match="refused") as refused:
        merge.take_in(bundle.read(rewritten(path, tmp_path / "evil.zip", change)), there)
    assert said in str(refused.value)
    assert not there.exists() and not (tmp_path / "evil.txt").exists()


def test_what_cannot_be_reported_is_not_taken_in(exported, tmp_path, monkeypatch):
    _, path = exported
    monkeypatch.setattr("ane_sweep.report.page.as_html", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        merge.take_in(bundle.read(path), tmp_path / "there")
    assert not (tmp_path / "there").exists()


@pytest.mark.slow
@pytest.mark.ci
def test_an_import_that_was_killed_is_made_again_in_its_place(exported, tmp_path):
    _, path = exported
    first = merge.take_in(bundle.read(path), tmp_path / "there").folder
    (first / "run.json").unlink()
    again = merge.take_in(bundle.read(path), tmp_path / "there")
    assert (again.folder, again.known) == (first, 12) and list(first.parent.iterdir()) == [first]
    assert json.loads((first / "run.json").read_text())["imported"]["sweep"] == constructed.STAMP


@pytest.mark.slow
@pytest.mark.ci
def test_an_import_that_met_a_full_disk_gets_the_name_that_it_had(exported, tmp_path, monkeypatch):
    _, path = exported

    def full(folder, records):
        folder.mkdir(parents=True)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as during:
        during.setattr(merge, "write_records", full)
        with pytest.raises(OSError, match="No space"):
            merge.take_in(bundle.read(path), tmp_path / "there")
    merged = merge.take_in(bundle.read(path), tmp_path / "there")
    assert merged.folder.name == constructed.STAMP and list(merged.folder.parent.iterdir()) == [merged.folder]


@pytest.mark.parametrize("damage", [lambda path: path.write_text("{"), lambda path: path.unlink()])
def test_an_original_whose_run_json_is_damaged_is_not_replaced_by_its_own_export(exported, damage):
    out, path = exported
    folder = out / "runs" / constructed.STAMP
    (folder / "tasks").mkdir()
    damage(folder / "run.json")
    before = (folder / "records.jsonl").read_bytes()
    merge.take_in(bundle.read(path), out)
    assert (folder / "records.jsonl").read_bytes() == before


def test_an_imported_record_is_shown_and_never_obeyed(exported, tmp_path, capsys):
    _, path = exported
    there = tmp_path / "there"
    text = "[x](javascript:alert(1)) \x1b]0;evil\x07\x1b[2J\r\u202e\x9b <script>alert(2)</script>"
    changes = {
        "status": "failed", "reason": text, "host": {"chip": text, "stand_in": text, "os_version": text},
        "cell": {"model": text, text: text, "chunks": text, "latency": {text: text}}, "weights": {"kind": text, "source": text},
        "timings": [{"round": 1, "median_ms": 1.0, "notes": [text], "gate": {"doubts": [text]}}],
        "placement": [{"kind": "predicted", "chip": text, **PLACED, "function": text}],
        "stages": [{"stage": "load", "status": "unavailable", "reason": text}], "toolchain": {text: text},
        "realised": dict.fromkeys(("runtime", "texts", "verdict", "observed", "unstable"), text),
    }  # fmt: skip
    assert main(["import", f"out={there}", str(rewritten(path, tmp_path / "x.zip", record_with(**changes)))]) == 0
    (folder,) = (there / "runs").iterdir()
    said = []
    for verb in (
        ["report"],
        ["report", "--json"],
        ["report", "--markdown"],
        ["compare", "last", "last"],
        ["history"],
        ["compare", "last", "last", "--json"],
        ["history", "--json"],
        ["nightly"],
        ["compare", f"last:model={text}", "last"],
    ):
        main([*verb, f"out={there}"])
        said += capsys.readouterr()
    for shown in (*said, *(file.read_text() for file in folder.glob("report.*"))):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown)
    for shown in ((folder / "report.md").read_text(), said[4]):
        assert "javascript:" in shown and not re.search(r"(?<!\\)\]\(", shown) and "<script" not in shown
    assert "<script>alert" not in (folder / "report.html").read_text()


def test_every_cut_and_every_flipped_byte_is_refused(exported, tmp_path):
    _, path = exported
    whole, drawn = path.read_bytes(), random.Random(0)
    for place in [*drawn.sample(range(len(whole)), 300), *range(len(whole) - 110, len(whole))]:
        flipped = whole[:place] + bytes([whole[place] ^ (1 << drawn.randrange(8))]) + whole[place + 1 :]
        for content in (flipped, whole[:place]):
            (tmp_path / "bad.zip").write_bytes(content)
            with pytest.raises(StoreError, match="refused"):
                bundle.read(tmp_path / "bad.zip")


def test_the_verbs(exported, tmp_path, capsys):
    out, _ = exported
    path = tmp_path / "x.zip"
    assert main(["export", f"out={out}", "last", str(path)]) == 0
    assert main(["import", f"out={tmp_path / 'there'}", str(path)]) == 0
    assert "12 new, 0 replaced, 0 known already" in capsys.readouterr().out
    assert (tmp_path / "there" / "runs" / constructed.STAMP / "report.html").is_file()
    path.write_bytes(path.read_bytes()[:1000])
    assert main(["import", f"out={tmp_path / 'there'}", str(path)]) == 2
    assert main(["import", f"out={tmp_path / 'there'}", str(tmp_path / "absent.zip")]) == 2
    assert main(["export", f"out={out}", "nosuchrun", str(path)]) == 2
    (tmp_path / "taken").mkdir()
    assert main(["export", f"out={out}", "last", str(tmp_path / "taken")]) == 2
    assert not list(tmp_path.glob(".taken.*")), "what was written aside is gone"
    said = capsys.readouterr().err
    assert "taken: cannot be written" in said
    assert "refused: it was cut short" in said and "no such file" in said and "Traceback" not in said


def test_an_imported_sweep_is_reported_and_logged_and_never_gone_on_with(exported, tmp_path, capsys):
    _, path = exported
    there = tmp_path / "there"
    folder = merge.take_in(bundle.read(path), there).folder
    assert main(["report", f"out={there}", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 12
    info = json.loads((folder / "run.json").read_text())
    assert info["plan_key"].startswith("imported ") and info["tracking"]["uri"] is None


def test_a_file_that_is_no_export_is_told_so_and_not_of_its_seal(tmp_path):
    (tmp_path / "notes.md").write_text("# notes\n" * 100)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "b" * 1000)
    for name, said in (("notes.md", "it is no file that"), ("other.zip", "it is a zip, and none that")):
        with pytest.raises(StoreError, match=f"{said} `ane-sweep export` wrote$"):
            bundle.read(tmp_path / name)


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/urandom", "pipe", "large"])
def test_what_is_no_file_of_a_bundles_size_is_refused_at_once(tmp_path, capsys, name):
    path = tmp_path / name  # of an absolute name, that
    if name == "pipe":
        os.mkfifo(path)
    elif name == "large":
        path.touch()
        os.truncate(path, 3 << 30)
    began = time.monotonic()
    assert main(["import", str(path), f"out={tmp_path / 'out'}"]) == 2
    said = "it has 3,221,225,472 bytes, more than" if name == "large" else "it is no regular file"
    assert said in capsys.readouterr().err and time.monotonic() - began < 20
    assert not (tmp_path / "out" / "runs").exists()
