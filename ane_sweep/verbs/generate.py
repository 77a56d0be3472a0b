"""`ane-sweep generate model=gpt2 prompt="..."`: what a decoder writes, token by token, and what each token takes"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ane_sweep.errors import AneSweepError, ConfigError, StageError
from ane_sweep.outward import escape_controls
from ane_sweep.terminal import INTERRUPTED, KEPT, NOT_ALL_OK, OK, count, print_result, say, tell
from ane_sweep.verbs import _talk
from ane_sweep.words import Parser, above_zero, amount, make_integer_reader, make_number_reader

if TYPE_CHECKING:
    from ane_sweep.talk.cells import Partner
    from ane_sweep.talk.session import Event, Session

STOPPED = KEPT

_CHANCE = ("temperature", "top_k", "top_p")
_SEED = 2**32 - 1  # the largest that numpy takes


class _Decoding(TypedDict):
    """The request to the worker without its prompt (worker/stages/generate.py)."""

    sampling: bool
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float | None
    seed: int
    samples: int
    max_new_tokens: int | None
    stop: list[str]
    keep: bool


class _Answer(TypedDict):
    prompt_tokens: int
    samples: "list[Event]"


def generate(args: list[str]) -> int:
    """Generate text. Raises ConfigError, and AneSweepError for a prompt that the model cannot take."""
    parser = _parser()
    given = parser.read(args)
    text = _talk.one_text(given, "prompt")  # before anything is prepared
    prompts = _talk.read_typed_lines("prompt") if text is None else iter([text])
    how = _build_request(given)
    talk = partial(_compare_cells, text or "") if given.compare else partial(_write, prompts)
    return _talk.talk_to_cells("generate", parser, given, partial(talk, how, given))


def _parser() -> Parser:
    parser = Parser(
        "generate [RUN:axis=value,...] [KEY=VALUE...] [prompt=TEXT] [--compare] [--json]",
        "What a decoder writes behind a prompt, through the program of a cell: KEY=VALUE are a sweep's keys (its program is "
        "made as a sweep makes it, and shared with it), RUN:axis=value,... is a cell of a run. Without prompt= and file= it "
        "is read from standard input, on a terminal one after the other. The text goes to standard output as it comes, "
        "what it took to standard error. Without temperature, top_k and top_p the likeliest token is taken.",
        'ane-sweep generate model=gpt2 prompt="Hello, I\'m a language model," temperature=0.8 top_k=40',
        {NOT_ALL_OK: "the program could not be made, or died", INTERRUPTED: STOPPED},
    )
    _talk.add_shared_words(parser, "a prompt")
    parser.add("prompt=TEXT", "what the text begins with (default: standard input)")
    chance = "chance: below 1 likelier tokens, above 1 others; 0: none (default: 1 with top_k or top_p)"
    parser.add("temperature=T", chance, amount)
    parser.add("top_k=K", "choose among the K likeliest tokens (default: all)", make_integer_reader(1, 10**9))
    share = make_number_reader("a number above 0, 1 at most", lambda value: 0 < value <= 1)
    parser.add("top_p=P", "choose among the likeliest that share P of the probability (default: all)", share)
    parser.add("repetition_penalty=R", "above 1: against what was there before (default: none)", above_zero)
    seed = "of chance; sample 2 has the next one. Random weights keep the sweep's own, 0"
    parser.add("seed=N", seed, make_integer_reader(0, _SEED), 0)
    parser.add("samples=N", "texts for one prompt", make_integer_reader(1, 1000), 1)
    tokens = "tokens at most (default: 50, or what seq_len has room for)"
    parser.add("max_new_tokens=N", tokens, make_integer_reader(1, 10**6))
    parser.add("--stop TEXT", "end behind this text; may be given more than once", default=[], action="append")
    parser.add("--compare", "two cells, the same prompt and seed: where their texts part")
    parser.json(
        "cell, tokenizer, load_ms, realised, prompt, prompt_tokens, settings, samples; with --compare: a, b, partings",
        "text",
    )
    return parser


def _build_request(given: argparse.Namespace) -> _Decoding:
    """Return the request. Raises ConfigError for several samples without sampling."""
    sampling = given.temperature != 0 and any(getattr(given, name) is not None for name in _CHANCE)
    if given.samples > 1 and not sampling:
        raise ConfigError(
            f"samples={given.samples}: the likeliest token is taken, so all would be the same; give temperature=, top_k= or top_p="
        )
    if any(not text for text in given.stop):
        raise ConfigError("--stop '': an empty text is behind every token")
    return _Decoding(
        sampling=sampling, temperature=given.temperature or 1.0, top_k=given.top_k or 0, top_p=given.top_p or 1.0,
        repetition_penalty=given.repetition_penalty, seed=given.seed, samples=given.samples,
        max_new_tokens=given.max_new_tokens, stop=given.stop, keep=given.compare,
    )  # fmt: skip


def _write(
    prompts: Iterator[str], how: _Decoding, given: argparse.Namespace, partners: "list[Partner]", folder: Path
) -> int:
    interactive = not (given.json or given.prompt is not None or given.file is not None) and sys.stdin.isatty()
    with _talk.open_session("generate", partners[0], folder / "a", given, _describe_decoding(how)) as session:
        for prompt in prompts:
            try:
                answer = _answer(session, prompt, how, given)
            except StageError:
                raise
            except AneSweepError as error:
                if not interactive:
                    raise
                say(f"error: {error}")
                continue
            if given.json:
                tell(**_talk.describe_side(partners[0], session), prompt=prompt, settings=how, **answer)
    return OK


def _answer(session: "Session", prompt: str, how: _Decoding, given: argparse.Namespace) -> _Answer:
    """Return the samples of a prompt. Without --json, write their text as it arrives; an interruption ends the line first."""
    write: Callable[[str], None] = (lambda text: None) if given.json else _print
    found = _Answer(prompt_tokens=0, samples=[])
    try:
        for event in session.ask(prompt=prompt, **how):
            kind = event.pop("event")
            if kind == "prompt":
                found["prompt_tokens"] = event["tokens"]
                write(_head(how, 0) + prompt)
            elif kind == "text":
                write(event["text"])
            else:
                write("\n")
                found["samples"].append(event)
                if not given.json:
                    say(*_format_timings(event, found["prompt_tokens"]))
                if (following := event["sample"] + 1) < how["samples"]:
                    write(_head(how, following) + prompt)
    except KeyboardInterrupt:
        write("\n")
        raise
    return found


def _head(how: _Decoding, number: int) -> str:
    return f"--- sample {number + 1}, seed {how['seed'] + number}\n" if how["samples"] > 1 else ""


def _print(text: str) -> None:
    print(escape_controls(text), end="", flush=True)


def _describe_decoding(how: _Decoding) -> str:
    penalty = "" if how["repetition_penalty"] is None else f", repetition_penalty {how['repetition_penalty']:g}"
    if not how["sampling"]:
        return f"; decoding: the likeliest token{penalty}"
    more = f", top_k {how['top_k']}" if how["top_k"] else ""
    more += f", top_p {how['top_p']}" if how["top_p"] != 1.0 else ""
    return f"; decoding: chance, temperature {how['temperature']:g}{more}{penalty}, seed {how['seed']}"


def _format_timings(sample: "Event", prompt_tokens: int) -> list[str]:
    """Return the two lines of timings below a text."""
    timing = sample["timing"]
    per_s = timing["tokens"] / timing["seconds"] if timing["seconds"] else 0.0
    total = (
        f"{count(timing['tokens'], 'token')} behind {prompt_tokens} in {timing['seconds']:.2f} s ({per_s:.1f} a second, "
        f"measured); ended by: {sample['stopped']}"
    )
    parts = [("first token", timing["first_ms"]), ("then each (median)", timing["steady_ms"])]
    return [total, "; ".join(
        f"{what} {ms['total']:.1f} ms: tokenizer {ms['tokenizer']:.2f}, model {ms['model']:.1f}, sampling {ms['sampling']:.2f}"
        for what, ms in parts if ms is not None
    )]  # fmt: skip


def _compare_cells(
    prompt: str, how: _Decoding, given: argparse.Namespace, partners: "list[Partner]", folder: Path
) -> int:
    """Run both cells on the same prompt, one after the other, and print the token at which they diverge."""
    from ane_sweep.talk.divergence import describe_divergence, find_divergence

    answers, sides, outs = [], {}, []
    for name, partner in zip("ab", partners):
        with _talk.open_session("generate", partner, folder / name, given, _describe_decoding(how)) as session:
            answers.append(_answer(session, prompt, how, given))
        outs.append(session.out)
        sides[name] = {**_talk.describe_side(partner, session), **answers[-1]}
    partings = [
        find_divergence(a, b, (outs[0] / f"logits-{number}.npy", outs[1] / f"logits-{number}.npy"))
        for number, (a, b) in enumerate(zip(answers[0]["samples"], answers[1]["samples"]))
    ]
    lines = [
        (f"sample {number}: " if len(partings) > 1 else "") + escape_controls(describe_divergence(one))
        for number, one in enumerate(partings, 1)
    ]
    partings_json = [asdict(one) for one in partings]
    return print_result(given.json, "\n".join(lines), prompt=prompt, settings=how, **sides, partings=partings_json)
