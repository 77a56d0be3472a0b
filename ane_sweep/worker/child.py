"""The child: one task in one fresh process. `python -m ane_sweep.worker.child TASK_JSON` (see bridge for the two files), or
forked from a parent that has done the imports (parent.py).

In this order, because each step protects the next: die with the parent; kernel limits; a TMPDIR of its own; the fault
of a crash test, if any; only then the stage and with it torch or coremltools. Whatever happens in Python ends as a
result.json; what kills the interpreter itself is written down by the parent (isolate.py).

Memory limit. On Linux it is RLIMIT_DATA, which counts every private writable mapping, touched or not: the heap, thread
stacks (8 MiB a thread) and BLAS buffers (OpenBLAS: 40 MiB a thread). After import alone, with 1 thread / 2 threads
(measured, Linux x86-64): numpy 46 / 86 MiB, torch 175 / 216, torch + transformers 192 / 232, coremltools (with both)
391 / 471. Shared libraries do not count; a checkpoint that safetensors opens for torch does, in full and at once, as it
is mapped private and writable (400 MiB opened: 400 MiB more, measured). Elsewhere no such limit exists in the kernel
and the parent watches instead. While a library is loaded the limit is lifted, and what it took is held against it then:
OpenBLAS, which numpy and scipy bring along, asks for its buffers at once and, refused, again and again without end.

Figures JSON cannot carry. A metric that is NaN or infinite becomes null and a sentence in `doubts` says so; the status
stays what the stage made of it. The same holds for numbers in `realised` and `facts`.
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
from typing import Any, NoReturn, TypeVar

import msgspec

from ane_sweep.bridge import conversion, disk, protocol, trouble
from ane_sweep.bridge.figures import Metric, Placement, Timing
from ane_sweep.bridge.protocol import EXIT_NO_SPACE, MEMORY_VARIABLE, PARENT_VARIABLE
from ane_sweep.bridge.task import TaskRequest, TaskResult
from ane_sweep.errors import Died, End, StageError, Unavailable
from ane_sweep.machine import stand_in
from ane_sweep.worker import faults, imports, leftovers
from ane_sweep.worker.stages import StageResult

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_REASON_CHARS = 600
F = TypeVar("F", Metric, Timing, Placement)


def main(arguments: list[str]) -> int:
    """Run the task of one task.json and write its result. Returns the exit code: 0 when the stage ended ok, else 1."""
    started = time.monotonic()
    die_with_parent(int(os.environ.get(PARENT_VARIABLE, os.getppid())))
    leftovers.adopt_orphans()
    task = TaskRequest.read(Path(arguments[0]))
    explain_death()
    set_limits(task.limits.memory_bytes)
    use_tmp(task.tmp)
    imports.skip_unused()
    result = attempt(task)
    result.seconds, result.peak_bytes = time.monotonic() - started, protocol.peak_bytes()
    try:
        result.write(task.result)
    except OSError as error:
        if not trouble.is_out_of_space(error):
            raise
        return EXIT_NO_SPACE
    return 0 if result.status == "ok" else 1


def die_with_parent(parent: int, platform: str = sys.platform) -> None:
    """See to it that this process does not outlive process `parent`; exits at once if that is already gone.

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
    """On a fatal signal, and on the SIGTERM that comes just before a timeout's SIGKILL, write all stacks to stderr.

    The handlers are C code, so they also speak while native code hangs with the interpreter lock in its hands.
    """
    faulthandler.enable()
    faulthandler.register(signal.SIGTERM, all_threads=True, chain=False)


def set_limits(memory_bytes: int | None, platform: str = sys.platform) -> None:
    """No core files; on Linux a soft RLIMIT_DATA of `memory_bytes`, to be lifted again for writing the result."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes is None or platform != "linux":
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    _limit_after_loading()


def _limit_after_loading() -> None:
    """From now on load libraries without the limit; MemoryError where they took more than it."""
    create = ExtensionFileLoader.create_module

    def create_module(loader: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
        try:
            module = create(loader, spec)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        if soft != hard and (protocol.status_bytes("VmData") or 0) > soft:
            raise MemoryError(f"loading {spec.name} took this process above its limit of {soft / 2**30:.2f} GiB")
        return module

    ExtensionFileLoader.create_module = create_module  # type: ignore[method-assign, assignment]


def lift_memory_limit() -> None:
    """After the stage, so that its result can always be written down."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def use_tmp(tmp: Path) -> None:
    """Point everything temporary at this task's own folder; coremltools 9.0 leaves a copy of the weights per model."""
    tmp.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(tmp)
    tempfile.tempdir = None


