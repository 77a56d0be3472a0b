"""Calls of the system's own tools (sysctl, xcrun, ps, powermetrics ...), or of the stand-in's script in their place.

All calls go through here, so that a Mac's answers can be scripted and every call has a timeout.
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
    """A tool's output and exit code. If it did not end in time, it has no `code`, and its output until then."""

    code: int | None
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.code == 0


def ask(*command: str, timeout_s: float = ASK_S) -> Answer | None:
    """Run a tool without input and return its answer, or None if there is no such tool."""
    if (script := stand_in.active()) is not None:
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
    """Start a tool that runs until it is ended (log stream, powermetrics). Raises FileNotFoundError if it is missing.

    `options` are Popen's. With the stand-in, a small process prints the scripted output.
    """
    script = stand_in.active()
    if script is None:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=protocol.python_environment(), **options)
    return script.start(command, **options)


def _text(said: bytes | str | None) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said or ""
