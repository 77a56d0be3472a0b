"""Programs on any runtime that compute the next token, or a label, from token ids.

WindowProgram    computes all of the text again for each token, padded on the right to seq_len
StatefulProgram  with cache=stateful: computes the prompt at once, then one token after the other over the states
PairProgram      encoder and decoder in one program: the prompt goes to the encoder, the new text to the decoder
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ane_sweep.bridge import building
from ane_sweep.bridge.building import DECODE, PREFILL
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.errors import StageError
from ane_sweep.worker import models, runtimes
from ane_sweep.worker.models._types import Dynamic, Model
from ane_sweep.worker.runtimes._wrappers import slice_step
from ane_sweep.worker.stages import reference

if TYPE_CHECKING:
    import numpy as np


class TextProgram(Protocol):
    """The interface of a program that writes text.

    begin    takes the prompt and returns the first ids of the text: the prompt's ids, or the decoder's start id
    logits   returns the logits (vocabulary,) of the token that follows `ids`
    """

    realised: dict[str, object]

    def begin(self, prompt: list[int]) -> list[int]: ...
    def logits(self, ids: list[int]) -> "np.ndarray": ...


class GraphInputs:
    """Graph inputs made from token ids, in the same way as in stage `reference`."""

    def __init__(self, params: dict[str, Any], inputs: dict[str, Path]):
        from ane_sweep.worker.models import _build

        self.model, self.length = params["model"], params["seq_len"]
        options = building.options(params)
        self.names = [port.name for port in models.get(self.model["family"]).ports(
            self.model, self.length, options).inputs]  # fmt: skip
        self.module = _build.build(params, inputs, "original")[0] if options.embeddings == "out" else None

    def __call__(self, ids: list[int]) -> "dict[str, np.ndarray]":
        """Return the inputs of one window; it must be long enough for the ids."""
        rows, valid = self.padded(ids)
        return {name: reference.make_feed(name, rows, valid, self.model, self.module)[0] for name in self.names}

    def padded(self, ids: list[int]) -> "tuple[np.ndarray, np.ndarray]":
        """Return the ids (1, S), and a mask (1, S) that is true for tokens."""
        import numpy as np

        rows = np.zeros((1, self.length), np.int32)
        rows[0, : len(ids)] = ids
        return rows, np.arange(self.length)[None] < len(ids)


class WindowProgram:
    def __init__(self, params: dict[str, Any], inputs: dict[str, Path]):
        self.feeds, self.runtime = GraphInputs(params, inputs), runtimes.load(params, inputs)
        self.realised = self.runtime.realised

    def begin(self, prompt: list[int]) -> list[int]:
        return prompt

    def logits(self, ids: list[int]) -> "np.ndarray":
        made = self.runtime.predict(self.runtime.prepare(self.feeds(ids)))
        return check_finite(made["logits"][0, len(ids) - 1])


class PairProgram(WindowProgram):
    def __init__(self, params: dict[str, Any], inputs: dict[str, Path]):
        super().__init__(params, inputs)
        self.start = params["model"]["arch"].get("decoder_start_token_id", 0)
        self.prompt: list[int] = []

    def begin(self, prompt: list[int]) -> list[int]:
        self.prompt = prompt
        return [self.start]

    def logits(self, ids: list[int]) -> "np.ndarray":
        fed = {**self.feeds(self.prompt), "decoder_input_ids": self.feeds.padded(ids)[0]}
        return check_finite(self.runtime.predict(self.runtime.prepare(fed))["logits"][0, len(ids) - 1])


class StatefulProgram:
    def __init__(self, params: dict[str, Any], inputs: dict[str, Path]):
        self.feeds = GraphInputs(params, inputs)
        made = runtimes.get(params["runtime"]).functions(params, inputs, (PREFILL, DECODE))
        self.prefill, self.decode = made[PREFILL], made[DECODE]
        self.realised = {**self.decode.realised, "functions": [PREFILL, DECODE]}
        self.seen: list[int] = []

    def begin(self, prompt: list[int]) -> list[int]:
        self.seen = []
        return prompt

    def logits(self, ids: list[int]) -> "np.ndarray":
        if self.seen and ids[:-1] == self.seen:
            row = self._decode(ids)
        else:
            self.prefill.reset()
            self.decode.states = self.prefill.states  # both functions go on from the same
            made = self.prefill.predict(self.prefill.prepare(self.feeds(ids)))["logits"][0]
            # head=last gives the window's last position alone, which is padding
            row = made[len(ids) - 1] if len(made) >= len(ids) else self._decode(ids)
        self.seen = ids
        return check_finite(row)

    def _decode(self, ids: list[int]) -> "np.ndarray":
        fed = slice_step(self.feeds(ids), len(ids) - 1)
        row: np.ndarray = self.decode.predict(self.decode.prepare(fed))["logits"][0, 0]
        return row


def load_program(params: dict[str, Any], inputs: dict[str, Path]) -> TextProgram:
    """Load the program type that the cell's options require. Raises Unavailable if this host lacks the runtime."""
    runtimes.check_available(params["runtime"])
    if building.options(params).cache == "stateful":
        return StatefulProgram(params, inputs)
    return PairProgram(params, inputs) if KINDS[params["model"]["task"]].pair else WindowProgram(params, inputs)


def load_config(model: Model) -> Dynamic:
    """Return transformers' configuration of a model, for its end-of-text id and its labels."""
    from ane_sweep.worker.models import weights

    skeleton: Dynamic = weights.build_meta_skeleton(model)
    config: Dynamic = skeleton.config
    return config


def check_finite(row: "np.ndarray") -> "np.ndarray":
    import numpy as np

    row = row.astype(np.float32)
    if not np.isfinite(row).all():
        bad = int(row.size - np.isfinite(row).sum())
        raise StageError(
            f"{bad} of the program's {row.size} logits are NaN or infinite. An fp16 program may overflow: try precision=fp32. "
            "If that has them too, they are the model's own"
        )
    return row
