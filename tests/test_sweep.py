"""Whole sweeps through the command line, on tiny models: records, sharing, resuming, and nothing lost."""

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from hub_server import serve
from tiny import ONCE, RAN, gpt2_checkpoint

from ane_sweep import engine
from ane_sweep.__main__ import main
from ane_sweep.bridge.record import Status, Weights, read_records, write_records
from ane_sweep.runner import task_runner

TINY = [
    "model=tiny-gpt2", "weights=random", "seq_len=16", "latency.samples=5", "latency.warmup=1", ONCE,
    "gate.wait_s=0", "gate.busy=1",  # also in processes of their own, which conftest's quiet machine does not reach
]  # fmt: skip
EAGER = [*TINY, "runtime=torch_eager", "tracking.enabled=false"]  # no conversion: seconds instead of tens of seconds

MATRIX = ["-m", *TINY, "variant=original,split_einsum", "chunks=1,2", "compute_units=all,cpu_only", "runtime=reference"]
ONE = [*TINY, "runtime=reference"]  # a cell of it: where it is done, only the timing is left


def run(out: Path, *args: str) -> int:
    return main([*args, f"out={out}"])


def spawn(out: Path, *args: str, **env: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "ane_sweep", *args, f"out={out}"],
        env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def runs(out: Path) -> list[Path]:
    return sorted(path for path in (out / "runs").glob("*") if path.is_dir())


def started_tasks(run_folder: Path) -> dict[str, float]:
    """Task folder name -> when its worker was started."""
    return {path.parent.name: path.stat().st_mtime for path in run_folder.glob("tasks/*/task.json")}


def workers_of(out: Path) -> list[psutil.Process]:
    """Started cold they have their task's file in their command, forked ones only its folder as their own."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        line = " ".join(process.info["cmdline"] or [])
        where = f"{line} {process.info['cwd']}"
        if "ane_sweep.worker." in line and str(out) in where:
            found.append(process)
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The issue's matrix on the tiny decoder, once for all tests of this file that only look."""
    out = tmp_path_factory.mktemp("finished")
    code = run(out, *MATRIX)
    return out, code, read_records(runs(out)[0])


@pytest.mark.slow
@pytest.mark.ci
def test_every_cell_ends_as_one_record(finished):
    _, code, records = finished
    assert len(records) == 8 and len({record.cell_key for record in records}) == 8
    assert {record.status for record in records} <= {Status.OK, Status.DEGRADED}  # degraded: timing on a busy machine
    assert code == engine.exit_code(records) and code in RAN


@pytest.mark.parametrize(
    ("statuses", "code"),
    [("ok", 0), ("ok refused", 0), ("ok degraded", 3), ("skipped", 3), ("degraded refused ok", 3),
     *[(f"ok degraded {bad}", 1) for bad in ("failed", "crashed", "timeout", "out_of_memory", "blocked", "fallback")]],
)  # fmt: skip
def test_doubt_and_failure_have_exit_codes_of_their_own(statuses, code):
    assert engine.exit_code([SimpleNamespace(status=Status(status)) for status in statuses.split()]) == code


@pytest.mark.slow
@pytest.mark.ci
def test_report_only_shows_and_exits_0_whatever_it_shows(finished, tmp_path, capsys):
    _, _, records = finished
    (tmp_path / "runs" / "bad").mkdir(parents=True)
    bad = replace(records[0], status=Status.CRASHED, reason="convert crashed with SIGSEGV")
    write_records(tmp_path / "runs" / "bad", [bad])
    run_json = json.loads((runs(finished[0])[0] / "run.json").read_text())
    (tmp_path / "runs" / "bad" / "run.json").write_text(json.dumps(run_json | {"stamp": "bad"}))
    assert main(["report", f"out={tmp_path}"]) == 0 and "SIGSEGV" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.ci
def test_records_tell_what_was_asked_and_what_happened(finished):
    _, _, records = finished
    record = records[0]
    assert record.cell["model"] == "tiny-gpt2" and record.cell["compute_units"] == "all"
    assert record.realised["runtime"] == "reference" and record.realised["compute_units"] is None
    assert record.realised["texts"] == "synthetic"
    assert record.weights == Weights("random", "random:0", "random:0")
    assert [(s.stage, s.reason) for s in record.stages if s.status == "unavailable"] == [
        ("compile", "needs macOS"),
        ("place", "needs macOS"),
    ]
    assert [(entry.kind, entry.chip) for entry in record.placement] == [
        ("predicted", c) for c in ("m4", "m1", "a17_pro")
    ]
    assert record.value("ops_total", kind="predicted", chip="m4") > 10 and record.value("ops_total") is None
    for name, unit in {"latency_median_ms": "ms", "psnr_db": "dB", "package_bytes": "bytes", "convert_s": "s"}.items():
        entry = next(metric for metric in record.metrics if metric.name == name)
        assert (entry.unit, entry.kind) == (unit, "measured") and entry.value > 0
    assert any(artifact.name.endswith("weight.bin") and artifact.bytes > 0 for artifact in record.artifacts)


