"""Runtimes around a program that takes a batch of inputs, or gives a classifier's words."""

from typing import Any

import numpy as np

from ane_sweep.worker.runtimes._runtime import Arrays, Call, Runtime

SHARED = ("causal_mask",)  # by all inputs of a batch: models/_ports.py


class _Wrapper(Runtime):
    """A runtime that reports the properties of the runtime inside it."""

    def __init__(self, inner: Runtime):
        self.inner, self.clock = inner, inner.clock
        self.realised: dict[str, object] = inner.realised

    @property
    def last_native_ms(self) -> float | None:
        return self.inner.last_native_ms

    def reset(self) -> None:
        self.inner.reset()


class Batched(_Wrapper):
    """A program of `batch` inputs, fed with one input in another row each time, among the inputs before it (or copies).

    So the score shows a model in which rows influence each other.
    """

    def __init__(self, inner: Runtime, batch: int):
        super().__init__(inner)
        self.batch, self._row = batch, -1
        self._before: list[dict[str, np.ndarray]] = []
        self.realised = {**inner.realised, "batch": batch}

    def prepare(self, inputs: Arrays) -> Arrays:
        """Return a full batch, in the types that the runtime takes without conversion."""
        self._row = (self._row + 1) % self.batch
        others = [*self._before, *[inputs] * self.batch][: self.batch - 1]
        rows = [*others[: self._row], inputs, *others[self._row :]]
        self._before = [inputs, *self._before][: self.batch - 1]
        stacked = {
            name: value if name in SHARED else np.concatenate([row[name] for row in rows])
            for name, value in inputs.items()
        }
        return self.inner.prepare(stacked)

    def predict(self, inputs: Arrays) -> Arrays:
        """Return the outputs of the input that was prepared last."""
        return {name: value[self._row : self._row + 1] for name, value in self.inner.predict(inputs).items()}

    def timed(self, inputs: Arrays) -> tuple[Call, None]:
        return (lambda: self.inner.predict(inputs)), None


class Classes(_Wrapper):
    """A classifier whose probabilities by class name become one row, in the program's order of classes."""

    def prepare(self, inputs: Arrays) -> Arrays:
        return self.inner.prepare(inputs)

    def predict(self, inputs: Arrays) -> Arrays:
        """Return {"probabilities": (1, classes) float32}."""
        made: dict[str, Any] = {**self.inner.predict(inputs)}  # Core ML gives a dict for the classes
        if "probabilities" in made:  # PyTorch's module gives a row already
            return made
        (by_name,) = (value for value in made.values() if isinstance(value, dict))
        return {"probabilities": np.array([list(by_name.values())], np.float32)}
