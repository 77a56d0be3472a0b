"""The worker's process, which runs one task: `python -m ane_sweep.worker.child TASK_JSON`, or forked by fork_server.py.

The order of steps matters, because each protects the next: die with the parent; kernel limits; a TMPDIR of its own; the
fault of a crash test, if any; only then the stage and with it torch or coremltools. Every Python error ends as a
result.json; the parent records a death of the interpreter itself (isolate.py). bridge/task.py describes both files.

Memory limit. On Linux it is RLIMIT_DATA, which counts every private writable mapping, touched or not: the heap, thread
stacks (8 MiB a thread) and BLAS buffers (OpenBLAS: 40 MiB a thread). After import alone, with 1 thread / 2 threads
(measured, Linux x86-64): numpy 46 / 86 MiB, torch 175 / 216, torch + transformers 192 / 232, coremltools (with both)
391 / 471. Shared libraries do not count; a checkpoint that safetensors opens for torch does, in full and at once, as it
is mapped private and writable (400 MiB opened: 400 MiB more, measured). Elsewhere no such limit exists in the kernel
and the parent watches instead. While a library is loaded the limit is lifted, and checked again afterwards: OpenBLAS,
which numpy and scipy bring along, asks for its buffers at once and retries without end if they are refused.

JSON has no NaN or infinity. Such a metric becomes null and a sentence in `doubts` explains it; the status does not
change. The same holds for numbers in `realised` and `facts`.
"""

import contextlib
import ctypes
import faulthandler
import importlib
import math
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NoReturn, TypeVar

import msgspec

from ane_sweep import native_errors
from ane_sweep.bridge import conversion, disk, protocol
from ane_sweep.bridge.figures import Metric, Timing
from ane_sweep.bridge.protocol import EXIT_NO_SPACE, MEMORY_VARIABLE, PARENT_VARIABLE
from ane_sweep.bridge.task import Facts, Realised, TaskRequest, TaskResult
from ane_sweep.errors import Died, End, StageError, Unavailable
from ane_sweep.machine import stand_in
from ane_sweep.placement.types import Placement
from ane_sweep.worker import faults, imports, leftovers
from ane_sweep.worker.stages import StageResult

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_REASON_CHARS = 600
F = TypeVar("F", Metric, Timing, Placement)


def main(arguments: list[str]) -> int:
    """Run the task of one task.json and write its result. Return the exit code: 0 if the stage ended ok, else 1."""
    started = time.monotonic()
    die_with_parent(int(os.environ.get(PARENT_VARIABLE, os.getppid())))
    leftovers.adopt_orphans()
    task = TaskRequest.read(Path(arguments[0]))
    explain_death()
    set_limits(task.limits.memory_bytes)
    task.tmp.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(task.tmp)  # coremltools 9.0 leaves a copy of the weights there per model
    tempfile.tempdir = None
    limit_threads(task.threads)
    imports.skip_unused()
    result = attempt(task)
    result.seconds, result.peak_bytes = time.monotonic() - started, protocol.peak_bytes()
    try:
        result.write(task.result)
    except OSError as error:
        if not native_errors.is_out_of_space(error):
            raise
        return EXIT_NO_SPACE
    return 0 if result.status == "ok" else 1


def die_with_parent(parent: int, platform: str = sys.platform) -> None:
    """Make this process end when process `parent` ends; exit at once if the parent is already gone.

    Linux: the kernel sends SIGKILL when the *thread* that spawned us ends, which is why isolate.py waits for a worker
    in the thread that started it. Elsewhere: stdin is a pipe whose other end only the parent holds, and a thread
    blocks on it; native code that never lets go of the interpreter lock can delay that.
    """
    if platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), *[ctypes.c_ulong(0)] * 3)
    else:
        threading.Thread(target=_exit_at_eof, daemon=True).start()
    if os.getppid() != parent:  # it died before the lines above took hold
        os._exit(1)


def _exit_at_eof() -> None:
    while True:
        try:
            if not os.read(0, 4096):
                break
        except OSError:
            break
    if os.getpgrp() == os.getpid():  # our own session, as isolate.py starts us: take helpers (xcrun ...) along
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def explain_death() -> None:
    """Have all stacks written to stderr on a fatal signal and on the SIGTERM just before a timeout's SIGKILL.

    The handlers are C code, so they also work while native code hangs and holds the interpreter lock.
    """
    faulthandler.enable()
    faulthandler.register(signal.SIGTERM, all_threads=True, chain=False)


def limit_threads(count: int | None) -> None:
    """Make the libraries use `count` threads, torch also if the fork server has loaded it (its OpenBLAS keeps all cores)."""
    if count is not None:
        os.environ.update(dict.fromkeys(protocol.THREAD_VARIABLES, str(count)))
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(count)


