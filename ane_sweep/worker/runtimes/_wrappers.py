"""Runtimes around others: of a batch, of a classifier's words, and of both functions of a program with a key-value cache."""

from typing import Any

import numpy as np

from ane_sweep.bridge.building import DECODE, NEW, POSITION, PREFILL, STEPS
from ane_sweep.worker.models._ports import SHARED
from ane_sweep.worker.runtimes._runtime import Arrays, Call, Runtime


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

    def prepare(self, inputs: Arrays) -> Arrays:
        return self.inner.prepare(inputs)


class Batched(_Wrapper):
    """A program with a batch of `batch` inputs; each input comes once, in changing rows, together with the inputs
    before it (or copies).

    If rows influence each other, the score shows it.
    """

    def __init__(self, inner: Runtime, batch: int):
        super().__init__(inner)
        self.batch, self._row = batch, -1
        self._before: list[dict[str, np.ndarray]] = []
        self.realised = {**inner.realised, "batch": batch}

    def prepare(self, inputs: Arrays) -> Arrays:
        """Return a full batch, in types that the runtime takes without conversion."""
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
    """A classifier whose probabilities by class name are converted to one row, in the program's order of classes."""

    def predict(self, inputs: Arrays) -> Arrays:
        """Return {"probabilities": (1, classes) float32}."""
        made: dict[str, Any] = {**self.inner.predict(inputs)}  # Core ML gives a dict for the classes
        if "probabilities" in made:  # PyTorch's module gives a row already
            return made
        (by_name,) = (value for value in made.values() if isinstance(value, dict))
        return {"probabilities": np.array([list(by_name.values())], np.float32)}


class Decoding(Runtime):
    """A program with states (cache=stateful), composed of the runtimes of prefill and decode, which share states.

    Its inputs and outputs are those of a program without a cache, so that comparing outputs compares decoding with one
    forward pass.
    """

    def __init__(self, functions: dict[str, Runtime]):
        self._prefill, self._decode = functions[PREFILL], functions[DECODE]
        self.realised: dict[str, object] = {**self._decode.realised, "functions": [PREFILL, DECODE]}
        self.parts = self._decode.parts

    def reset(self) -> None:
        """Set all states to zeros and let prefill and decode share them."""
        self._prefill.reset()
        self._decode.states = self._prefill.states

    def predict(self, inputs: Arrays) -> Arrays:
        """Return the `logits` of the window: prefill, then decode the last tokens one by one (STEPS, at most half)."""
        length = _find_tokens(inputs).shape[1]
        first = length - min(length // 2, STEPS)
        self.realised["decoded_tokens"] = length - first
        logits = self._prompt(inputs, first)
        steps = [
            self._decode.predict(self._decode.prepare(slice_step(inputs, place)))["logits"]
            for place in range(first, length)
        ]
        if logits.shape[1] == 1 and steps:  # of the last position alone
            return {"logits": steps[-1]}
        return {"logits": np.concatenate([logits[:, :first], *steps], axis=1)}

    def timed(self, inputs: Arrays) -> tuple[Call, Call]:
        """Return two repeatable calls: decode the window's last token, and prefill the window."""
        length = _find_tokens(inputs).shape[1]
        last, whole = self._decode.prepare(slice_step(inputs, length - 1)), self._decode.prepare(inputs)
        self._prompt(inputs, length)
        return (lambda: self._decode.predict(last)), (lambda: self._prefill.predict(whole))

    @property
    def marks(self) -> list[float] | None:
        """Return the marks of the decoding step, which is the timed call."""
        return self._decode.marks

    @marks.setter
    def marks(self, marks: list[float] | None) -> None:
        self._decode.marks = marks

    @property
    def last_native_ms(self) -> float | None:
        """Return the runtime's own milliseconds of the last decoding step, or None."""
        return self._decode.last_native_ms

    def _prompt(self, inputs: Arrays, length: int) -> np.ndarray:
        """Return the logits of prefill on the first `length` tokens; decode overwrites later cache entries."""
        self.reset()
        (name,) = (name for name in inputs if name in TOKENS)
        prompt = inputs[name].copy()
        prompt[:, length:] = 0
        return self._prefill.predict(self._decode.prepare({**inputs, name: prompt}))["logits"]


class CachingFunction(_Wrapper):
    """A function that stores its outputs `new_*` as inputs for the next decode call."""

    def __init__(self, inner: Runtime, kept: Arrays, takes: bool):
        super().__init__(inner)
        self.kept, self.takes = kept, takes

    def reset(self) -> None:
        self.kept.clear()

    def predict(self, inputs: Arrays) -> Arrays:
        made = self.inner.predict({**inputs, **(self.kept if self.takes else {})})
        self.kept.update({name.removeprefix(NEW): made.pop(name) for name in list(made) if name.startswith(NEW)})
        return made


class ExplicitDecoding(Decoding):
    """A program without states (cache=explicit): keys and values pass from call to call through this process."""

    def __init__(self, functions: dict[str, Runtime]):
        kept: dict[str, np.ndarray] = {}
        super().__init__(
            {
                PREFILL: CachingFunction(functions[PREFILL], kept, False),
                DECODE: CachingFunction(functions[DECODE], kept, True),
            }
        )


TOKENS = ("input_ids", "inputs_embeds")


def _find_tokens(inputs: Arrays) -> np.ndarray:
    return next(inputs[name] for name in TOKENS if name in inputs)


def slice_step(inputs: Arrays, place: int) -> Arrays:
    """Return decode's inputs for the token at `place` of a window."""
    cut = {
        "input_ids": lambda array: array[:, place : place + 1],
        "inputs_embeds": lambda array: array[:, place : place + 1],
        "causal_mask": lambda array: array[:, :, place : place + 1],
        "key_mask": lambda array: array,
    }
    taken = {name: np.ascontiguousarray(cut[name](array)) for name, array in inputs.items()}
    return {**taken, POSITION: np.array([place], np.int32)}
