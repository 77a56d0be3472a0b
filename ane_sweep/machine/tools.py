"""Asking the system's own tools (sysctl, xcrun, ps, powermetrics ...), or the stand-in's script in their place.

One door, so that everything a Mac would answer can be scripted and no tool is ever waited for without an end.
Standard library only: planner and worker both use it.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ane_sweep.bridge import protocol
from ane_sweep.machine import stand_in

ASK_S = 5.0


@dataclass(frozen=True)
class Answer:
    """A tool's output and exit code. `code` is null if it did not answer in time; its output until then is kept."""

    code: int | None
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.code == 0


def ask(*command: str, timeout_s: float = ASK_S) -> Answer | None:
    """Run a tool to its end; None when there is no such tool. Nothing is ever typed into it."""
    script = stand_in.active()
    if script is not None:
        return _scripted(script, command)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=protocol.python_environment(),
        )
    except subprocess.TimeoutExpired as error:
        return Answer(None, _text(error.stdout), _text(error.stderr))
    except OSError:
        return None
    return Answer(done.returncode, done.stdout, done.stderr)


def text(*command: str, timeout_s: float = ASK_S) -> str | None:
    """Return a tool's output, stripped; None if it is absent, fails, does not answer or prints nothing."""
    answer = ask(*command, timeout_s=timeout_s)
    return answer.stdout.strip() or None if answer is not None and answer.ok else None


def start(*command: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a tool that goes on until it is ended (log stream, powermetrics). Raises FileNotFoundError without it.

    `options` are Popen's. Under the stand-in a small process prints what the script says.
    """
    script = stand_in.active()
    if script is None:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=protocol.python_environment(), **options)
    answer = script.answer("command", script.count_question("command"), argv=list(command))
    if answer is None:
        raise FileNotFoundError(2, f"not in the stand-in's script {script.name}", command[0])
    env = dict(os.environ, ANE_SWEEP_SAYS=_read_stdout(answer), ANE_SWEEP_ERRS=answer.get("stderr", ""))
    env |= {"ANE_SWEEP_CODE": str(answer.get("code", 0)), "ANE_SWEEP_FOREVER": "1" if answer.get("forever") else ""}
    env |= {"ANE_SWEEP_REPEAT": str(answer.get("repeat", 1))}
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", _SPEAKER], stdin=subprocess.DEVNULL, env=env, **options)


_SPEAKER = """
import os, sys, time
sys.stderr.write(os.environ["ANE_SWEEP_ERRS"]); sys.stderr.flush()
try:
    for _ in range(int(os.environ["ANE_SWEEP_REPEAT"])):
        sys.stdout.write(os.environ["ANE_SWEEP_SAYS"])
    sys.stdout.flush()
    while os.environ["ANE_SWEEP_FOREVER"]:
        time.sleep(60)
except (BrokenPipeError, KeyboardInterrupt):
    os._exit(1)
os._exit(int(os.environ["ANE_SWEEP_CODE"]))
"""


def _scripted(script: stand_in.Script, command: tuple[str, ...]) -> Answer | None:
    answer = script.answer("command", script.count_question("command"), argv=list(command))
    if answer is None:
        return None
    if answer.get("compiles"):
        _compile(Path(command[-2]), Path(command[-1]))
    code = None if answer.get("forever") or answer.get("hang") else answer.get("code", 0)
    return Answer(code, _read_stdout(answer) * answer.get("repeat", 1), answer.get("stderr", ""))


def _compile(source: Path, folder: Path) -> None:
    """Write a compiled folder as coremlcompiler does, with the drop-in; only the worker's side calls it."""
    from ane_sweep.coreml_anywhere import native

    shutil.move(native._MLModelProxy.compileModel(str(source)), folder / f"{source.stem}.mlmodelc")


def _read_stdout(answer: dict[str, Any]) -> str:
    said = answer.get("stdout", "")
    return "\n".join(said) + "\n" if isinstance(said, list) else said


def _text(said: bytes | str | None) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said or ""
