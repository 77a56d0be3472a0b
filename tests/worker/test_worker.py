"""The worker's own functions; whole workers are run in test_isolate.py."""

import ctypes
import errno
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from ane_sweep import native_errors
from ane_sweep.bridge import disk
from ane_sweep.bridge.task import Limits, TaskRequest
from ane_sweep.errors import StageError, Unavailable, WeightsError
from ane_sweep.worker import child as worker
from ane_sweep.worker import faults

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


TORCH = "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"


def native(kind: type[BaseException], text: str) -> BaseException:
    """Return an exception that C code has raised."""
    raised = ctypes.pythonapi.PyErr_SetString
    raised.argtypes, raised.restype = [ctypes.py_object, ctypes.c_char_p], None
    with pytest.raises(kind) as info:
        raised(kind, text.encode())
    return info.value


def raised_by_python(error: BaseException) -> BaseException:
    """Return an exception that a `raise` statement has raised."""
    with pytest.raises(type(error)) as info:
        raise error
    return info.value


class Mute(RuntimeError):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise MemoryError("std::bad_alloc")


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (StageError("no cut point left"), "failed", "no cut point left"),
        (Unavailable("needs macOS"), "unavailable", "needs macOS"),
        (ValueError("one\ntwo"), "failed", "ValueError: one"),
        (KeyError(), "failed", "KeyError"),
        (native(RuntimeError, TORCH), "out_of_memory", None),
        (raised_by_python(RuntimeError(TORCH)), "failed", f"RuntimeError: {TORCH}"),
        (caused(ValueError("x"), RuntimeError(TORCH)), "failed", "ValueError: x"),
        (native(RuntimeError, "no MemoryError was seen"), "failed", "RuntimeError: no MemoryError was seen"),
        (native(OSError, "/data/out of memory/std::bad_alloc.pt is not there"), "failed", None),
        (native(ImportError, "libx.so: cannot allocate memory in static TLS block"), "failed", None),
        (raised_by_python(Mute()), "failed", "Mute: its message cannot be read: its __str__ raised MemoryError"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out_of_memory", None),
        (native(ImportError, "libx.so: failed to map segment: Cannot allocate memory"), "out_of_memory", None),
        (caused(WeightsError("cannot read"), MemoryError()), "out_of_memory", None),
        (StageError("the text speaks of: out of memory"), "failed", "the text speaks of: out of memory"),
    ],
)
def test_explain(error, status, reason, tmp_path):
    found = worker.explain_failure(error, tmp_path)
    assert found[0] == status
    assert reason in (None, found[1])


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "/x/weight.bin"),
        OSError(errno.EDQUOT, "Disk quota exceeded", "/x/weight.bin"),
        native(RuntimeError, "Io error: No space left on device (os error 28)"),
        caused(WeightsError("cannot write"), OSError(errno.ENOSPC, "No space left on device", "/x/weight.bin")),
    ],
)
def test_explain_a_full_disk(error, tmp_path):
    status, reason = worker.explain_failure(error, tmp_path)
    assert status == "failed"
    assert reason in (native_errors.no_space_reason("/x/weight.bin"), native_errors.no_space_reason(tmp_path))


def test_a_disk_is_not_full_because_an_exception_of_the_users_says_so(tmp_path):
    error = raised_by_python(RuntimeError("No space left on device, says my table of errors"))
    reason = worker.explain_failure(error, tmp_path)[1]
    assert reason == "RuntimeError: No space left on device, says my table of errors"
    assert not native_errors.is_no_space_reason(reason) and native_errors.is_no_space_reason(
        native_errors.no_space_reason(tmp_path)
    )


