"""Files on their way that can be stopped: Ctrl-C does not wait for gigabytes, and no file is longer than was said."""

import threading
from typing import Any

from fsspec.callbacks import Callback

from ane_sweep.errors import StoreError, Unfit


class Stopped(StoreError):
    """The sweep is being stopped; the file did not arrive."""


class Halting(Callback):
    """What a file system calls after each piece: raises Stopped once `stop` is set, Unfit after more than `most` bytes."""

    def __init__(self, stop: threading.Event, most: int | None = None) -> None:
        super().__init__()
        self.stop, self.most = stop, most

    def call(self, *_: Any, **__: Any) -> None:
        if self.stop.is_set():
            raise Stopped("the sweep is being stopped")
        if self.most is not None and self.value > self.most:
            raise Unfit(f"is longer than {self.most} bytes")
