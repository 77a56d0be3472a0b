"""Files on their way that can be stopped: Ctrl-C does not wait for gigabytes."""

import threading
from typing import Any

from fsspec.callbacks import Callback

from ane_sweep.errors import StoreError


class Stopped(StoreError):
    """The sweep is being stopped; the file did not arrive."""


class Halting(Callback):
    """What a file system tells after each piece: raises Stopped once `stop` is set."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self.stop = stop

    def call(self, *_: Any, **__: Any) -> None:
        if self.stop.is_set():
            raise Stopped("the sweep is being stopped")
