"""`ane-sweep classify model=distilbert file=reviews.txt`: the label of each text and its probability, and how many a second"""

import argparse
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ane_sweep.errors import AneSweepError, ConfigError, StageError
from ane_sweep.outward import escape_controls
from ane_sweep.terminal import INTERRUPTED, KEPT, NOT_ALL_OK, OK, count, say, tell
from ane_sweep.verbs import _talk
from ane_sweep.words import Parser, amount, make_integer_reader

if TYPE_CHECKING:
    from ane_sweep.talk.cells import Partner
    from ane_sweep.talk.session import Event

STOPPED = KEPT

_SHOWN = 10  # texts that two cells label differently
_WIDE = 60  # characters of such a text


class _Difference(TypedDict):
    """A text to which two cells give different labels."""

    text: str
    a: dict[str, str | float]
    b: dict[str, str | float]


class _Side(TypedDict):
    """The answers of one cell; `about` is the cell, and the worker that ran it."""

    about: dict[str, object]
    labels: "list[Event]"
    timing: "Event"


def classify(args: list[str]) -> int:
    """Label texts. Raises ConfigError, AneSweepError for a text that the model cannot take."""
    parser = _parser()
    given = parser.read(args)
    texts = _texts(given)  # before anything is prepared
    talk = _label_typed if texts is None else partial(_label_texts, texts)
    return _talk.talk_to_cells("classify", parser, given, partial(talk, given))


def _parser() -> Parser:
    parser = Parser(
        "classify [RUN:axis=value,...] [KEY=VALUE...] [file=FILE] [text=TEXT] [--compare] [--json]",
        "The label of each text and its probability, through the program of a cell: KEY=VALUE are a sweep's keys (its program "
        "is made as a sweep makes it, and shared with it), RUN:axis=value,... is a cell of a run. A file, or standard input, "
        "has a text a line; it is predicted in a tight loop, which is timed: the first call, the loop, and a call after a "
        "pause. On a terminal without either, one line after the other is asked for.",
        "ane-sweep classify model=distilbert file=reviews.txt count=1821",
        {NOT_ALL_OK: "the program could not be made, or died", INTERRUPTED: STOPPED},
    )
    _talk.add_shared_words(parser, "texts, one a line,")
    parser.add("text=TEXT", "one text (default: standard input)")
    loop = "predictions of the loop, the texts in turn, each once at least (default: each once)"
    parser.add("count=N", loop, make_integer_reader(1, 10**7))
    parser.add("idle_s=S", "pause before one last call; 0: none (default: 2)", amount, 2.0)
    parser.add("--compare", "two cells on the same texts: speed, and which labels differ")
    parser.json(
        "texts, cell, tokenizer, load_ms, realised, labels, timing; with --compare: a, b, differ", "a line a text"
    )
    return parser


def _texts(given: argparse.Namespace) -> list[str] | None:
    """Return the texts, one per line; None if the user types on a terminal. Raises ConfigError if all are empty."""
    whole = _talk.one_text(given, "text")
    if whole is None:
        return None
    lines = [whole] if given.text is not None else whole.split("\n")
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise ConfigError("there is no text in it: all lines are empty")
    if left := len(lines) - len(texts):
        say(f"{count(left, 'empty line')} left out")
    return texts


def _label_typed(given: argparse.Namespace, partners: "list[Partner]", folder: Path) -> int:
    with _talk.open_session("classify", partners[0], folder / "a", given) as session:
        for text in _talk.read_typed_lines("text"):
            try:
                (event,) = session.ask(texts=[text], count=0, idle_s=0.0)
            except StageError:
                raise
            except AneSweepError as error:
                say(f"error: {error}")
                continue
            seq_len = partners[0].params["seq_len"]
            cut = f"; cut to the first {seq_len} of {event['tokens']} tokens" if event["cut"] else ""
            took = f"tokenizer {event['tokenizer_ms']:.2f} ms, model {event['model_ms']:.1f} ms, measured"
            print(f"{_format_label(event)}  ({took}{cut})", flush=True)
    return OK