def set_limits(memory_bytes: int | None, platform: str = sys.platform) -> None:
    """Forbid core files, and on Linux set a soft RLIMIT_DATA of `memory_bytes`, lifted again to write the result."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes is None or platform != "linux":
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    _limit_after_loading()


def _limit_after_loading() -> None:
    """Load libraries without the limit from now on; loading raises MemoryError if they took more than the limit."""
    create = ExtensionFileLoader.create_module

    def create_module(loader: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
        try:
            module = create(loader, spec)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        if soft != hard and protocol.status_fields().get("VmData", 0) > soft:
            raise MemoryError(f"loading {spec.name} took this process above its limit of {soft / 2**30:.2f} GiB")
        return module

    setattr(ExtensionFileLoader, "create_module", create_module)  # noqa: B010 (mypy refuses a plain assignment)


def lift_memory_limit() -> None:
    """Lift the soft limit, so that the result of the stage can always be written."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def attempt(task: TaskRequest) -> TaskResult:
    """Run the fault (of a crash test) and the stage, and return the result, without the figures of the whole process.
    Never raises an Exception.

    The traceback of an error goes to stderr in full; the reason is one sentence.
    """
    try:
        try:
            outcome = run_stage(task)
        finally:
            lift_memory_limit()  # what follows must not fail: even a traceback takes memory
        doubts = [*outcome.doubts]
        return TaskResult(
            task.stage,
            task.key,
            "ok",
            metrics=[_to_plain_figure(metric, f"metric {metric.name}", doubts) for metric in outcome.metrics],
            timing=None if outcome.timing is None else _to_plain_figure(outcome.timing, "timing", doubts),
            placement=[_to_plain_figure(entry, "placement", doubts) for entry in outcome.placement],
            realised=conversion.check(to_json_object(outcome.realised, "realised", doubts), Realised),
            facts=conversion.check(to_json_object(outcome.facts, "facts", doubts), Facts),
            doubts=doubts,
        )
    except (Exception, SystemExit) as error:
        with contextlib.suppress(MemoryError, OSError, ValueError):
            traceback.print_exc()
        status, reason = explain_failure(error, task.out)
        if status == "failed" and reason.startswith("no space left"):
            _empty(task.out)
    return TaskResult(task.stage, task.key, status, reason)


def run_stage(task: TaskRequest) -> StageResult:
    """Import ane_sweep.worker.stages.<stage> and call its run(params, inputs, out); in a crash test, the fault first."""
    params, inputs = faults.commit_fault(task)
    task.out.mkdir(parents=True, exist_ok=True)
    os.environ[stand_in.STAGE_VARIABLE] = task.stage
    os.environ[MEMORY_VARIABLE] = str(task.limits.memory_bytes or "")
    script = stand_in.active() if stand_in.concerns(task.stage, params) else None
    if script is not None:
        script.install()  # first, so that every later import of a clock gets the scripted one
    stage = importlib.import_module(f"ane_sweep.worker.stages.{task.stage}")
    outcome: StageResult = stage.run(params, inputs, task.out)
    if script is not None:
        outcome.metrics = [script.labelled(metric) for metric in outcome.metrics]
    return outcome


def explain_failure(error: BaseException, out: Path) -> tuple[End, str]:
    """Return (status, one sentence) for an exception that a stage raised, looking at all its causes."""
    for link in native_errors.error_chain(error):
        if native_errors.is_out_of_memory(link):
            return "out_of_memory", f"a memory allocation was refused: {describe_error(link)}"
        if native_errors.is_out_of_space(link) or _is_disk_full(link, out):
            return "failed", native_errors.no_space_reason(getattr(link, "filename", None) or out)
    if isinstance(error, Unavailable):
        return "unavailable", native_errors.text_of(error) or "this host cannot do it"
    if isinstance(error, Died):
        return error.status, native_errors.text_of(error)
    if isinstance(error, StageError):
        return "failed", native_errors.text_of(error) or type(error).__name__
    if isinstance(error, SystemExit):
        return "failed", f"the stage called sys.exit({error.code!r})"
    return "failed", describe_error(error)


def _is_disk_full(error: BaseException, out: Path) -> bool:
    """Return True if the disk is full; native writers (coremltools' weight file) report only 'unable to write'."""
    if isinstance(error, StageError) or not isinstance(error, (RuntimeError, OSError)):
        return False
    try:
        disk = os.statvfs(out)
    except OSError:
        return False
    return disk.f_blocks > 0 and disk.f_bavail * disk.f_frsize < 64 << 10


def describe_error(error: BaseException) -> str:
    """Return 'TypeError: first line of the message', cut to a readable length."""
    text = native_errors.text_of(error).strip().splitlines()
    line = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    return line if len(line) <= _REASON_CHARS else line[: _REASON_CHARS - 3] + "..."


def _to_plain_figure(figure: F, where: str, doubts: list[str]) -> F:
    """Return a figure with plain numbers only. Raises ValueError if it is then no longer valid."""
    values = msgspec.to_builtins(figure, enc_hook=lambda value: value.tolist())
    return conversion.convert(to_json_value(values, where, doubts), type(figure))


def to_json_object(values: dict[str, object], where: str, doubts: list[str]) -> dict[str, object]:
    """Return a mapping as plain JSON data; see to_json_value."""
    return {str(key): to_json_value(item, where, doubts) for key, item in values.items()}


def to_json_value(value: object, where: str, doubts: list[str]) -> object:
    """Return `value` as plain JSON data: numpy and torch values unwrapped, paths as text, NaN and infinity as null.

    Each non-finite number adds a sentence to `doubts`. Raises TypeError for a value that JSON cannot hold.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        doubts.append(f"{where} was {value}, which is not a number JSON can carry; kept as null")
        return None
    if isinstance(value, dict):
        return to_json_object(value, where, doubts)
    if isinstance(value, (list, tuple)):
        return [to_json_value(item, where, doubts) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return to_json_value(value.tolist(), where, doubts)
    raise TypeError(
        f"{where} holds a {type(value).__name__}, which JSON cannot carry; return plain values from the stage"
    )


def _empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                disk.remove_tree(path)
            else:
                path.unlink(missing_ok=True)


def run_and_exit(arguments: list[str]) -> NoReturn:
    """Run main and exit at once: the result is written, and tearing torch and coremltools down can crash."""
    code = 1
    try:
        code = main(arguments)
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    leftovers.end_children()
    os._exit(code)


if __name__ == "__main__":
    run_and_exit(sys.argv[1:])
