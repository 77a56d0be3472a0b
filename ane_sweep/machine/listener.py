"""A tool that prints while a program runs: a thread reads it, with a size limit. A missing tool raises no error."""

import contextlib
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO

from ane_sweep.machine import tools

LIMIT_BYTES = 64 << 20
_END_S = 2.0


@dataclass
class Listener:
    """A running tool. It keeps at most `limit` bytes of the output of `command` and drops the rest.

    on_line    function that gets each line as it arrives; lines are then not kept
    error      why it could not be started, or None
    truncated  whether there was more than `limit`
    """

    command: list[str]
    limit: int = LIMIT_BYTES
    on_line: Callable[[bytes], None] | None = None
    error: str | None = None
    truncated: bool = False
    stderr: str = ""
    _read: int = 0
    _kept: list[bytes] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> "Listener":
        try:
            self._process = tools.start(*self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            self.error = f"{self.command[0]} cannot be run: {error.strerror or error}"
            return self
        for pipe, reader in ((self._process.stdout, self._read_out), (self._process.stderr, self._read_err)):
            thread = threading.Thread(target=reader, args=(pipe,), daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def _read_out(self, pipe: IO[bytes]) -> None:
        while line := pipe.readline(1 << 16):
            if self._read >= self.limit:
                self.truncated = True
                continue  # a full pipe would stop the tool, not the flood
            self._read += len(line)
            (self.on_line or self._kept.append)(line)

    def _read_err(self, pipe: IO[bytes]) -> None:
        self.stderr = pipe.read(1 << 16).decode("utf-8", "replace")
        while pipe.read(1 << 16):
            pass

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self) -> int | None:
        """End the tool if it still runs, and return its exit code (negative: a signal), or None if it is unknown; its
        output stays.

        A tool that runs as root cannot be signalled by us and ends by itself.
        """
        if self._process is None:
            return None
        for stop in (self._process.terminate, self._process.kill):
            if self.running():
                with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                    stop()
                    self._process.wait(_END_S)
        for thread in self._threads:
            thread.join(_END_S)
        return self._process.poll()

    @property
    def stdout(self) -> bytes:
        return b"".join(self._kept)
