"""A sweep's connection to its fleet: a wire, another one when it is cut, and who is there."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ane_sweep.errors import ConfigError
from ane_sweep.fleet import link
from ane_sweep.runner.wire import Spot, Wire

AGAIN_S = 1.0  # between two attempts to come back


@dataclass
class Line:
    """`dead`: why there will be no wire any more. A wire that is going down says so in many ways, and nobody needs them."""

    connect: Callable[[], Wire]
    at: str
    wait_s: float
    spots: list[Spot] = field(default_factory=list)
    dead: str | None = None
    _fits: dict[frozenset[tuple[str, float]], bool] = field(default_factory=dict)

    def open(self) -> None:
        """Raises ConfigError, and OSError."""
        self.wire = self.connect()
        try:
            self.look()
        except BaseException:
            self.close()
            raise

    def back(self, stop: threading.Event) -> None:
        """Come back to a scheduler that went away, unless it is to stop; `dead` where that took too long. Raises ConfigError."""
        self.close()
        began = time.monotonic()
        while not stop.is_set():
            try:
                return self.open()
            except Exception as error:  # whatever Dask says of one that is coming up
                if isinstance(error, ConfigError) and not isinstance(error, link.Unreachable):
                    raise
            if not stop.is_set() and time.monotonic() - began >= self.wait_s:
                self.dead = f"the scheduler at {self.at} was lost, and did not come back in {self.wait_s:g} s"
                return
            stop.wait(AGAIN_S)

    def look(self) -> None:
        """Who is there. Raises whatever Dask says of a connection that is gone."""
        self.spots, self._fits = self.wire.spots(), {}

    def fits(self, takes: Mapping[str, float]) -> bool:
        """Whether somebody who is there has that much. Many tasks take the same."""
        wanted = frozenset(takes.items())
        if wanted not in self._fits:
            self._fits[wanted] = any(spot.fits(takes) for spot in self.spots)
        return self._fits[wanted]

    def there(self) -> str:
        return ", ".join(sorted(spot.name for spot in self.spots)) or "none"

    def drop(self, key: str) -> None:
        with contextlib.suppress(Exception):  # where it is gone, so is the task
            self.wire.drop(key)

    def stop(self) -> None:
        with contextlib.suppress(Exception):
            self.wire.stop()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.wire.close()
