"""What stages use of a runtime: of one that is loaded, and of its module."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

Arrays = dict[str, "np.ndarray"]
Call = Callable[[], Any]


class Runtime(Protocol):
    """Something loaded and ready to predict: all that stages use of it. What derives from it has what is written here.

    realised         what really runs: runtime, numerics, threads, compute_units, chunks
    clock            seconds by which a prediction is to be timed, of a device without the way there; None: this process's
    states           what a prediction leaves for the next one, where the program keeps any
    batch            inputs in one prediction
    parts, part      how many programs one prediction calls in turn, and what one of them is called
    marks            where it is a list, a prediction adds when it calls each of them and when that call is back (clock)
    last_native_ms   what the runtime itself says that the last prediction took, without Python's share; None: nothing
    """

    realised: dict[str, Any]
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
        """States as they are in the beginning. Stateless programs have nothing to reset."""
        return None

    def prepare(self, inputs: Arrays) -> Arrays:
        """Inputs in the types that the runtime takes at once, so that no conversion falls into a timed call."""
        return inputs

    def predict(self, inputs: Arrays) -> Arrays:
        """Outputs by name for inputs by name. Raises errors.PackageError for inputs that do not fit."""
        ...

    def op_times(self, inputs: Arrays) -> list[tuple[str, str, int, float]]:
        """(name, type, number of its chunk, seconds) of each op of one more prediction; none where nobody can tell."""
        return []

    def timed(self, inputs: Arrays) -> tuple[Call, Call | None]:
        """(what is timed as one prediction of prepared inputs, what is timed as prefill beside it)."""
        return (lambda: self.predict(inputs)), None


class Module(Protocol):
    """A runtime's module."""

    def available(self) -> str | None: ...
    def load(self, params: dict[str, Any], inputs: dict[str, Path]) -> Runtime: ...
    def functions(
        self, params: dict[str, Any], inputs: dict[str, Path], names: tuple[str, ...]
    ) -> dict[str, Runtime]: ...
