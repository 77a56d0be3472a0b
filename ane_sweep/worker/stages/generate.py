"""generate: a decoder that continues prompts until its session ends. A verb starts it; cells do not use it.

params   runtime and its parameters, model, weights, seq_len, options; tokenizer: a folder, or null (talk/tokens.py);
         channel: the socket of the session (talk/channel.py)
inputs   program (compiled) or checkpoint; the checkpoint also for its tokenizer
request  {prompt, sampling, temperature, top_k, top_p, repetition_penalty, seed, samples, stop, max_new_tokens, keep}
answers  ready {load_ms, tokenizer, realised}; prompt {tokens}; for each sample text {sample, text} as it comes, then
         sample {sample, ids, pieces (each id's text), text, stopped, timing}
leaves   with `keep`: logits-N.npy (tokens, vocabulary) float32 of sample N, as the program gave them
"""

import time
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from transformers import set_seed

from ane_sweep.bridge.kinds import KINDS
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import ConfigError
from ane_sweep.worker import params
from ane_sweep.worker.params import Model, Weights
from ane_sweep.worker.stages import StageResult
from ane_sweep.worker.talk import decoding, programs, tokens
from ane_sweep.worker.talk.channel import Channel

STAGE = Stage(
    order=160, many="talks", timeout_s=3600, base_gib=0.8, per_byte=1.3, stored=False, planned=False, runs_program=True,
)  # fmt: skip

DEFAULT_TOKENS = 50


class Params(params.Params, frozen=True):
    """Parameters of this stage; the runtime and the session's modules read more of the same JSON. `longest`: the model's positions."""

    channel: int
    model: Model
    weights: Weights
    seq_len: int
    longest: int
    tokenizer: str | None


class Request(params.Params, frozen=True):
    """The keys of a request that this stage reads; talk/decoding.py reads those of sampling."""

    prompt: str
    seed: int
    samples: int
    max_new_tokens: int | None
    keep: bool


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Answer requests. Raises Unavailable if this host lacks the runtime, ConfigError without a tokenizer."""
    settings = Params.read(params)
    channel = Channel(settings.channel)
    tokenizer, source = channel.open(lambda: tokens.load_tokenizer(params, inputs))
    began = time.perf_counter()
    program = programs.load_program(params, inputs)
    load_ms = 1000 * (time.perf_counter() - began)
    vocabulary = KINDS[settings.model.task].count_ids(settings.model.arch)
    talker = decoding.ProgramModel(program)
    is_bytes = settings.tokenizer is None and settings.weights.kind == "random"
    end = None if is_bytes else programs.load_config(msgspec.to_builtins(settings.model)).eos_token_id

    def answer(values: dict[str, object]) -> None:
        request = Request.read(values)
        before = time.perf_counter()
        prompt = tokens.encode(tokenizer, request.prompt, vocabulary)
        prompt_s = time.perf_counter() - before
        limit = _choose_limit(len(prompt), len(program.begin(prompt)), request.max_new_tokens, settings)
        channel.send("prompt", tokens=len(prompt))
        generation = decoding.make_settings(values, limit, end)
        for number in range(request.samples):
            set_seed(request.seed + number)
            talker.kept = [] if request.keep else None
            send = partial(_send_text, channel, number)
            ids = decoding.decode(talker, tokenizer, program.begin(prompt), generation, send)
            if talker.kept is not None:
                np.save(out / f"logits-{number}.npy", np.stack(talker.kept))
            channel.send(
                "sample", sample=number, ids=ids, text=tokenizer.decode(ids, skip_special_tokens=True),
                pieces=[tokenizer.decode([token]) for token in ids],
                stopped=_name_stop(ids, limit, request.max_new_tokens, end),
                timing=decoding.summarise(talker.times.rows, prompt_s),
            )  # fmt: skip

    channel.send("ready", load_ms=load_ms, tokenizer=source, realised=dict(program.realised))
    channel.serve(answer)
    return StageResult(realised=dict(program.realised))


def _send_text(channel: Channel, number: int, text: str) -> None:
    channel.send("text", sample=number, text=text)


def _choose_limit(prompt: int, start: int, wished: int | None, settings: Params) -> int:
    """Return how many tokens may be generated. The last one is never fed back, so a full window still allows one.

    Raises ConfigError if the window is too short for the prompt or the number of tokens.
    """
    seq_len, longest = settings.seq_len, settings.longest
    if prompt > seq_len:
        raise ConfigError(
            f"the prompt has {prompt} tokens, and the program takes seq_len={seq_len}{_suggest_length(prompt, longest)}"
        )
    room = seq_len - start + 1
    if wished is not None and wished > room:
        raise ConfigError(
            f"max_new_tokens={wished}: with {start} before them, seq_len={seq_len} has room for {room}; "
            f"max_new_tokens={room} at most{_suggest_length(start + wished - 1, longest)}"
        )
    return min(wished or DEFAULT_TOKENS, room)


def _suggest_length(needed: int, longest: int) -> str:
    """Return advice for the end of a message: a shorter text, or a longer window."""
    if needed > longest:
        return f"; the model has {longest} positions, so shorten it"
    return f"; shorten it, or seq_len={needed} or more (the model has {longest} positions)"


def _name_stop(ids: list[int], limit: int, wished: int | None, end: int | list[int] | None) -> str:
    """Return the reason why generation stopped."""
    if ids and ids[-1] in (end if isinstance(end, list) else [end]):
        return "end of text"
    if len(ids) < limit:
        return "stop string"
    return "max_new_tokens" if limit == (wished or DEFAULT_TOKENS) else "seq_len"
