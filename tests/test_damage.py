"""Damaged artifacts: nothing is derived from one, no record rests on one, and the next sweep makes it again."""

import os

import pytest
from played import Stage

from ane_sweep.runner import isolate, task_runner
from ane_sweep.store import files

AGAIN = "made again, as the stored one could not be used"


@pytest.fixture
def stage(monkeypatch, tmp_path):
    made = Stage(monkeypatch, tmp_path)
    assert {outcome.status for outcome in made.sweep("first").values()} == {"ok"} and not made.said
    return made


def spoil(path, content):
    """Other bytes under the same times."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_whole_artifacts_are_reused_and_only_timings_are_taken_again(stage):
    found = stage.sweep("second")
    assert stage.called == ["latency"] and not stage.said
    assert [outcome.status for outcome in found.values()] == ["cached", "cached", "cached", "ok"]


def test_zeroed_weights_are_made_again_and_what_still_follows_from_them_is_kept(stage):
    weights = stage.stored("convert") / "weight.bin"
    whole = weights.read_bytes()
    spoil(weights, bytes(len(whole)))
    found = stage.sweep("second")
    assert weights.read_bytes() == whole and stage.called == ["convert", "latency"]
    assert stage.said == [f"convert: {AGAIN}: weight.bin holds other bytes than when it was stored"]
    assert (found["convert"].status, found["convert"].reason) == ("ok", stage.said[0].removeprefix("convert: "))
    assert found["chunk"].status == "cached"
    stage.sweep("third")
    assert stage.called == ["latency"] and not stage.said


def test_what_was_derived_from_something_else_goes_too(stage):
    spoil(stage.stored("convert") / "weight.bin", bytes(32))
    stage.fresh = b"a tool that never gives the same bytes twice"
    stage.sweep("second")
    assert stage.called == ["convert", "chunk", "score", "latency"]
    assert stage.said[1] == f"chunk: {AGAIN}: what it was made from has been made again since, and is not the same"


@pytest.mark.parametrize("name", ["weight.bin", "result.json", "files.json"])
@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff\x00", b"half"])
def test_any_missing_or_torn_file_is_healed_by_the_next_sweep(stage, name, content):
    path = stage.stored("chunk") / name
    path.unlink() if content is None else path.write_bytes(content)
    found = stage.sweep("second")
    assert stage.called == ["chunk", "latency"] and len(stage.said) == 1 and name in stage.said[0]
    assert found["chunk"].status == "ok" and files.damage(stage.stored("chunk"), content=True) is None


def test_a_result_of_the_same_length_with_another_figure_is_damage_too(stage):
    path = stage.stored("chunk") / "result.json"
    spoil(path, path.read_bytes().replace(b'"peak_bytes": 1', b'"peak_bytes": 7'))
    stage.sweep("second")
    assert stage.called == ["chunk", "latency"]


def test_what_was_made_while_its_input_was_damaged_is_neither_stored_nor_recorded(stage):
    (stage.stored("chunk") / "weight.bin").unlink()
    stage.before = lambda name: name == "chunk" and (stage.stored("convert") / "weight.bin").write_bytes(b"")
    found = stage.sweep("second")
    assert found["chunk"].status == "failed" and found["latency"].status == "blocked"
    assert found["chunk"].reason.startswith(
        "convert was damaged meanwhile: weight.bin has 0 bytes of 32; the same command makes it again"
    )
    stage.before = lambda name: None
    found = stage.sweep("second")  # the same run, interrupted and gone on with
    assert stage.called == ["convert", "chunk", "latency"] and all(outcome.done for outcome in found.values())


def test_what_cannot_be_made_again_says_both(stage):
    (stage.stored("convert") / "weight.bin").unlink()
    stage.ends = {"convert": "crashed"}
    found = stage.sweep("second")
    assert found["convert"].status == "crashed"
    assert found["convert"].reason.startswith(f"as played ({AGAIN}: weight.bin")


def test_a_stage_that_leaves_no_file_is_cached_with_what_it_printed(stage, monkeypatch):
    """predict with chips=[], say: without any file it would count as damage."""

    def leave_nothing(task, folder, **how):
        result = stage.play(task, folder, **how)
        if task.stage == "score":
            (task.out / "weight.bin").unlink()
        return result

    monkeypatch.setattr(task_runner, "_KEEPS_STDERR", set())
    monkeypatch.setattr(isolate, "run_task", leave_nothing)
    (stage.stored("score") / "weight.bin").unlink()
    assert stage.sweep("second")["score"].status == "ok"
    assert stage.sweep("third")["score"].status == "cached" and stage.called == ["latency"]
