"""The line between a session and its worker: a socket that both have from the start, a JSON object a line each way.

    asked      {...}: one request, as the stage understands it
    answered   {"event": NAME, ...} any number of times, then {"event": "done"}, or {"event": "refused", "reason"} where what
               was asked cannot be answered and the next request may be. Before anything is asked: {"event": "ready", ...},
               or refused

The worker ends where the asking does.
"""

import json
import socket
from collections.abc import Callable
from typing import Any, TypeVar

from ane_sweep.errors import ConfigError

T = TypeVar("T")


class Channel:
    """The worker's end; `number` is the socket's descriptor, which it was started with."""

    def __init__(self, number: int):
        self._socket = socket.socket(fileno=number)
        self._lines = self._socket.makefile("r", encoding="ascii")

    def say(self, event: str, **more: Any) -> None:
        self._socket.sendall((json.dumps({"event": event, **more}, allow_nan=False) + "\n").encode("ascii"))

    def open(self, make: Callable[[], T]) -> T:
        """What `make` makes. A ConfigError of it is told as well, as it is no failure of the worker's."""
        try:
            return make()
        except ConfigError as error:
            self.say("refused", reason=str(error))
            raise

    def serve(self, answer: Callable[[dict[str, Any]], None]) -> None:
        """Answer what is asked until nobody asks any more. A ConfigError of `answer` refuses its request alone."""
        for line in self._lines:
            try:
                answer(json.loads(line))
            except ConfigError as error:
                self.say("refused", reason=str(error))
            else:
                self.say("done")
