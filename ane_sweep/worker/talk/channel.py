"""The channel between a session and its worker: a socket with one JSON object a line each way.

    request    {...}, with the stage's keys
    answer     {"event": NAME, ...} any number of times, then {"event": "done"}; or {"event": "refused", "reason"} if this
               request cannot be answered. Before the first request: {"event": "ready", ...}, or refused

The worker ends when the session closes the socket.
"""

import json
import socket
from collections.abc import Callable
from typing import TypeVar

from ane_sweep.errors import ConfigError

T = TypeVar("T")


class Channel:
    """The worker's end; `number` is the descriptor of the socket that it inherits."""

    def __init__(self, number: int):
        self._socket = socket.socket(fileno=number)
        self._lines = self._socket.makefile("r", encoding="ascii")

    def send(self, event: str, **more: object) -> None:
        self._socket.sendall((json.dumps({"event": event, **more}, allow_nan=False) + "\n").encode("ascii"))

    def open(self, make: Callable[[], T]) -> T:
        """Return the result of `make`, and report its ConfigError to the session before raising it."""
        try:
            return make()
        except ConfigError as error:
            self.send("refused", reason=str(error))
            raise

    def serve(self, answer: Callable[[dict[str, object]], None]) -> None:
        """Answer requests until the session ends. A ConfigError in `answer` refuses only that request."""
        for line in self._lines:
            try:
                answer(json.loads(line))
            except ConfigError as error:
                self.send("refused", reason=str(error))
            else:
                self.send("done")