def _format_label(event: "Event | dict[str, str | float]") -> str:
    return f"{escape_controls(str(event['label']))} {100 * float(event['probability']):.2f} %"


def _label_texts(texts: list[str], given: argparse.Namespace, partners: "list[Partner]", folder: Path) -> int:
    """Label the texts by each cell, and print what they give or how they differ."""
    sides = [_label_all(one, texts, given, folder / name) for name, one in zip("ab", partners)]
    results = [{**side["about"], "labels": side["labels"], "timing": side["timing"]} for side in sides]
    if not given.compare:
        if given.json:
            tell(texts=len(texts), **results[0])
        return OK
    differ = [
        _Difference(text=text, a=_select_verdict(a), b=_select_verdict(b))
        for text, a, b in zip(texts, sides[0]["labels"], sides[1]["labels"])
        if a["label"] != b["label"]
    ]
    if given.json:
        tell(texts=len(texts), a=results[0], b=results[1], differ=differ)
    else:
        _print_differ(differ, sides, len(texts))
    return OK


def _label_all(partner: "Partner", texts: list[str], given: argparse.Namespace, folder: Path) -> _Side:
    """Label all texts by one cell; without --json, print each label as it arrives."""
    labels: list[Event] = []
    timing: Event = {}
    once = given.text is not None and given.count is None and not given.compare
    loop = 0 if once else max(given.count or len(texts), len(texts))
    with _talk.open_session("classify", partner, folder, given) as session:
        for event in session.ask(texts=texts, count=loop, idle_s=given.idle_s):
            if event.pop("event") == "timing":
                timing = event
                continue
            text = texts[event.pop("number")]
            labels.append({"text": text, **event})
            if not (given.json or given.compare):
                print(f"{_format_label(event)}  {escape_controls(text)}")
    if not given.json:
        _say_timing(timing, labels, partner.params["seq_len"])
    return _Side(about=_talk.describe_side(partner, session), labels=labels, timing=timing)


def _say_timing(timing: "Event", labels: "list[Event]", seq_len: object) -> None:
    if timing:
        idle = timing["after_idle_ms"]
        rest = "" if idle is None else f", {idle:.1f} ms after {timing['idle_s']:g} s of rest"
        say(
            f"{timing['count']:,} predictions of {count(timing['distinct'], 'text')} in {timing['total_s']:.2f} s: "
            f"{timing['per_s']:.1f} a second (measured, a tight loop, tokens prepared before)",
            f"a prediction: first {timing['first_ms']:.1f} ms, then {timing['median_ms']:.1f} ms (median; 90 % within "
            f"{timing['p90_ms']:.1f}){rest}; tokenizer {timing['tokenizer_median_ms']:.2f} ms a text",
        )
    else:
        first = labels[0]
        say(f"tokenizer {first['tokenizer_ms']:.2f} ms, model {first['model_ms']:.1f} ms, measured: the first call")
    if cut := sum(one["cut"] for one in labels):
        say(f"{count(cut, 'text')} longer than seq_len={seq_len} tokens: the label is of the beginning")
    if len(labels) > 1:
        shares = Counter(escape_controls(one["label"]) for one in labels).most_common()
        say(f"labels: {', '.join(f'{name} {n}' for name, n in shares)}")


def _select_verdict(label: "Event") -> dict[str, str | float]:
    return {"label": label["label"], "probability": label["probability"]}


def _print_differ(differ: list[_Difference], sides: list[_Side], total: int) -> None:
    a, b = (side["timing"]["per_s"] for side in sides)
    fast, ratio = ("A", a / b) if a >= b else ("B", b / a)
    print(f"A {a:.1f} a second, B {b:.1f}: {fast} is {ratio:.2f} times as fast (measured)")
    print(f"the same label for {total - len(differ)} of {count(total, 'text')}")
    for one in differ[:_SHOWN]:
        text = escape_controls(" ".join(one["text"].split()))
        shown = text if len(text) <= _WIDE else text[: _WIDE - 3] + "..."
        print(f"  A {_format_label(one['a'])}, B {_format_label(one['b'])}: {shown}")
    if len(differ) > _SHOWN:
        print(f"  and {len(differ) - _SHOWN} more: --json has all")
