"""Nothing outside of the outputs folder is touched by what deletes or tidies, whatever links lie in the outputs.

A part of a full outputs folder is moved elsewhere and a link left in its place: all that would be deleted there lies behind
the link. What is elsewhere must then keep its files, contents, permissions and times.
"""

import os
import shutil
import stat
import time
from pathlib import Path

import constructed
import played
import pytest

from ane_sweep.__main__ import main
from ane_sweep.bridge import disk
from ane_sweep.bridge.record import write_records
from ane_sweep.bridge.task import TaskResult
from ane_sweep.nightly import night
from ane_sweep.report import page
from ane_sweep.store import leftovers
from ane_sweep.store.cache import Store

KEY = "ab" + "0" * 62
OLD = time.time() - 30 * 86400
PLACES = (
    "runs", "runs/old", "runs/old/tasks", "runs/old/tasks/convert-k", "runs/old/tasks/convert-k/tmp", "runs/old/lock",
    "runs/new", "runs/new/tasks", "runs/new/tasks/convert-k", "runs/new/tasks/convert-k/tmp",
    "runs/night", "runs/night/.run.json.abcdefgh", "cache", "cache/tmp", "cache/tmp/dead",
    "cache/tmp/dead/grave", "cache/tmp/dead/.alive", "cache/locks", "cache/locks/convert-k.lock",
    "cache/convert", "cache/convert/ab", f"cache/convert/ab/{KEY}",
    f"cache/convert/ab/{KEY}/sub", f"cache/convert/ab/{KEY}/result.json", "cache/history.jsonl", "nightly",
)  # fmt: skip


def put(path: Path, when: float = OLD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (when, when))
    return path


@pytest.fixture
def out(tmp_path):
    """Outputs in which every kind of thing lies that is deleted one day: artifacts, what killed processes left, old runs."""
    out = tmp_path / "outputs"
    with Store(out / "cache") as store:
        aside = store.stage_aside("convert", KEY)
        put(aside / "sub" / "weight.bin")
        store.commit(aside, "convert", KEY, TaskResult("convert", KEY, "ok"))
        store.record_history(played.task("convert"), TaskResult("convert", KEY, "ok", seconds=1.0, peak_bytes=1))
    put(out / "cache" / "tmp" / "dead" / "grave" / "weight.bin")
    put(out / "cache" / "tmp" / "dead" / ".alive")
    put(out / "cache" / "locks" / "convert-k.lock")
    put(out / "cache" / ".digests.json.abcdefgh")
    put(out / "nightly" / ".state.json.abcdefgh")
    for name, when in (("old", OLD), ("new", time.time() - 2 * 3600)):
        folder = out / "runs" / name
        put(folder / "tasks" / "convert-k" / "tmp" / "weights", when)
        put(folder / "tasks" / "convert-k" / ".result.json.abcdefgh", when)
        put(folder / "lock", when)
        disk.write_json(folder / "run.json", {"schema": 1})
        for path in (folder / "tasks", folder):
            os.utime(path, (when, when))
    night = {"schema": 1, "stamp": "night", "plan_key": "k", "command": [], "started": "2026-01-01T00:00:00+00:00"}
    write_records(out / "runs" / "night", constructed.records(1))
    put(out / "runs" / "night" / ".run.json.abcdefgh")
    disk.write_json(out / "runs" / "night" / "run.json", {**night, "finished": night["started"], "nightly": True})
    return out


def led_away(out: Path, place: str) -> Path:
    """Move a part of the outputs elsewhere and leave a link to it; return where it went."""
    elsewhere = out.parent / "elsewhere" / Path(place).name
    elsewhere.parent.mkdir()
    path = out / place
    times = path.parent.stat().st_mtime
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)
    os.utime(path.parent, (times, times))
    return elsewhere


def state(path: Path) -> dict[str, tuple]:
    """Everything below a path: its kind and permissions, when it changed, and what it holds."""
    found = {}
    for one in [path, *path.rglob("*")]:
        info = one.lstat()
        content = one.read_bytes() if stat.S_ISREG(info.st_mode) else b""
        found[str(one)] = (info.st_mode, info.st_mtime_ns, content)
    return found