def test_a_native_writer_that_only_says_it_could_not(monkeypatch, tmp_path):
    error = RuntimeError("Unable to write to weight file")
    assert worker.explain_failure(error, tmp_path) == ("failed", "RuntimeError: Unable to write to weight file")
    full = os.statvfs_result((4096, 4096, 1000, 3, 3, 10, 10, 10, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    assert worker.explain_failure(error, tmp_path) == ("failed", native_errors.no_space_reason(tmp_path))


def test_a_very_long_message_is_cut():
    assert len(worker.describe_error(ValueError("x" * 5000))) == 600


def test_strict_unwraps_and_names_what_is_not_a_number():
    doubts: list[str] = []
    value = {
        "a": np.float32(1.5),
        "b": np.arange(3),
        "c": Path("/x"),
        "d": (1, None, True),
        5: float("nan"),
        "e": np.float64("inf"),
        "f": np.bool_(True),
    }
    assert worker.to_json_value(value, "facts", doubts) == {
        "a": 1.5,
        "b": [0, 1, 2],
        "c": "/x",
        "d": [1, None, True],
        "5": None,
        "e": None,
        "f": True,
    }
    assert doubts == [
        "facts was nan, which is not a number JSON can carry; kept as null",
        "facts was inf, which is not a number JSON can carry; kept as null",
    ]
    with pytest.raises(TypeError, match="realised holds a object, which JSON cannot carry"):
        worker.to_json_value({"x": object()}, "realised", doubts)


def task(tmp_path: Path, fault: str | None = None, **more) -> TaskRequest:
    params = {"options": {"fault": fault}} if fault else {}
    return TaskRequest(
        "fake", "k", params, {}, tmp_path / "out", tmp_path / "tmp", result=tmp_path / "result.json", **more
    )


def test_a_metric_that_is_not_finite_keeps_the_stage_ok(monkeypatch, tmp_path):
    from ane_sweep.bridge.figures import Metric
    from ane_sweep.worker.stages import StageResult

    found = StageResult([Metric("psnr_db", float("inf"), "dB"), Metric("cosine", 1.0, "")], doubts=["its own"])
    monkeypatch.setattr(worker, "run_stage", lambda task: found)
    outcome = worker.attempt(task(tmp_path))
    assert (outcome.status, outcome.reason) == ("ok", None)
    assert [metric.value for metric in outcome.metrics] == [None, 1.0]
    assert outcome.doubts == ["its own", "metric psnr_db was inf, which is not a number JSON can carry; kept as null"]


@pytest.mark.parametrize("wrong", [{"realised": {"chunks": [1]}}, {"facts": {"measured_on": "here"}}])
def test_what_a_stage_says_in_another_form_than_readers_rely_on_fails_the_task(monkeypatch, tmp_path, wrong):
    from ane_sweep.worker.stages import StageResult

    monkeypatch.setattr(worker, "run_stage", lambda task: StageResult(**wrong))
    outcome = worker.attempt(task(tmp_path))
    assert outcome.status == "failed" and next(iter(*wrong.values())) in outcome.reason


def run_python(code: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, **options)


def test_task_file_in_result_file_out(tmp_path):
    path = tmp_path / "task.json"
    task(tmp_path, fault="raise").write(path)
    done = subprocess.run([sys.executable, "-m", "ane_sweep.worker.child", str(path)], capture_output=True, text=True)
    assert done.returncode == 1
    result = disk.read_json(tmp_path / "result.json")
    assert result["status"] == "failed"
    assert result["reason"] == "RuntimeError: raised on purpose by the crash test"
    assert (result["schema"], result["stage"], result["key"]) == (1, "fake", "k")
    assert result["peak_bytes"] > 0 and result["seconds"] > 0
    assert "Traceback" in done.stderr


def test_a_worker_imports_nothing_heavy_before_its_stage():
    heavy = {"torch", "numpy", "coremltools", "transformers", "hydra", "mlflow"}
    code = f"import sys, ane_sweep.worker.child; print(sorted({heavy} & set(sys.modules)))"
    assert run_python(code).stdout == "[]\n"


@linux
def test_limits_and_lifting_them():
    code = """
import resource
from ane_sweep.worker import child as worker
worker.set_limits(100 << 20)
print(resource.getrlimit(resource.RLIMIT_CORE)[0], resource.getrlimit(resource.RLIMIT_DATA)[0])
try:
    b"x" * (200 << 20)
except MemoryError:
    print("refused")
worker.lift_memory_limit()
print(len(b"x" * (200 << 20)))
"""
    assert run_python(code).stdout.split() == ["0", str(100 << 20), "refused", str(200 << 20)]


@linux
def test_a_result_is_written_though_memory_ran_out(tmp_path):
    code = f"""
import json
from ane_sweep.worker import child as worker
held = []
def hoard(task):
    size = 1 << 20
    while True:
        try:
            held.append(b"x" * size)
        except MemoryError:
            size //= 2
            if size < 8:
                raise
worker.run_stage = hoard
print(worker.main([{str(tmp_path / "task.json")!r}]))
"""
    task(tmp_path, limits=Limits(60 << 20)).write(tmp_path / "task.json")
    done = run_python(code)
    assert done.stdout == "1\n", done.stderr
    assert disk.read_json(tmp_path / "result.json")["status"] == "out_of_memory"


@pytest.mark.parametrize("platform", [pytest.param("linux", marks=linux), "darwin"])
def test_a_child_dies_with_its_parent(platform, tmp_path):
    """A parent, killed with -9, whose child sleeps; both ways of noticing it, on whatever system this is."""
    child = f"""
import os, sys, time
from ane_sweep.worker import child as worker
worker.die_with_parent(int(sys.argv[1]), {platform!r})
open({str(tmp_path / "ready")!r}, "w").write(str(os.getpid()))
time.sleep(60)
"""
    parent = f"""
import os, subprocess, sys
stdin = subprocess.PIPE if {platform != "linux"} else subprocess.DEVNULL
child = subprocess.Popen([sys.executable, "-c", {child!r}, str(os.getpid())], stdin=stdin, start_new_session=True)
child.wait()
"""
    middle = subprocess.Popen([sys.executable, "-c", parent])
    deadline = time.monotonic() + 20
    while not (tmp_path / "ready").exists() or not (tmp_path / "ready").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    pid = int((tmp_path / "ready").read_text())
    os.kill(pid, 0)
    middle.kill()
    middle.wait()
    deadline = time.monotonic() + 1
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.01)


def test_a_child_whose_parent_is_gone_already_does_not_start():
    assert (
        run_python(
            "from ane_sweep.worker import child as worker; worker.die_with_parent(1 << 22); print('alive')"
        ).stdout
        == ""
    )


def write_safetensors(path: Path, values: np.ndarray) -> None:
    header = json.dumps(
        {"w": {"dtype": "F32", "shape": list(values.shape), "data_offsets": [0, values.nbytes]}}
    ).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + values.tobytes())


