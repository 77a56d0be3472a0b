"""generate: a decoder that is talked to, for as long as somebody asks. Asked for by the verb, never part of a cell's plan.

params  runtime and what it needs, model, weights, seq_len, options; tokenizer: a folder, or null (talk/tokens.py);
        channel: the socket that it is talked over (talk/channel.py)
inputs  program (compiled) or checkpoint; the checkpoint also for its tokenizer
asked   {prompt, sampling, temperature, top_k, top_p, repetition_penalty, seed, samples, stop, max_new_tokens, keep}
says    ready {load_ms, tokenizer, realised}; prompt {tokens}; of each sample text {sample, text} as it comes, then
        sample {sample, ids, pieces (each id's text), text, stopped, timing}
leaves  with `keep`: logits-N.npy (tokens, vocabulary) float32 of sample N, as the program gave them
"""

import time
from functools import partial
from pathlib import Path
from typing import Any

from ane_sweep.bridge import model_tasks
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import ConfigError
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=160, many="talks", timeout_s=3600, base_gib=0.8, per_byte=1.3, stored=False, planned=False, runs_program=True,
)  # fmt: skip

DEFAULT_TOKENS = 50


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """See the module's docstring. Raises Unavailable where this host has no such runtime, ConfigError without a tokenizer."""
    import numpy as np
    from transformers import set_seed

    from ane_sweep.worker.talk import decoding, programs, tokens
    from ane_sweep.worker.talk.channel import Channel

    channel = Channel(params["channel"])
    tokenizer, said = channel.open(lambda: tokens.load_tokenizer(params, inputs))
    began = time.perf_counter()
    program = programs.load_program(params, inputs)
    load_ms = 1000 * (time.perf_counter() - began)
    vocabulary = model_tasks.vocabulary(params["model"]["task"], params["model"]["arch"])
    talker = decoding.ProgramModel(program)
    is_bytes = params["tokenizer"] is None and params["weights"]["kind"] == "random"
    end = None if is_bytes else programs.load_config(params["model"]).eos_token_id

    def answer(asked: dict[str, Any]) -> None:
        before = time.perf_counter()
        prompt = tokens.encode(tokenizer, asked["prompt"], vocabulary)
        prompt_s = time.perf_counter() - before
        limit = _choose_limit(len(prompt), len(program.begin(prompt)), asked["max_new_tokens"], params)
        channel.send("prompt", tokens=len(prompt))
        how = decoding.make_settings(asked, limit, end)
        for number in range(asked["samples"]):
            set_seed(asked["seed"] + number)
            talker.kept = [] if asked["keep"] else None
            heard = partial(_send_text, channel, number)
            ids = decoding.decode(talker, tokenizer, program.begin(prompt), how, heard)
            if talker.kept is not None:
                np.save(out / f"logits-{number}.npy", np.stack(talker.kept))
            channel.send(
                "sample", sample=number, ids=ids, text=tokenizer.decode(ids, skip_special_tokens=True),
                pieces=[tokenizer.decode([one]) for one in ids],
                stopped=_name_stop(ids, limit, asked["max_new_tokens"], end),
                timing=decoding.summarise(talker.times.rows, prompt_s),
            )  # fmt: skip

    channel.send("ready", load_ms=load_ms, tokenizer=said, realised=dict(program.realised))
    channel.serve(answer)
    return StageResult(realised=dict(program.realised))


def _send_text(channel: Any, number: int, text: str) -> None:
    channel.send("text", sample=number, text=text)


def _choose_limit(prompt: int, start: int, wished: int | None, params: dict[str, Any]) -> int:
    """How many tokens may be made. The last one is never fed again, so a full window still gives one.

    Raises ConfigError for a prompt, or a wish, that the window does not hold."""
    seq_len, longest = params["seq_len"], params["longest"]
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
    """What else can be done."""
    if needed > longest:
        return f"; the model has {longest} positions, so shorten it"
    return f"; shorten it, or seq_len={needed} or more (the model has {longest} positions)"


def _name_stop(ids: list[int], limit: int, wished: int | None, end: Any) -> str:
    """Why no token follows."""
    ends = end if isinstance(end, list) else [end]
    if ids and ids[-1] in ends:
        return "end of text"
    if len(ids) < limit:
        return "stop string"
    return "max_new_tokens" if limit == (wished or DEFAULT_TOKENS) else "seq_len"