def attempt(task: TaskRequest) -> TaskResult:
    """Run fault and stage; what only the end of the process tells is left out of the result. Never raises an Exception.

    The traceback of whatever went wrong goes to stderr in full; the reason is one sentence.
    """
    try:
        try:
            found = run_stage(task)
        finally:
            lift_memory_limit()  # what follows must not fail: even a traceback takes memory
        doubts = [*found.doubts]
        return TaskResult(
            task.stage,
            task.key,
            "ok",
            metrics=[_plain(metric, f"metric {metric.name}", doubts) for metric in found.metrics],
            timing=None if found.timing is None else _plain(found.timing, "timing", doubts),
            placement=[_plain(entry, "placement", doubts) for entry in found.placement],
            realised=strict(found.realised, "realised", doubts),
            facts=strict(found.facts, "facts", doubts),
            doubts=doubts,
        )
    except (Exception, SystemExit) as error:
        with contextlib.suppress(MemoryError, OSError, ValueError):
            traceback.print_exc()
        status, reason = explain(error, task.out)
        if status == "failed" and reason.startswith("no space left"):
            _empty(task.out)
    return TaskResult(task.stage, task.key, status, reason)


def run_stage(task: TaskRequest) -> StageResult:
    """Import ane_sweep.worker.stages.<stage> and call its run(params, inputs, out); in a crash test, the fault first."""
    faults.run_early(task.fault, task.limits.memory_bytes)
    task.out.mkdir(parents=True, exist_ok=True)
    params, inputs = faults.corrupt_inputs(task.fault, task.params, task.inputs, task.tmp)
    os.environ[stand_in.STAGE_VARIABLE] = task.stage
    os.environ[MEMORY_VARIABLE] = str(task.limits.memory_bytes or "")
    script = stand_in.active() if stand_in.concerns(task.stage, params) else None
    if script is not None:
        from ane_sweep.coreml_anywhere import scripted_remote

        scripted_remote.install(script)  # first: whoever imports time.sleep or a clock shall have the scripted one
    found: StageResult = importlib.import_module(f"ane_sweep.worker.stages.{task.stage}").run(params, inputs, task.out)
    if script is None:
        return found
    found.metrics = [script.labelled(metric) for metric in found.metrics]
    return found


def explain(error: BaseException, out: Path) -> tuple[End, str]:
    """(status, one sentence) for an exception that left a stage; looks along the whole chain of causes."""
    for link in trouble.error_chain(error):
        if trouble.is_out_of_memory(link):
            return "out_of_memory", f"a memory allocation was refused: {first_line(link)}"
        if trouble.is_out_of_space(link) or _full(link, out):
            return "failed", trouble.no_space_reason(getattr(link, "filename", None) or out)
    if isinstance(error, Unavailable):
        return "unavailable", trouble.text_of(error) or "this host cannot do it"
    if isinstance(error, Died):
        return error.status, trouble.text_of(error)
    if isinstance(error, StageError):
        return "failed", trouble.text_of(error) or type(error).__name__
    if isinstance(error, SystemExit):
        return "failed", f"the stage called sys.exit({error.code!r})"
    return "failed", first_line(error)


def _full(error: BaseException, out: Path) -> bool:
    """Native writers (coremltools' weight file) say only 'unable to write': look at the disk itself."""
    if isinstance(error, StageError) or not isinstance(error, (RuntimeError, OSError)):
        return False
    try:
        disk = os.statvfs(out)
    except OSError:
        return False
    return disk.f_blocks > 0 and disk.f_bavail * disk.f_frsize < 64 << 10


def first_line(error: BaseException) -> str:
    """'TypeError: what it says', the first line only and cut to a readable length."""
    text = trouble.text_of(error).strip().splitlines()
    line = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    return line if len(line) <= _REASON_CHARS else line[: _REASON_CHARS - 3] + "..."


def _plain(figure: F, where: str, doubts: list[str]) -> F:
    """A figure of plain numbers. Raises ValueError where what is left of it is none."""
    values = msgspec.to_builtins(figure, enc_hook=lambda value: value.tolist())
    return conversion.convert(strict(values, where, doubts), type(figure))


def strict(value: Any, where: str, doubts: list[str]) -> Any:
    """`value` as plain JSON data: numpy and torch values unwrapped, paths as text, NaN and infinity as null.

    Each non-finite number adds a sentence to `doubts`. Raises TypeError for what JSON has no form for.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        doubts.append(f"{where} was {value}, which is not a number JSON can carry; kept as null")
        return None
    if isinstance(value, dict):
        return {str(key): strict(item, where, doubts) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item, where, doubts) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return strict(value.tolist(), where, doubts)
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


def end(arguments: list[str]) -> NoReturn:
    """main, and nothing after it: the result is written, tearing torch and coremltools down costs time and can crash."""
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
    end(sys.argv[1:])