@pytest.mark.parametrize("place", PLACES)
def test_prune_and_tidying_leave_alone_what_a_link_leads_to(place, out, capsys):
    elsewhere = led_away(out, place)
    before = state(elsewhere)
    code = main(["prune", "max-gb=0", "--json", f"out={out}"])
    told = capsys.readouterr()
    assert state(elsewhere) == before
    assert code == (2 if place == "cache" else 0), told.err
    with Store(out / "cache") as store:
        store.sweep_tmp()
        leftovers.tidy(out)
        night.delete_old(out, store, keep_runs=0, cache_gb=0)
    if place == "cache":  # which is used where it lies: its tmp/ changed
        del before[str(elsewhere / "tmp")]
    assert before.items() <= state(elsewhere).items()
    if place == "cache":
        assert "outside of the outputs folder, where nothing is deleted" in told.err
    elif place.startswith(("cache/convert/", "cache/convert")) and place.count("/") < 4:
        assert '"removed": []' in told.out  # what was not deleted is not told as deleted
    assert place.startswith("runs") or not (out / "runs" / "old").exists()


def test_without_links_all_of_it_goes(out, capsys):
    """What the test above would otherwise show for nothing."""
    assert main(["prune", "max-gb=0", f"out={out}"]) == 0 and "removed 1 artifact" in capsys.readouterr().out
    with Store(out / "cache") as store:
        assert night.delete_old(out, store, keep_runs=0, cache_gb=0) == ["night"]
    left = {path.relative_to(out).as_posix() for path in out.rglob("*")}
    assert left == {
        "cache", "cache/SCHEMA", "cache/convert", "cache/convert/ab", "cache/history.jsonl", "cache/locks",
        "cache/locks/tmp.lock", "cache/locks/users.lock", "cache/tmp", "nightly", "runs", "runs/new", "runs/new/run.json",
        "runs/new/tasks", "runs/new/tasks/convert-k",
    }  # fmt: skip


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("place", (
    "cache/tmp", "cache/locks", "cache/convert", "cache/convert/co", "cache/convert/co/convert" + "0" * 20,
    "runs/r/tasks", "runs/r/tasks/latency-latency00000", "runs/r/tasks/latency-latency00000/out",
    "runs/r/tasks/latency-latency00000/stderr.txt", "cache/history.jsonl",
))  # fmt: skip
def test_a_sweep_makes_anew_what_lies_behind_a_link_and_leaves_that_alone(place, damaged, tmp_path, monkeypatch):
    stage = played.Stage(monkeypatch, tmp_path / "outputs")
    stage.sweep("r")
    for result in (tmp_path / "outputs" / "runs" / "r" / "tasks").glob("*/result.json"):
        result.unlink()  # as if it was interrupted
    elsewhere = led_away(stage.out, place)
    if damaged:
        for path in elsewhere.rglob("weight.bin"):
            path.write_bytes(b"damaged")
    before = state(elsewhere)
    outcomes = stage.sweep("r")
    assert {outcome.done for outcome in outcomes.values()} == {True}, outcomes
    assert state(elsewhere) == before
    assert not (stage.out / place).is_symlink()


def test_a_report_leaves_pictures_behind_a_link_alone(tmp_path):
    put(tmp_path / "elsewhere" / "mine.svg")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / page.FIGURES).symlink_to(tmp_path / "elsewhere")
    (folder / "report.html").symlink_to(tmp_path / "elsewhere" / "mine.svg")
    before = state(tmp_path / "elsewhere")
    page.put(folder, {"report.html": "page", f"{page.FIGURES}/01.svg": "picture"})
    assert state(tmp_path / "elsewhere") == before
    assert [path.name for path in (folder / page.FIGURES).iterdir()] == ["01.svg"]


def test_remove_tree_takes_a_link_and_not_what_it_leads_to(tmp_path):
    kept = put(tmp_path / "elsewhere" / "kept").parent
    kept.chmod(0o755)
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "inner" / "link").symlink_to(kept)
    (tmp_path / "tree" / "inner").chmod(0o555)
    (tmp_path / "link").symlink_to(kept)
    before = state(kept)
    for name in ("tree", "link", "nothing"):
        disk.remove_tree(tmp_path / name)
    assert state(kept) == before and [path.name for path in tmp_path.iterdir()] == ["elsewhere"]