def test_corrupt_weights_of_the_right_size(tmp_path):
    from safetensors.numpy import load_file

    good = tmp_path / "good"
    good.mkdir()
    write_safetensors(good / "model.safetensors", np.ones((3, 4), np.float32))
    (good / "config.json").write_text("{}")
    bad = faults.corrupt_checkpoint(good, tmp_path / "bad")
    assert (bad / "model.safetensors").stat().st_size == (good / "model.safetensors").stat().st_size
    tensor = load_file(bad / "model.safetensors")["w"]
    assert tensor.shape == (3, 4)
    assert np.isnan(tensor).all()
    assert (bad / "config.json").read_text() == "{}"
    assert np.isfinite(load_file(good / "model.safetensors")["w"]).all()


def test_corrupting_what_is_no_checkpoint(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(WeightsError, match=r"no \*\.safetensors in .*empty"):
        faults.corrupt_checkpoint(tmp_path / "empty", tmp_path / "a")
    (tmp_path / "empty" / "model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(WeightsError, match="header length is out of range"):
        faults.corrupt_checkpoint(tmp_path / "empty", tmp_path / "b")


def test_corrupt_inputs_leaves_other_tasks_alone(tmp_path):
    params, inputs = {"weights": {"kind": "path"}}, {"checkpoint": tmp_path}
    assert faults.corrupt_inputs(None, params, inputs, tmp_path) == (params, inputs)
    with pytest.raises(StageError, match="this stage reads no weights"):
        faults.corrupt_inputs("corrupt_weights", {"count": 2}, {}, tmp_path)


def test_corrupt_random_weights_are_refused_by_whoever_loads_them(tmp_path):
    from ane_sweep.worker.models.weights import load_state

    model = {
        "family": "gpt2",
        "task": "causal_lm",
        "arch": {"vocab_size": 20, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2},
    }
    params = {"model": model, "weights": {"kind": "random", "digest": "random:0", "seed": 0}}
    load_state(params["weights"], None, model)
    params, inputs = faults.corrupt_inputs("corrupt_weights", params, {}, tmp_path)
    assert params["weights"]["kind"] == "path"
    with pytest.raises(WeightsError, match="not finite"):
        load_state(params["weights"], inputs["checkpoint"], model)
