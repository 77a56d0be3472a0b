"""Programs whose inputs or outputs are not those of one input: a batch of several, a classifier's words."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ane_sweep.worker.runtimes._runtime import Runtime

if TYPE_CHECKING:
    import numpy as np

SHARED = ("causal_mask",)  # by all inputs of a batch: models/_ports.py


class _Wrapper(Runtime):
    """What the runtime inside says of itself."""

    def __init__(self, inner: Runtime):
        self.inner, self.clock = inner, inner.clock
        self.realised: dict[str, Any] = inner.realised

    @property
    def last_native_ms(self) -> float | None:
        return self.inner.last_native_ms

    def reset(self) -> None:
        self.inner.reset()


class Batched(_Wrapper):
    """`batch` inputs in one prediction: the one that is asked for, in another row each time, among those before it (or
    itself, where there were none). So a model in which rows know of each other shows in the score."""

    def __init__(self, inner: Runtime, batch: int):
        super().__init__(inner)
        self.batch, self._row = batch, -1
        self._before: list[dict[str, np.ndarray]] = []
        self.realised = {**inner.realised, "batch": batch}

    def prepare(self, inputs: "dict[str, np.ndarray]") -> "dict[str, np.ndarray]":
        """A whole batch, in the types that the runtime takes at once."""
        import numpy as np

        self._row = (self._row + 1) % self.batch
        others = [*self._before, *[inputs] * self.batch][: self.batch - 1]
        rows = [*others[: self._row], inputs, *others[self._row :]]
        self._before = [inputs, *self._before][: self.batch - 1]
        stacked = {
            name: value if name in SHARED else np.concatenate([row[name] for row in rows])
            for name, value in inputs.items()
        }
        return self.inner.prepare(stacked)

    def predict(self, inputs: "dict[str, np.ndarray]") -> "dict[str, np.ndarray]":
        """Outputs of the input that was prepared last."""
        return {name: value[self._row : self._row + 1] for name, value in self.inner.predict(inputs).items()}

    def timed(self, inputs: "dict[str, np.ndarray]") -> tuple[Callable[[], Any], None]:
        return (lambda: self.inner.predict(inputs)), None


class Classes(_Wrapper):
    """Probabilities by the class's name as one row, in the order in which the program knows the classes."""

    def prepare(self, inputs: "dict[str, np.ndarray]") -> "dict[str, np.ndarray]":
        return self.inner.prepare(inputs)

    def predict(self, inputs: "dict[str, np.ndarray]") -> "dict[str, Any]":
        import numpy as np

        made: dict[str, Any] = self.inner.predict(inputs)
        if "probabilities" in made:  # PyTorch's module leaves them as they are
            return made
        (by_name,) = (value for value in made.values() if isinstance(value, dict))
        return {"probabilities": np.array([list(by_name.values())], np.float32)}
