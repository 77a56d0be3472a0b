"""What is asked for the next token, or for a label: a program on any runtime, fed with ids.

Window    all of the text anew for each token, padded on the right to seq_len, where no real token sees it
Stateful  with cache=stateful: the prompt at once, then one token after the other over the states
Pair      encoder and decoder in one program: the prompt goes to the one, what was written so far to the other
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ane_sweep.bridge import building
from ane_sweep.bridge.building import DECODE, PREFILL
from ane_sweep.errors import StageError, Unavailable
from ane_sweep.worker import runtimes
from ane_sweep.worker.runtimes._decoding import slice_step
from ane_sweep.worker.stages import reference

if TYPE_CHECKING:
    import numpy as np


class Next(Protocol):
    """Logits (vocabulary,) of the token behind `ids`. `begin` is told the prompt before the first of them.

    start   the ids that the text begins with: the prompt's, or of a decoder that has an encoder its own
    """

    realised: dict[str, Any]

    def begin(self, prompt: list[int]) -> list[int]: ...
    def logits(self, ids: list[int]) -> "np.ndarray": ...


class Feeds:
    """Graph inputs for ids, as the stage that makes references feeds them."""

    def __init__(self, params: dict[str, Any], inputs: dict[str, Path]):
        from ane_sweep.worker import models
        from ane_sweep.worker.models import _build

        self.model, self.length = params["model"], params["seq_len"]
        options = building.options(params)
        self.names = [port.name for port in models.get(self.model["family"]).ports(
            self.model, self.length, options).inputs]  # fmt: skip
        looks_up = options.embeddings == "out"
        self.module = _build.build(params, inputs, "original")[0] if looks_up else None

    def __call__(self, ids: list[int]) -> "dict[str, np.ndarray]":
        """One window; ids are at most as many as it holds."""
        rows, valid = self.padded(ids)
        return {name: reference.make_feed(name, rows, valid, self.model, self.module)[0] for name in self.names}

    def padded(self, ids: list[int]) -> "tuple[np.ndarray, np.ndarray]":
        """(1, S) ids and which of them hold a token."""
        import numpy as np

        rows = np.zeros((1, self.length), np.int32)
        rows[0, : len(ids)] = ids
        return rows, np.arange(self.length)[None] < len(ids)


class Window:
    def __init__(self, params: dict[str, Any], inputs: dict[str, Path]):
        self.feeds, self.runtime = Feeds(params, inputs), runtimes.load(params, inputs)
        self.realised = self.runtime.realised

    def begin(self, prompt: list[int]) -> list[int]:
        return prompt

    def logits(self, ids: list[int]) -> "np.ndarray":
        made = self.runtime.predict(self.runtime.prepare(self.feeds(ids)))
        return finite(made["logits"][0, len(ids) - 1])


class Pair(Window):
    def __init__(self, params: dict[str, Any], inputs: dict[str, Path]):
        super().__init__(params, inputs)
        self.start = params["model"]["arch"].get("decoder_start_token_id", 0)
        self.prompt: list[int] = []

    def begin(self, prompt: list[int]) -> list[int]:
        self.prompt = prompt
        return [self.start]

    def logits(self, ids: list[int]) -> "np.ndarray":
        fed = {**self.feeds(self.prompt), "decoder_input_ids": self.feeds.padded(ids)[0]}
        return finite(self.runtime.predict(self.runtime.prepare(fed))["logits"][0, len(ids) - 1])


class Stateful:
    def __init__(self, params: dict[str, Any], inputs: dict[str, Path]):
        self.feeds = Feeds(params, inputs)
        made = runtimes.get(params["runtime"]).functions(params, inputs, (PREFILL, DECODE))
        self.prefill, self.decode = made[PREFILL], made[DECODE]
        self.realised = {**self.decode.realised, "functions": [PREFILL, DECODE]}
        self.seen: list[int] = []

    def begin(self, prompt: list[int]) -> list[int]:
        self.seen = []
        return prompt

    def logits(self, ids: list[int]) -> "np.ndarray":
        if self.seen and ids[:-1] == self.seen:
            found = self._decoded(ids)
        else:
            self.prefill.reset()
            self.decode.states = self.prefill.states  # both functions go on from the same
            made = self.prefill.predict(self.prefill.prepare(self.feeds(ids)))["logits"][0]
            # head=last: of the window's last position alone, which is padding
            found = made[len(ids) - 1] if len(made) >= len(ids) else self._decoded(ids)
        self.seen = ids
        return finite(found)

    def _decoded(self, ids: list[int]) -> "np.ndarray":
        fed = slice_step(self.feeds(ids), len(ids) - 1)
        return self.decode.predict(self.decode.prepare(fed))["logits"][0, 0]


def load(params: dict[str, Any], inputs: dict[str, Path]) -> Next:
    """Raises Unavailable where this host has no such runtime."""
    check(params["runtime"])
    if building.options(params).cache == "stateful":
        return Stateful(params, inputs)
    return Pair(params, inputs) if params["model"]["task"] == "seq2seq" else Window(params, inputs)


def config(model: dict[str, Any]) -> Any:
    """transformers' configuration of a model: its end of text, its labels."""
    from ane_sweep.worker.models import weights

    skeleton: Any = weights.meta_skeleton(model)
    return skeleton.config


def check(runtime: str) -> None:
    if reason := runtimes.get(runtime).available():
        raise Unavailable(f"runtime={runtime} {reason}")


def finite(row: "np.ndarray") -> "np.ndarray":
    import numpy as np

    row = row.astype(np.float32)
    if not np.isfinite(row).all():
        bad = int(row.size - np.isfinite(row).sum())
        raise StageError(
            f"the program gives {bad} of {row.size} logits that are NaN or infinite; an fp16 program overflows "
            "there, which precision=fp32 would show; an fp32 one gives what the model itself gives"
        )
    return row
