"""Decoding by transformers' own `generate`: its logits processors, its sampling, its stopping criteria, its streamer. What
is ours is a model whose forward asks a program, and the clock.

Of a token's time `model` is the prediction, `tokenizer` turning it into text, `sampling` all the rest: processors, choice,
stopping, and what transformers' loop itself takes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig, GenerationMixin, PreTrainedConfig, PreTrainedModel, TextStreamer
from transformers.modeling_outputs import CausalLMOutput

from ane_sweep.worker.talk.programs import Next

if TYPE_CHECKING:
    import numpy as np

KINDS = ("tokenizer", "model", "sampling")
Heard = Callable[[str], None]


@dataclass
class Times:
    """Seconds of each token by kind: what passed since the last look at the clock belongs to whoever looks."""

    clock: Callable[[], float] = time.perf_counter
    rows: list[dict[str, float]] = field(default_factory=list)
    _row: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    _at: float = 0.0

    def start(self) -> None:
        self._at = self.clock()

    def spent(self, kind: str) -> None:
        now = self.clock()
        self._row[kind] += now - self._at
        self._at = now

    def token(self) -> None:
        self.rows.append(self._row)
        self._row = dict.fromkeys(KINDS, 0.0)


class Talker(PreTrainedModel, GenerationMixin):
    """A model of transformers whose logits are a program's. Keeps each token's logits as they came, where asked to."""

    config_class = PreTrainedConfig
    main_input_name = "input_ids"

    def __init__(self, program: Next):
        super().__init__(PreTrainedConfig())
        self.program, self.times = program, Times()
        self.kept: list[np.ndarray] | None = None
        self.anchor = torch.nn.Parameter(torch.zeros(1), requires_grad=False)  # generate asks where the model lies

    def forward(self, input_ids: torch.Tensor, attention_mask: Any = None, **kwargs: Any) -> CausalLMOutput:
        self.times.spent("sampling")
        row = self.program.logits(input_ids[0].tolist())
        self.times.spent("model")
        if self.kept is not None:
            self.kept.append(row)
        return CausalLMOutput(logits=torch.from_numpy(row)[None, None])

    def prepare_inputs_for_generation(self, input_ids: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The whole text each time: what of it is computed anew is the program's affair."""
        return {"input_ids": input_ids}


class Stream(TextStreamer):
    """transformers' streamer, which holds a word back until it is whole, on the clock."""

    def __init__(self, tokenizer: Any, times: Times, heard: Heard):
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.times, self.heard = times, heard

    def put(self, value: torch.Tensor) -> None:
        prompt = self.next_tokens_are_prompt
        self.times.spent("sampling")
        super().put(value)
        self.times.spent("tokenizer")
        if not prompt:
            self.times.token()

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        if text:
            self.heard(text)


def settings(asked: dict[str, Any], limit: int, end: Any) -> GenerationConfig:
    """transformers' own words for what was asked. Where nothing of chance was asked for, the likeliest token is taken."""
    more = {name: asked[name] for name in ("repetition_penalty",) if asked[name] is not None}
    if asked["stop"]:
        more["stop_strings"] = asked["stop"]
    if asked["sampling"]:
        more |= {
            "do_sample": True,
            "temperature": asked["temperature"],
            "top_k": asked["top_k"],
            "top_p": asked["top_p"],
        }
    else:
        more |= {"do_sample": False}
    return GenerationConfig(max_new_tokens=limit, use_cache=False, pad_token_id=0, eos_token_id=end, **more)


def decode(talker: Talker, tokenizer: Any, start: list[int], how: GenerationConfig, heard: Heard) -> list[int]:
    """The new ids of one sample; talker.times has what each took."""
    talker.times = Times()
    ids = torch.tensor([start])
    with torch.inference_mode():
        talker.times.start()
        made: Any = talker.generate(  # type: ignore[misc]  # its self is a protocol of transformers' own models
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=how,
            tokenizer=tokenizer,
            streamer=Stream(tokenizer, talker.times, heard),
        )
    return made[0, len(start) :].tolist()


def summary(rows: list[dict[str, float]], prompt_s: float) -> dict[str, Any]:
    """Milliseconds: of the first token, with the prompt's way into ids and transformers' set-up in it; the medians of
    all that follow."""
    from statistics import median

    first = {**rows[0], "tokenizer": rows[0]["tokenizer"] + prompt_s}
    steady = {kind: 1000 * median(row[kind] for row in rows[1:]) for kind in KINDS} if rows[1:] else None
    total = {"total": 1000 * median(sum(row.values()) for row in rows[1:])} if rows[1:] else {}
    return {
        "first_ms": {**{kind: 1000 * first[kind] for kind in KINDS}, "total": 1000 * sum(first.values())},
        "steady_ms": None if steady is None else steady | total,
        "tokens": len(rows),
        "seconds": sum(sum(row.values()) for row in rows) + prompt_s,
    }
