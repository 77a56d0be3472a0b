"""Asking the system's own tools (sysctl, xcrun, ps, powermetrics ...), or the stand-in's script in their place.

One door, so that everything a Mac would answer can be scripted and no tool is ever waited for without an end.
Standard library only: planner and worker both use it.
"""

import subprocess
from dataclasses import dataclass
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
        answer = script.ask(command)
        return None if answer is None else Answer(*answer)
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
    return script.start(command, **options)


def _text(said: bytes | str | None) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said or ""
