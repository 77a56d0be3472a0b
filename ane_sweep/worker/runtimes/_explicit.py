"""A program whose keys and values are inputs and outputs (cache=explicit), driven as one with states is."""

from typing import TYPE_CHECKING, Any

from ane_sweep.bridge.building import DECODE, NEW, PREFILL
from ane_sweep.worker.runtimes._decoding import Decoding
from ane_sweep.worker.runtimes._runtime import Runtime

if TYPE_CHECKING:
    import numpy as np


class Keeping(Runtime):
    """A function whose outputs `new_*` are kept, and are the inputs of the same name of the next call of decode."""

    def __init__(self, inner: Runtime, kept: "dict[str, np.ndarray]", takes: bool):
        self.inner, self.kept, self.takes, self.clock = inner, kept, takes, inner.clock
        self.realised: dict[str, Any] = inner.realised

    @property
    def last_native_ms(self) -> float | None:
        return self.inner.last_native_ms

    def reset(self) -> None:
        self.kept.clear()

    def prepare(self, inputs: "dict[str, np.ndarray]") -> "dict[str, np.ndarray]":
        return self.inner.prepare(inputs)

    def predict(self, inputs: "dict[str, np.ndarray]") -> "dict[str, np.ndarray]":
        made = self.inner.predict({**inputs, **(self.kept if self.takes else {})})
        self.kept.update({name.removeprefix(NEW): made.pop(name) for name in list(made) if name.startswith(NEW)})
        return made


class Explicit(Decoding):
    """Keys and values go from call to call through this process, as a program without states needs it."""

    def __init__(self, functions: dict[str, Runtime]):
        kept: dict[str, np.ndarray] = {}
        super().__init__(
            {PREFILL: Keeping(functions[PREFILL], kept, False), DECODE: Keeping(functions[DECODE], kept, True)}
        )
