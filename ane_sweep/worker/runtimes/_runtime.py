"""The interfaces for stages: of a loaded runtime, and of its module."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

Arrays = dict[str, "np.ndarray"]
Call = Callable[[], object]


class Runtime(Protocol):
    """A program or module that is loaded and can predict. Subclasses inherit these defaults.

    realised         facts for the record: runtime, numerics, threads, compute_units, chunks
    clock            the clock that times a prediction; a device's clock excludes the transfer; None: this process's
                     clock
    states           the states after a prediction, for the next one, if the program has any
    batch            inputs in one prediction
    parts, part      number of programs that one prediction calls in turn, and the name of such a part
    marks            if it is a list, a prediction appends the times when each part is called and returns
    last_native_ms   the runtime's own time of the last prediction, without Python's share; None: unknown
    """

    realised: dict[str, object]
    states: Any = None
    clock: Callable[[], float] | None = None
    batch: int = 1
    parts: int = 1
    part: str = "chunk"
    marks: list[float] | None = None

    @property
    def last_native_ms(self) -> float | None:
        return None

    def reset(self) -> None:
        """Reset the states. Stateless programs have nothing to reset."""
        return None

    def prepare(self, inputs: Arrays) -> Arrays:
        """Return inputs in types that the runtime takes, so that a timed call includes no conversion."""
        return inputs

    def predict(self, inputs: Arrays) -> Arrays:
        """Return outputs by name for inputs by name. Raises errors.PackageError for inputs that do not fit."""
        ...

    def predict_each(self, feeds: Iterable[Arrays]) -> Iterator[Arrays]:
        """Yield outputs for each of the inputs, which are sequences of their own."""
        for feed in feeds:
            self.reset()
            yield self.predict(self.prepare(feed))

    def op_times(self, inputs: Arrays) -> list[tuple[str, str, int, float]]:
        """Return (name, type, number of its chunk, seconds) of each op of one further prediction; empty if unknown."""
        return []

    def timed(self, inputs: Arrays) -> tuple[Call, Call | None]:
        """Return the calls to time: one prediction of prepared inputs, and prefill (None without a cache)."""
        return (lambda: self.predict(inputs)), None


class Module(Protocol):
    """The interface of a runtime's module."""

    def load(self, params: dict[str, object], inputs: dict[str, Path]) -> Runtime: ...
    def functions(
        self, params: dict[str, object], inputs: dict[str, Path], names: tuple[str, ...]
    ) -> dict[str, Runtime]: ...
