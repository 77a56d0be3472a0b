"""A program with a key-value cache (cache=stateful), driven: the whole window through both of its functions."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ane_sweep.bridge.building import DECODE, NEW, POSITION, PREFILL, STEPS
from ane_sweep.worker.runtimes._runtime import Runtime

if TYPE_CHECKING:
    import numpy as np


class Decoding(Runtime):
    """`functions` are runtimes of prefill and decode with `reset()` and `states`; here they share their states.

    As a runtime it takes what a program without a cache takes, and gives the same: so whatever compares outputs
    compares those of decoding with those of one forward pass.
    """

    def __init__(self, functions: dict[str, Runtime]):
        self._prefill, self._decode = functions[PREFILL], functions[DECODE]
        self.realised: dict[str, Any] = {**self._decode.realised, "functions": [PREFILL, DECODE]}
        self.parts = self._decode.parts

    def reset(self) -> None:
        """Zeros in all states, which both functions share."""
        self._prefill.reset()
        self._decode.states = self._prefill.states

    def predict(self, inputs: "dict[str, np.ndarray]") -> "dict[str, np.ndarray]":
        """`logits` of the window: prefill of all but the last tokens, then up to STEPS tokens (at most half of the
        window), each decoded by itself."""
        import numpy as np

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

    def timed(self, inputs: "dict[str, np.ndarray]") -> tuple[Callable[[], Any], Callable[[], Any]]:
        """(decode the window's last token, prefill the window), ready to be called again and again."""
        last, whole = (
            self._decode.prepare(slice_step(inputs, _find_tokens(inputs).shape[1] - 1)),
            self._decode.prepare(inputs),
        )
        self._prompt(inputs, _find_tokens(inputs).shape[1])
        return (lambda: self._decode.predict(last)), (lambda: self._prefill.predict(whole))

    @property
    def marks(self) -> list[float] | None:
        """Those of the decoding step, which is what is timed."""
        return self._decode.marks

    @marks.setter
    def marks(self, marks: list[float] | None) -> None:
        self._decode.marks = marks

    @property
    def last_native_ms(self) -> float | None:
        """What the runtime itself says that the last decoding step took, where it does."""
        return self._decode.last_native_ms

    def _prompt(self, inputs: "dict[str, np.ndarray]", length: int) -> "np.ndarray":
        """Logits of prefill on the first `length` tokens; what stands beyond them is left behind and overwritten."""
        self.reset()
        (name,) = (name for name in inputs if name in TOKENS)
        prompt = inputs[name].copy()
        prompt[:, length:] = 0
        return self._prefill.predict(self._decode.prepare({**inputs, name: prompt}))["logits"]


class CachingFunction(Runtime):
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


class ExplicitDecoding(Decoding):
    """Keys and values go from call to call through this process, as a program without states needs it."""

    def __init__(self, functions: dict[str, Runtime]):
        kept: dict[str, np.ndarray] = {}
        super().__init__(
            {
                PREFILL: CachingFunction(functions[PREFILL], kept, False),
                DECODE: CachingFunction(functions[DECODE], kept, True),
            }
        )


TOKENS = ("input_ids", "inputs_embeds")


def _find_tokens(inputs: "dict[str, np.ndarray]") -> "np.ndarray":
    return next(inputs[name] for name in TOKENS if name in inputs)


def slice_step(inputs: "dict[str, np.ndarray]", place: int) -> "dict[str, np.ndarray]":
    """Decode's inputs for the token at `place` of a window."""
    import numpy as np

    cut = {
        "input_ids": lambda array: array[:, place : place + 1],
        "inputs_embeds": lambda array: array[:, place : place + 1],
        "causal_mask": lambda array: array[:, :, place : place + 1],
        "key_mask": lambda array: array,
    }
    taken = {name: np.ascontiguousarray(cut[name](array)) for name, array in inputs.items()}
    return {**taken, POSITION: np.array([place], np.int32)}
