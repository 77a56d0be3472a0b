"""`ane-sweep generate model=gpt2 prompt="..."`: what a decoder writes, token by token, and what each token takes"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ane_sweep.errors import AneSweepError, ConfigError, StageError
from ane_sweep.outward import escape_controls
from ane_sweep.terminal import INTERRUPTED, KEPT, NOT_ALL_OK, OK, count, say, tell
from ane_sweep.verbs import _talk
from ane_sweep.words import Parser, amount

if TYPE_CHECKING:
    from ane_sweep.talk.cells import Partner
    from ane_sweep.talk.session import Session

STOPPED = KEPT

_CHANCE = ("temperature", "top_k", "top_p")
_SEED = 2**32 - 1  # the largest that numpy takes


def generate(args: list[str]) -> int:
    """Write. Raises ConfigError, AneSweepError for a prompt that the model cannot take."""
    parser = _parser()
    given = parser.read(args)
    words = _prompts(given)  # before anything is prepared
    how = _build_request(given)
    try:
        with _talk.partners("generate", given, list(parser.keys), 2 if given.compare else 1) as (found, folder):
            if given.compare:
                return _compare_cells(found, folder, next(words), how, given.json)
            return _written(found[0], folder, words, how, given)
    except StageError as error:
        say(f"error: {error}")
        return NOT_ALL_OK


def _parser() -> Parser:
    parser = Parser(
        "generate",
        "[RUN:axis=value,...] [KEY=VALUE...] [prompt=TEXT] [--compare] [--json]",
        "What a decoder writes behind a prompt, through the program of a cell: KEY=VALUE are a sweep's keys (its program is "
        "made as a sweep makes it, and shared with it), RUN:axis=value,... is a cell of a run. Without prompt= and file= it "
        "is read from standard input, on a terminal one after the other. The text goes to standard output as it comes, "
        "what it took to standard error. Without temperature, top_k and top_p the likeliest token is taken.",
        'ane-sweep generate model=gpt2 prompt="Hello, I\'m a language model," temperature=0.8 top_k=40',
        {NOT_ALL_OK: "the program could not be made, or died", INTERRUPTED: STOPPED},
    )
    _talk.add_shared_words(parser, "a prompt")
    parser.key("prompt", "TEXT", "what the text begins with (default: standard input)")
    parser.key(
        "temperature",
        "T",
        "chance: below 1 likelier tokens, above 1 others; 0: none (default: 1 with top_k or top_p)",
        amount,
    )
    parser.key(
        "top_k", "K", "choose among the K likeliest tokens (default: all)", _talk.make_whole_number_parser(1, 10**9)
    )
    parser.key("top_p", "P", "choose among the likeliest that share P of the probability (default: all)", _share)
    parser.key("repetition_penalty", "R", "above 1: against what was there before (default: none)", _positive)
    parser.key("seed", "N", "of chance; sample 2 has the next one. Random weights keep the sweep's own, 0 (default: 0)",
               _talk.make_whole_number_parser(0, _SEED), lambda: 0)  # fmt: skip
    parser.key("samples", "N", "texts for one prompt (default: 1)", _talk.make_whole_number_parser(1, 1000), lambda: 1)
    parser.key(
        "max_new_tokens",
        "N",
        "tokens at most (default: 50, or what seq_len has room for)",
        _talk.make_whole_number_parser(1, 10**6),
    )
    parser.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end behind this text; may be given more than once"
    )
    parser.add_argument(
        "--compare", action="store_true", help="two cells, the same prompt and seed: where their texts part"
    )
    parser.json(
        "cell, tokenizer, load_ms, realised, prompt, prompt_tokens, settings, samples; with --compare: a, b, partings",
        "text",
    )
    return parser


def _share(text: str) -> float:
    value = amount(text)
    if not 0 < value <= 1:
        raise ValueError("a number above 0, 1 at most")
    return value


def _positive(text: str) -> float:
    if not (value := amount(text)):
        raise ValueError("a number above 0")
    return value


def _build_request(given: argparse.Namespace) -> dict[str, Any]:
    """Return the request to the worker without its prompt. Raises ConfigError for several samples without sampling."""
    sampling = given.temperature != 0 and any(getattr(given, name) is not None for name in _CHANCE)
    if given.samples > 1 and not sampling:
        raise ConfigError(
            f"samples={given.samples}: the likeliest token is taken, so all would be the same; give temperature=, top_k= or top_p="
        )
    if any(not text for text in given.stop):
        raise ConfigError("--stop '': an empty text is behind every token")
    chance = {"temperature": given.temperature or 1.0, "top_k": given.top_k or 0, "top_p": given.top_p or 1.0}
    plain = ("repetition_penalty", "seed", "samples", "max_new_tokens", "stop")
    return {"sampling": sampling, **chance, **{name: getattr(given, name) for name in plain}, "keep": given.compare}


def _prompts(given: argparse.Namespace) -> Iterator[str]:
    """Return one prompt, or on a terminal each that the user types. Raises ConfigError for an unusable prompt."""
    text = _talk.one_text(given, "prompt")
    if text is None:
        if given.json or given.compare:
            raise ConfigError("prompt= is missing: on a terminal, --json and --compare take it, or file=, as a word")
        return _talk.read_typed_lines("prompt")
    return iter([text])


def _written(
    partner: "Partner", folder: Path, prompts: Iterator[str], how: dict[str, Any], given: argparse.Namespace
) -> int:
    from ane_sweep.talk.session import Session

    with Session("generate", partner.params, partner.inputs, folder / "a") as session:
        if not given.json:
            _talk.introduce_partner(partner, session.ready, _decoding(how))
        interactive = not (given.json or given.prompt is not None or given.file is not None) and sys.stdin.isatty()
        for prompt in prompts:
            try:
                told = _answer(session, prompt, how, _hush if given.json else _print)
            except StageError:
                raise
            except AneSweepError as error:
                if not interactive:
                    raise
                say(f"error: {error}")
                continue
            if given.json:
                tell(cell=partner.to_dict(), **_select_facts(session.ready), prompt=prompt, settings=how, **told)
    return OK


def _select_facts(ready: dict[str, Any]) -> dict[str, Any]:
    return {name: ready[name] for name in ("tokenizer", "load_ms", "realised")}


def _answer(session: "Session", prompt: str, how: dict[str, Any], write: Callable[[str], None]) -> dict[str, Any]:
    """Return the events of a prompt, and write its text as it arrives; an interruption ends the line first."""
    try:
        return _events(session, prompt, how, write)
    except KeyboardInterrupt:
        write("\n")
        raise


def _events(session: "Session", prompt: str, how: dict[str, Any], write: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, Any] = {"prompt_tokens": 0, "samples": []}
    for event in session.ask(prompt=prompt, **how):
        if event["event"] == "prompt":
            found["prompt_tokens"] = event["tokens"]
            write(_head(how, 0) + prompt)
        elif event["event"] == "text":
            write(event["text"])
        else:
            write("\n")
            sample = {name: value for name, value in event.items() if name != "event"}
            found["samples"].append(sample)
            if write is _print:
                say(*_format_timings(sample, found["prompt_tokens"]))
            if (following := event["sample"] + 1) < how["samples"]:
                write(_head(how, following) + prompt)
    return found


def _head(how: dict[str, Any], number: int) -> str:
    return f"--- sample {number + 1}, seed {how['seed'] + number}\n" if how["samples"] > 1 else ""


def _print(text: str) -> None:
    print(escape_controls(text), end="", flush=True)


def _hush(text: str) -> None:
    """Write no text: with --json the result is printed at the end."""


def _decoding(how: dict[str, Any]) -> str:
    penalty = "" if how["repetition_penalty"] is None else f", repetition_penalty {how['repetition_penalty']:g}"
    if not how["sampling"]:
        return f"decoding: the likeliest token{penalty}"
    more = "".join(f", {name} {how[name]}" for name, plain in (("top_k", 0), ("top_p", 1.0)) if how[name] != plain)
    return f"decoding: chance, temperature {how['temperature']:g}{more}{penalty}, seed {how['seed']}"


def _format_timings(sample: dict[str, Any], prompt_tokens: int) -> list[str]:
    """Return the two lines of timings below a text."""
    timing = sample["timing"]
    per_s = timing["tokens"] / timing["seconds"] if timing["seconds"] else 0.0
    lines = [
        f"{count(timing['tokens'], 'token')} behind {prompt_tokens} in {timing['seconds']:.2f} s ({per_s:.1f} a second, "
        f"measured); ended by: {sample['stopped']}"
    ]
    parts = [("first token", timing["first_ms"]), ("then each (median)", timing["steady_ms"])]
    lines.append("; ".join(
        f"{what} {ms['total']:.1f} ms: tokenizer {ms['tokenizer']:.2f}, model {ms['model']:.1f}, sampling {ms['sampling']:.2f}"
        for what, ms in parts if ms is not None
    ))  # fmt: skip
    return lines


def _compare_cells(found: list["Partner"], folder: Path, prompt: str, how: dict[str, Any], as_json: bool) -> int:
    """Run both cells on the same prompt, one after the other, and print the token at which they diverge."""
    from ane_sweep.talk.divergence import describe_divergence, find_divergence
    from ane_sweep.talk.session import Session

    sides, outs = {}, []
    for name, partner in zip("ab", found):
        with Session("generate", partner.params, partner.inputs, folder / name) as session:
            outs.append(session.out)
            if not as_json:
                _talk.introduce_partner(partner, session.ready, _decoding(how), name.upper())
            told = _answer(session, prompt, how, _hush if as_json else _print)
        sides[name] = {"cell": partner.to_dict(), **_select_facts(session.ready), **told}
    partings = [
        find_divergence(a, b, (outs[0] / f"logits-{number}.npy", outs[1] / f"logits-{number}.npy"))
        for number, (a, b) in enumerate(zip(sides["a"]["samples"], sides["b"]["samples"]))
    ]
    if as_json:
        tell(prompt=prompt, settings=how, **sides, partings=[one.to_dict() for one in partings])
        return OK
    for number, one in enumerate(partings, 1):
        print((f"sample {number}: " if len(partings) > 1 else "") + escape_controls(describe_divergence(one)))
    return OK
