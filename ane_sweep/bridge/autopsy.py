"""The reason why a worker died without a result: a status and a sentence, from its exit code and the tail of its stderr."""

import os
import re
import signal
from pathlib import Path

from ane_sweep import native_errors
from ane_sweep.bridge.protocol import EXIT_NO_SPACE
from ane_sweep.bridge.runtimes import traits
from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import TaskRequest
from ane_sweep.errors import End

_TAIL_BYTES = 64 << 10
_COMPILE_FOR_ANE = {name for name, stage in STAGES.items() if stage.compiles_for_ane}
_SLOW = (
    ": Core ML compiles for the Neural Engine meanwhile, which can take hours; more chunks, compute_units=cpu_and_gpu, or "
    "limits.{stage}.timeout_s=SECONDS"
)
_KILLED = (
    ": Core ML was seen to do that where the Neural Engine's compiler had failed (coremltools issue 2758), and so does the "
    "kernel when memory runs out; more chunks, or compute_units=cpu_and_gpu"
)
_PRINTED = (
    "; it printed a line about refused memory, and its limit was {limit}: limits.{stage}.memory_gib=GIB sets another"
)


def read_tail(path: Path, limit: int = _TAIL_BYTES) -> str:
    """Return the last `limit` bytes of a file as text, however large the file is; '' if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit).decode("utf-8", errors="replace")
    except OSError:
        return ""


def cause_of_death(
    task: TaskRequest, ended_by: str | None, code: int | None, tail: str, ran_out: bool, timeout_s: float | None
) -> tuple[End, str]:
    """Return (status, one sentence) for a worker that left no result."""
    stage, limit = task.stage, task.limits.memory_bytes
    if ended_by == "memory":
        return "out_of_memory", f"{stage} was killed above its memory limit of {_gib(limit)}"
    if ended_by == "timeout":
        said = f"{stage} had not ended after {timeout_s:g} s and was killed"
        return "timeout", said + (_SLOW.format(stage=stage) if stage in _COMPILE_FOR_ANE else _find_last_frame(tail))
    name = exit_name(code)
    if name == "SIGKILL" and ran_out:
        return "out_of_memory", f"{stage} was killed by the kernel's out-of-memory killer"
    refused_memory = limit is not None and native_errors.reports_no_memory(tail)
    if refused_memory and name != "SIGKILL" and "code" not in task.inputs:  # what a user's module prints is no evidence
        return (
            "out_of_memory",
            f"{stage} was refused memory (limit {_gib(limit)}) and ended with {name}: {_find_last_line(tail)}",
        )
    if name == "SIGKILL":
        if stage in _COMPILE_FOR_ANE or traits(task.params.get("runtime")).coreml:
            return "crashed", f"{stage} was killed by SIGKILL from outside{_KILLED}"
        return "crashed", (
            f"{stage} was killed by SIGKILL from outside (the kernel's out-of-memory killer does that, and so does "
            "macOS for a code signature it refuses); look into the system log"
        )
    if isinstance(name, str):
        hint = _PRINTED.format(stage=stage, limit=_gib(limit)) if refused_memory else ""
        return "crashed", f"{stage} crashed with {name}{_find_last_frame(tail)}{hint}"
    if code == EXIT_NO_SPACE:
        return "failed", native_errors.no_space_reason(task.result)
    return (
        "failed",
        f"{stage} exited with code {name} and left no result: {_find_last_line(tail) or 'nothing on stderr'}",
    )


def exit_name(code: int | None) -> int | str | None:
    """Return an exit code unchanged, or the name of the signal that ended the process ('SIGSEGV')."""
    if code is None or code >= 0:
        return code
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _find_last_frame(tail: str) -> str:
    """Return the frame in which the interpreter died: the first one that faulthandler wrote after 'most recent call first'."""
    found = re.findall(r"(?:Current thread|Thread) 0x\w+[^\n]*most recent call first\):\n\s+(File [^\n]+)", tail)
    return f" ({found[-1]})" if found else ""


def _find_last_line(tail: str) -> str:
    """Return the last informative line of stderr, passing over faulthandler's frames and its list of extension modules."""
    for line in reversed([line.strip() for line in tail.splitlines() if line.strip()]):
        if not line.startswith(("Extension modules:", "File ", "Current thread", "Thread 0x", "<no Python frame>")):
            return line[:300]
    return ""


def _gib(size: int | None) -> str:
    return "none" if size is None else f"{size / 2**30:.2f} GiB"