@pytest.mark.slow
@pytest.mark.ci
def test_cells_that_differ_only_in_units_share_one_timing(finished):
    _, _, records = finished
    shared = {}
    for record in records:
        shared.setdefault(record.realised["latency_task"], []).append(record)
    assert len(shared) == 4 and {len(group) for group in shared.values()} == {2}


@pytest.mark.slow
@pytest.mark.ci
def test_fp16_stays_close_to_fp32_torch(finished):
    for record in finished[2]:
        assert record.value("psnr_db") > 60 and record.value("cosine") > 0.9999 and record.value("top1_agreement") > 0.9


@pytest.mark.slow
@pytest.mark.ci
def test_report_json_prints_the_records(finished, capsys):
    out, _, records = finished
    assert main(["report", "--json", f"out={out}"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [entry["cell_key"] for entry in printed] == [record.cell_key for record in records]
    assert printed[0]["schema"] == 1


@pytest.mark.slow
@pytest.mark.ci
def test_lint_reads_what_a_sweep_left(finished, capsys):
    package = next((finished[0] / "cache" / "convert").rglob("model.mlpackage"))
    assert main(["lint", str(package), "--chip", "m4", "--json"]) in (0, 1)
    (entry,) = json.loads(capsys.readouterr().out)["packages"]
    assert entry["chip"] == "m4" and {"name", "op_type", "supported", "preferred", "reason"} <= set(entry["ops"][0])


@pytest.mark.slow
@pytest.mark.ci
def test_the_table_labels_random_weights_and_synthetic_inputs(finished, capsys):
    main(["report", f"out={finished[0]}"])
    text = " ".join(capsys.readouterr().out.split())  # sentences are folded at the terminal's width
    assert "weights=random" in text and "texts=synthetic" in text


@pytest.mark.slow
@pytest.mark.ci
def test_the_same_command_again_prepares_nothing_and_times_afresh(finished, capsys):
    out, _, _ = finished
    before = len(runs(out))
    run(out, *MATRIX, "tracking.enabled=false")
    assert len(runs(out)) == before + 1
    assert {name.split("-")[0] for name in started_tasks(runs(out)[-1])} == {"latency"}
    stages = {stage.stage: stage.status for stage in read_records(runs(out)[-1])[0].stages}
    assert stages["convert"] == stages["reference"] == stages["score"] == "cached" and stages["latency"] == "ok"


@pytest.mark.slow
@pytest.mark.ci
def test_a_conversion_with_zeroed_weights_is_made_again_and_the_record_says_so(finished, tmp_path, capsys):
    out, _, records = finished
    shutil.copytree(out / "cache", tmp_path / "cache")
    for weights in (tmp_path / "cache" / "convert").rglob("weight.bin"):
        with weights.open("r+b") as file:
            file.seek(1024)
            file.write(bytes(weights.stat().st_size - 1024))
    assert run(tmp_path, *ONE, "tracking.enabled=false") in RAN
    (record,) = read_records(runs(tmp_path)[0])
    again = "made again, as the stored one could not be used: model.mlpackage/Data/com.apple.CoreML/weights/weight.bin"
    stages = {stage.stage: (stage.status, stage.reason) for stage in record.stages}
    assert stages["convert"] == ("ok", f"{again} holds other bytes than when it was stored")
    assert again in capsys.readouterr().err and stages["score"][0] == stages["predict"][0] == "cached"
    same = next(one for one in records if one.cell_key == record.cell_key)
    assert record.value("psnr_db") == same.value("psnr_db")
    for file in record.artifacts:
        assert hashlib.sha256(Path(file.path).read_bytes()).hexdigest() == file.sha256


@pytest.mark.slow
@pytest.mark.ci
def test_resume_last_returns_the_records_of_a_finished_run(finished):
    out, _, _ = finished
    before = {path: started_tasks(path) for path in runs(out)}
    run(out, *MATRIX, "resume=last")
    run(out, *MATRIX, f"resume={runs(out)[0].name}")
    assert {path: started_tasks(path) for path in runs(out)} == before


@pytest.mark.slow
@pytest.mark.ci
def test_resume_of_another_matrix_is_refused(finished, capsys):
    out, _, _ = finished
    assert run(out, *TINY, "chunks=3", f"resume={runs(out)[0].name}") == 2
    assert "is of another matrix, host or version of the tools" in capsys.readouterr().err
    assert run(out, *TINY, "chunks=3", "resume=last") == 2
    assert "no earlier run of this matrix" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.ci
def test_the_sweep_was_logged_and_can_be_logged_again_without_doubling(finished, capsys):
    import mlflow

    out, _, records = finished
    uri = f"sqlite:///{out}/mlflow.db"
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("ane-sweep")
    before = len(client.search_runs([experiment.experiment_id]))
    assert before >= len(records) + 1
    assert main(["log", runs(out)[0].name, f"out={out}"]) == 0
    assert len(client.search_runs([experiment.experiment_id])) == before
    assert "compare-runs" in capsys.readouterr().out


def test_all_refused_is_a_bad_configuration(tmp_path, capsys):
    assert run(tmp_path, "-m", *EAGER, "seq_len=4096,8192") == 2
    assert "seq_len=4096 is beyond the 512 positions of tiny-gpt2" in capsys.readouterr().err
    assert not runs(tmp_path)


@pytest.mark.slow
@pytest.mark.ci
def test_one_refused_cell_is_recorded_beside_the_others(finished):
    out, _, _ = finished
    line = [word for word in ONE if not word.startswith("seq_len=")]
    assert run(out, "-m", *line, "seq_len=16,4096", "tracking.enabled=false") in RAN
    first, second = read_records(runs(out)[-1])
    assert first.status in (Status.OK, Status.DEGRADED)
    assert (second.status, second.reason) == (Status.REFUSED, "seq_len=4096 is beyond the 512 positions of tiny-gpt2")


@pytest.mark.slow
@pytest.mark.ci
def test_cells_that_differ_only_in_chunks_share_one_score_and_one_check(finished):
    out, _, records = finished
    groups = [records]
    if sys.platform == "linux":  # where no time is asked for of this host
        assert run(out, "-m", *TINY, "latency.repeats=auto", "chunks=1,2", "tracking.enabled=false") in RAN
        groups.append(read_records(runs(out)[-1]))
        assert len({record.realised["latency_task"] for record in groups[1]}) == 1
        assert all(record.value("latency_median_ms") for record in groups[1])
    for group in groups:
        found: dict[str, set[str | None]] = {}
        for record in group:
            keys = {stage.key for stage in record.stages if stage.stage == "score"}
            found.setdefault(record.cell["variant"], set()).update(keys)
            assert record.realised["chunks"] == record.cell["chunks"]
            assert record.realised.get("scored") == ("uncut" if record.cell["chunks"] == 2 else None)
        assert all(len(keys) == 1 for keys in found.values())


@pytest.mark.slow
@pytest.mark.ci
def test_a_cell_whose_cut_failed_has_no_score(finished):
    out, _, _ = finished
    assert run(out, "-m", *ONE, "cuts=null,[op:nosuch]", "latency=off", "tracking.enabled=false") not in RAN
    whole, cut = read_records(runs(out)[-1])
    assert whole.value("psnr_db") > 60 and cut.status == Status.FAILED and "op:nosuch" in cut.reason
    assert [stage.status for stage in cut.stages if stage.stage in ("chunk", "score")] == ["failed", "blocked"]
    assert cut.value("psnr_db") is None and cut.realised["chunks"] is None


@pytest.mark.slow
@pytest.mark.ci
def test_kill_9_of_the_parent_loses_nothing_and_repeats_nothing(tmp_path):
    args = ["-m", *EAGER, "variant=original,split_einsum", "lanes=1"]
    parent = spawn(tmp_path, *args)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/*/tasks/latency-*/digests.json")):  # the first timing is done, the second is not
        assert time.monotonic() < deadline and parent.poll() is None, parent.communicate()[0]
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    time.sleep(1.0)
    assert not workers_of(tmp_path), "a worker outlived its parent"
    (folder,) = runs(tmp_path)
    assert not (folder / "records.jsonl").exists()
    done = {path: (path.parent / "result.json").stat().st_mtime_ns for path in folder.glob("tasks/*/digests.json")}
    code = run(tmp_path, *args)
    assert code in RAN and runs(tmp_path) == [folder]
    again = {path: (path.parent / "result.json").stat().st_mtime_ns for path in done}
    assert again == done, "something was done twice"
    assert len(read_records(folder)) == 2


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("where", [pytest.param("write_report", marks=pytest.mark.ci), "show", "track"])
def test_interrupted_in_its_report_or_log_a_run_goes_on_there_and_times_nothing_again(
    finished, monkeypatch, capsys, where
):
    out, _, _ = finished
    with monkeypatch.context() as patch:
        patch.setattr(engine, where, interrupted)
        assert run(out, *ONE) == 130
    folder, started = runs(out)[-1], started_tasks(runs(out)[-1])
    records = (folder / "records.jsonl").read_bytes()
    assert len(records.splitlines()) == 1 and not json.loads((folder / "run.json").read_text())["published"]
    capsys.readouterr()
    assert run(out, *ONE) in RAN and runs(out)[-1] == folder and started_tasks(folder) == started
    said = capsys.readouterr()
    assert f"going on with {folder.name}: its cells are done" in said.err and "compare: http" in said.out
    assert (folder / "report.html").exists() and (folder / "records.jsonl").read_bytes() == records
    run(out, *ONE, "tracking.enabled=false")
    assert runs(out)[-1] != folder


@pytest.mark.slow
@pytest.mark.ci
def test_damaged_records_of_a_finished_run_are_made_again_without_timing_anything(finished, capsys):
    out, _, _ = finished
    run(out, *ONE, "tracking.enabled=false")
    folder, started = runs(out)[-1], started_tasks(runs(out)[-1])
    (before,) = read_records(folder)
    (folder / "records.jsonl").write_bytes(b'{"schema": 1, "\xff')
    assert main(["report", f"out={out}"]) == 2 and "is no UTF-8 text" in capsys.readouterr().err
    assert run(out, *ONE, "resume=last", "tracking.enabled=false") in RAN
    (after,) = read_records(folder)
    assert (after.cell_key, after.timings) == (before.cell_key, before.timings) and started_tasks(folder) == started


@pytest.mark.slow
def test_kill_9_after_the_records_costs_nothing_but_the_report(finished):
    out, _, _ = finished
    seen = len(runs(out))
    parent = spawn(out, *ONE)
    deadline = time.monotonic() + 120
    while len(runs(out)) == seen or not (runs(out)[-1] / "records.jsonl").exists():
        assert time.monotonic() < deadline and parent.poll() is None, parent.communicate()[0]
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    folder, started = runs(out)[-1], started_tasks(runs(out)[-1])
    assert not (folder / "report.html").exists()
    assert run(out, *ONE) in RAN and runs(out)[-1] == folder and started_tasks(folder) == started
    assert (folder / "report.html").exists()


@pytest.mark.slow
def test_ctrl_c_ends_the_workers_and_the_same_command_goes_on(tmp_path):
    args = ["-m", *EAGER, "variant=original,split_einsum"]
    parent = spawn(tmp_path, *args)
    deadline = time.monotonic() + 60
    while not workers_of(tmp_path):
        assert time.monotonic() < deadline and parent.poll() is None
        time.sleep(0.02)
    parent.send_signal(signal.SIGINT)
    output, _ = parent.communicate(timeout=30)
    assert (
        parent.returncode == 130 and "the same command goes on where it stopped" in output and "Traceback" not in output
    )
    assert not workers_of(tmp_path)
    (folder,) = runs(tmp_path)
    assert run(tmp_path, *args) in RAN and runs(tmp_path) == [folder]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_any_moment_lose_nothing_and_repeat_nothing(tmp_path, seed):
    args, drawn = ["-m", *EAGER, "variant=original,split_einsum"], random.Random(seed)
    done: dict[Path, int] = {}
    for _ in range(8):
        parent = spawn(tmp_path, *args)
        time.sleep(drawn.uniform(0.1, 8))
        parent.send_signal(drawn.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
        output = parent.communicate(timeout=60)[0]
        assert "Traceback" not in output, output
        deadline = time.monotonic() + 10
        while workers_of(tmp_path):
            assert time.monotonic() < deadline, "a worker outlived its parent"
            time.sleep(0.05)
        kept = [*tmp_path.glob("runs/*/tasks/latency-*/result.json"), *tmp_path.glob("cache/*/??/*/result.json")]
        now = {path: path.stat().st_mtime_ns for path in kept}
        assert done.items() <= now.items(), "something was done twice, or lost"
        done = now
        if any(json.loads(path.read_text()).get("published") for path in tmp_path.glob("runs/*/run.json")):
            break
    assert len(runs(tmp_path)) <= 1 and run(tmp_path, *args) in RAN
    assert all(len(read_records(folder)) == 2 for folder in runs(tmp_path))
    assert not list(tmp_path.glob("cache/tmp/*/*")) and not list(tmp_path.glob("cache/locks/*-*.lock"))


@pytest.mark.slow
def test_two_sweeps_on_one_cache_do_no_work_twice(tmp_path):
    args = ["-m", *EAGER, "variant=original,split_einsum"]
    both = [spawn(tmp_path, *args) for _ in range(2)]
    for process in both:
        output, _ = process.communicate(timeout=180)
        assert process.returncode in RAN, output
    assert len(runs(tmp_path)) == 2
    stages = [name.split("-")[0] for folder in runs(tmp_path) for name in started_tasks(folder)]
    assert stages.count("reference") == 1 and stages.count("score") == 2 and stages.count("latency") == 4


@pytest.mark.slow
def test_a_cheap_program_is_timed_in_four_processes_and_a_long_one_in_one(tmp_path, monkeypatch, capsys):
    args = [word for word in EAGER if word != ONCE]
    assert run(tmp_path, *args) in RAN
    assert "timing up to 4 processes, one at a time" in capsys.readouterr().err
    assert run(tmp_path, *args) in RAN
    assert main(["compare", *(folder.name for folder in runs(tmp_path)), f"out={tmp_path}"]) in (0, 1)
    assert "1 cell tested" in (said := capsys.readouterr().out) or "regression: 1 slower" in said
    monkeypatch.setattr(task_runner, "CHEAP_S", 0.01)
    assert run(tmp_path, *args) in RAN
    *_, cheap, long = [read_records(folder)[0] for folder in runs(tmp_path)]
    assert cheap.value("latency_processes") == 4 and long.value("latency_processes") is None
    assert long.status in (Status.OK, Status.DEGRADED) and long.value("latency_median_ms") > 0
    told = [(stage.status, (stage.reason or "")[:22]) for stage in long.stages if stage.stage == "latency"]
    assert told == [("ok", ""), *[("skipped", "the first process took")] * 3]
    assert run(tmp_path, *args, "latency.repeats=2") in RAN
    assert read_records(runs(tmp_path)[-1])[0].value("latency_processes") == 2


@pytest.mark.slow
@pytest.mark.ci
def test_an_unreachable_tracker_costs_no_record(finished, capsys):
    out, _, _ = finished
    code = run(out, *ONE, "tracking.uri=http://127.0.0.1:9")
    captured = capsys.readouterr()
    assert code in RAN and len(read_records(runs(out)[-1])) == 1
    assert "127.0.0.1:9" in captured.err and f"ane-sweep log {runs(out)[-1].name}" in captured.err


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 600 kB that `resize` makes larger; needs root and mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("this user cannot mount a tmpfs")
    yield folder, lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)
    subprocess.run(["umount", folder], check=True)


@pytest.mark.slow
def test_a_full_disk_is_said_and_the_same_command_goes_on(small_disk, capsys):
    folder, resize = small_disk
    args = [*EAGER, "seq_len=64"]  # two windows of logits: 512 kB
    assert run(folder, *args) in (1, 2)
    captured = capsys.readouterr()
    assert "no space left on device" in captured.out + captured.err
    assert not list(folder.glob("cache/*/??/*")) and not list(folder.glob("cache/tmp/*/*"))
    resize("50m")
    assert run(folder, *args) in RAN
    assert read_records(runs(folder)[-1])[0].status in (Status.OK, Status.DEGRADED)


def test_an_outputs_folder_that_is_a_file(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run(tmp_path / "file", *EAGER) == 2
    assert "choose another folder with out=PATH" in capsys.readouterr().err


def test_a_cache_of_an_older_schema(tmp_path, capsys):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "SCHEMA").write_text("0\n")
    assert run(tmp_path, *EAGER) == 2
    assert "has cache schema 0, this" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["repport"], "repport: unknown word (did you mean 'report'?)"),
        (
            ["report", "--jsn"],
            "--jsn: unknown here (did you mean '--json'?); known: --drift, --html, --json, --markdown, out=PATH",
        ),
        (["report", "nosuch"], "no sweep nosuch with records"),
        (["prune"], "prune needs older-than-days=N or max-gb=N"),
        (["prune", "max-gb=inf"], "max-gb=inf: expected a number of 0 or more"),
        (["prune", "older-than-days=-1"], "older-than-days=-1: expected a number of 0 or more"),
        (["compare", "last:chunks=1,x", "last"], "last:chunks=1,x: 'x' chooses nothing"),
        (["chunks=0"], "chunks=0: must be 1 or more"),
        (["model=gpt2"], "weights=random, which is labelled in every result"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_exit_2(tmp_path, monkeypatch, capsys, args, text):
    monkeypatch.setenv("ANE_SWEEP_OUT", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    assert main(args) == 2
    error = capsys.readouterr().err
    assert text in error and "Traceback" not in error


@pytest.mark.slow
@pytest.mark.ci
def test_the_crash_test_ends_each_cell_in_its_own_true_status(tmp_path):
    assert run(tmp_path, "+sweep=crash_test", "tracking.enabled=false") == 1
    found = {record.cell["fault"]: record for record in read_records(runs(tmp_path)[0])}
    assert found["none"].status in (Status.OK, Status.DEGRADED)
    expected = {
        "segfault": (Status.CRASHED, "SIGSEGV"),
        "hang": (Status.TIMEOUT, "10 s"),
        "memory": (Status.OUT_OF_MEMORY, "memory"),
        "raise": (Status.FAILED, "raised on purpose"),
        "corrupt_weights": (Status.FAILED, "not finite"),
    }
    for fault, (status, words) in expected.items():
        assert found[fault].status == status and words in found[fault].reason
        stages = {stage.stage: stage.status for stage in found[fault].stages}
        assert stages["convert"] == status.value and stages["latency"] == stages["score"] == "blocked"
    assert not workers_of(tmp_path)


@pytest.mark.slow
def test_the_users_own_line_against_a_hub(tmp_path):
    gpt2_checkpoint(tmp_path / "hub" / "openai-community" / "gpt2")
    gpt2_checkpoint(tmp_path / "hub" / "openai-community" / "gpt2-xl", seed=1, n_layer=6)
    with serve(tmp_path / "hub", token="hf_s3cret") as (endpoint, seen):
        line = ["-m", "model=gpt2,gpt2-xl", "chunks=1,2,4"]
        env = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0", "HF_TOKEN": "hf_s3cret"}
        process = spawn(tmp_path / "out", *line, **env)
        output, _ = process.communicate(timeout=600)
    assert process.returncode in RAN, output
    records = read_records(runs(tmp_path / "out")[0])
    assert [(r.cell["model"], r.cell["chunks"]) for r in records] == [
        (m, c) for m in ("gpt2", "gpt2-xl") for c in (1, 2, 4)
    ]
    assert {r.status for r in records} <= {Status.OK, Status.DEGRADED}, output
    assert {r.weights.kind for r in records} == {"pretrained"} and {r.realised["texts"] for r in records} == {"real"}
    assert all("openai-community" in r.weights.source for r in records) and "weights=random" not in output
    assert sum(line.startswith("GET") and "model.safetensors" in line for line in seen) == 2
    kept = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.stat().st_size < 1 << 24]
    assert (tmp_path / "out" / "mlflow.db") in kept
    assert not [path for path in kept if b"hf_s3cret" in path.read_bytes()], (
        "a token is in no record, log, page or tracker"
    )
    assert "hf_s3cret" not in output


@pytest.mark.slow
def test_trained_minilm_in_both_variants(tmp_path, capsys):
    words = [
        "-m",
        "model=minilm",
        "variant=original,split_einsum",
        "chunks=1,2",
        "pipeline=coreml",
    ]  # scored as it is cut
    assert main(["plan", *words, f"out={tmp_path}"]) == 0
    promised = float(re.search(r"disk ([\d.]+) MB", capsys.readouterr().out)[1]) * 1e6
    code = run(tmp_path, *words)
    records = read_records(runs(tmp_path)[0])
    assert code in RAN and len(records) == 4
    for record in records:
        assert record.weights.kind == "pretrained" and record.realised["texts"] == "real"
        assert record.value("psnr_db") > 60 and record.value("top1_agreement") == 1.0
    used = sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert 0.8 < used / promised < 1.2, f"the plan promised {promised:.0f} bytes, the sweep left {used}"
    by_variant: dict[str, set[float]] = {}
    for record in records:
        by_variant.setdefault(record.cell["variant"], set()).add(record.value("psnr_db"))
    assert all(len(values) == 1 for values in by_variant.values()), "chunks=2 differs from chunks=1"
