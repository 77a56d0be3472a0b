"""Decoding by transformers' own `generate`: its logits processors, sampling, stopping criteria and streamer.

We add a model whose forward runs a program, and the clock. A token's time has three parts: `model` is the prediction,
`tokenizer` turns the token into text, `sampling` is all the rest: processors, choice, stopping, and transformers' loop.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from transformers import (
    GenerationConfig,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    TextStreamer,
)
from transformers.modeling_outputs import CausalLMOutput

from ane_sweep.worker.talk.programs import TextProgram

if TYPE_CHECKING:
    import numpy as np

KINDS = ("tokenizer", "model", "sampling")
OnText = Callable[[str], None]


@dataclass
class Times:
    """Seconds of each token by kind; each kind gets the time since the last clock reading."""

    clock: Callable[[], float] = time.perf_counter
    rows: list[dict[str, float]] = field(default_factory=list)
    _row: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    _at: float = 0.0

    def start(self) -> None:
        self._at = self.clock()

    def add(self, kind: str) -> None:
        now = self.clock()
        self._row[kind] += now - self._at
        self._at = now

    def end_token(self) -> None:
        self.rows.append(self._row)
        self._row = dict.fromkeys(KINDS, 0.0)


class ProgramModel(PreTrainedModel, GenerationMixin):
    """A transformers model whose logits come from a program. `kept` collects each token's logits if it is a list."""

    config_class = PreTrainedConfig
    main_input_name = "input_ids"

    def __init__(self, program: TextProgram):
        super().__init__(PreTrainedConfig())
        self.program, self.times = program, Times()
        self.kept: list[np.ndarray] | None = None
        self.anchor = torch.nn.Parameter(torch.zeros(1), requires_grad=False)  # generate needs the model's device

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: object
    ) -> CausalLMOutput:
        self.times.add("sampling")
        row = self.program.logits(input_ids[0].tolist())
        self.times.add("model")
        if self.kept is not None:
            self.kept.append(row)
        return CausalLMOutput(logits=torch.from_numpy(row)[None, None])

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor, **kwargs: object) -> dict[str, object]:  # type: ignore[override]
        """Return the whole text each time, as the program decides how much of it to compute again."""
        return {"input_ids": input_ids}


class Stream(TextStreamer):
    """A streamer of transformers that returns whole words, and times them."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, times: Times, on_text: OnText):
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.times, self.on_text = times, on_text

    def put(self, value: torch.Tensor) -> None:
        prompt = self.next_tokens_are_prompt
        self.times.add("sampling")
        super().put(value)
        self.times.add("tokenizer")
        if not prompt:
            self.times.end_token()

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        if text:
            self.on_text(text)


def make_settings(request: Mapping[str, object], limit: int, end: int | list[int] | None) -> GenerationConfig:
    """Convert a request to transformers' settings. Without sampling, the likeliest token is taken."""
    names = ("repetition_penalty", *(("temperature", "top_k", "top_p") if request["sampling"] else ()))
    more = {name: request[name] for name in names if name != "repetition_penalty" or request[name] is not None}
    more["do_sample"] = bool(request["sampling"])
    if request["stop"]:
        more["stop_strings"] = request["stop"]
    return GenerationConfig(max_new_tokens=limit, use_cache=False, pad_token_id=0, eos_token_id=end, **more)


def decode(
    talker: ProgramModel, tokenizer: PreTrainedTokenizerFast, start: list[int], how: GenerationConfig, on_text: OnText
) -> list[int]:
    """Return the new ids of one sample; talker.times holds the time of each."""
    talker.times = Times()
    ids = torch.tensor([start])
    with torch.inference_mode():
        talker.times.start()
        made: Any = talker.generate(  # type: ignore[misc]  # its self is a protocol of transformers' own models
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=how,
            tokenizer=tokenizer,
            streamer=Stream(tokenizer, talker.times, on_text),
        )
    new: list[int] = made[0, len(start) :].tolist()
    return new


def summarise(rows: list[dict[str, float]], prompt_s: float) -> dict[str, object]:
    """Return milliseconds of the first token, and the medians of all later tokens.

    The first token's time includes the prompt's encoding and transformers' set-up.
    """
    first = {**rows[0], "tokenizer": rows[0]["tokenizer"] + prompt_s}
    steady = {kind: 1000 * median(row[kind] for row in rows[1:]) for kind in KINDS} if rows[1:] else None
    total = {"total": 1000 * median(sum(row.values()) for row in rows[1:])} if rows[1:] else {}
    return {
        "first_ms": {**{kind: 1000 * first[kind] for kind in KINDS}, "total": 1000 * sum(first.values())},
        "steady_ms": None if steady is None else steady | total,
        "tokens": len(rows),
        "seconds": sum(sum(row.values()) for row in rows) + prompt_s,
    }
