"""`ane-sweep classify model=distilbert file=reviews.txt`: the label of each text and its probability, and how many a second"""

import argparse
from collections import Counter
from collections.abc import Iterator
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

_SHOWN = 10  # texts that two cells label differently


def classify(args: list[str]) -> int:
    """Label texts. Raises ConfigError, AneSweepError for a text that the model cannot take."""
    parser = _parser()
    given = parser.read(args)
    texts = _texts(given)  # before anything is prepared
    try:
        with _talk.partners("classify", given, list(parser.keys), 2 if given.compare else 1) as (found, folder):
            if texts is None:
                return _conversation(found[0], folder)
            sides = [_label_all(one, texts, given, folder / name, name) for name, one in zip("ab", found)]
    except StageError as error:
        say(f"error: {error}")
        return NOT_ALL_OK
    differ = _differ(texts, sides) if given.compare else []
    if given.json:
        both = {"a": sides[0], "b": sides[1], "differ": differ} if given.compare else sides[0]
        tell(texts=len(texts), **both)
    elif given.compare:
        _print_differ(differ, sides, len(texts))
    return OK


def _parser() -> Parser:
    parser = Parser(
        "classify",
        "[RUN:axis=value,...] [KEY=VALUE...] [file=FILE] [text=TEXT] [--compare] [--json]",
        "The label of each text and its probability, through the program of a cell: KEY=VALUE are a sweep's keys (its program "
        "is made as a sweep makes it, and shared with it), RUN:axis=value,... is a cell of a run. A file, or standard input, "
        "has a text a line; it is predicted in a tight loop, which is timed: the first call, the loop, and a call after a "
        "pause. On a terminal without either, one line after the other is asked for.",
        "ane-sweep classify model=distilbert file=reviews.txt count=1821",
        {NOT_ALL_OK: "the program could not be made, or died", INTERRUPTED: STOPPED},
    )
    _talk.add_shared_words(parser, "texts, one a line,")
    parser.key("text", "TEXT", "one text (default: standard input)")
    parser.key(
        "count",
        "N",
        "predictions of the loop, the texts in turn, each once at least (default: each once)",
        _talk.make_whole_number_parser(1, 10**7),
    )
    parser.key("idle_s", "S", "pause before one last call; 0: none (default: 2)", amount, lambda: 2.0)
    parser.add_argument(
        "--compare", action="store_true", help="two cells on the same texts: speed, and which labels differ"
    )
    parser.json(
        "texts, cell, tokenizer, load_ms, realised, labels, timing; with --compare: a, b, differ", "a line a text"
    )
    return parser


def _texts(given: argparse.Namespace) -> list[str] | None:
    """Return the texts, one for each line; None if the user types on a terminal. Raises ConfigError if all are empty."""
    whole = _talk.one_text(given, "text")
    if whole is None:
        if given.json or given.compare:
            raise ConfigError("file= is missing: on a terminal, --json and --compare take it, or text=, as a word")
        return None
    lines = [whole] if given.text is not None else whole.split("\n")
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise ConfigError("there is no text in it: all lines are empty")
    if left := len(lines) - len(texts):
        say(f"{count(left, 'empty line')} left out")
    return texts


def _conversation(partner: "Partner", folder: Path) -> int:
    from ane_sweep.talk.session import Session

    with Session("classify", partner.params, partner.inputs, folder / "a") as session:
        _talk.introduce_partner(partner, session.ready)
        for text in _talk.read_typed_lines("text"):
            try:
                (event,) = session.ask(texts=[text], count=0, idle_s=0.0)
            except StageError:
                raise
            except AneSweepError as error:
                say(f"error: {error}")
                continue
            cut = f"; cut to the first {partner.params['seq_len']} of {event['tokens']} tokens" if event["cut"] else ""
            took = f"tokenizer {event['tokenizer_ms']:.2f} ms, model {event['model_ms']:.1f} ms, measured"
            print(f"{_label(event)}  ({took}{cut})", flush=True)
    return OK


def _label(event: dict[str, Any]) -> str:
    return f"{escape_controls(event['label'])} {100 * event['probability']:.2f} %"


def _label_all(
    partner: "Partner", texts: list[str], given: argparse.Namespace, folder: Path, name: str
) -> dict[str, Any]:
    """Label all texts by one cell and return the result for --json; without --json, print each label as it arrives."""
    from ane_sweep.talk.session import Session

    labels: list[dict[str, Any]] = []
    timing: dict[str, Any] = {}
    with Session("classify", partner.params, partner.inputs, folder) as session:
        if not given.json:
            _talk.introduce_partner(partner, session.ready, *(["", name.upper()] if given.compare else []))
        for event in _ask_session(session, texts, given):
            said = {key: value for key, value in event.items() if key not in ("event", "number")}
            if event["event"] == "timing":
                timing = said
                continue
            labels.append({"text": texts[event["number"]], **said})
            if not (given.json or given.compare):
                print(f"{_label(event)}  {escape_controls(labels[-1]['text'])}")
    if not given.json:
        _say_timing(timing, labels, partner.params["seq_len"])
    ready = {key: session.ready[key] for key in ("tokenizer", "load_ms", "realised")}
    return {"cell": partner.to_dict(), **ready, "labels": labels, "timing": timing}


def _ask_session(session: "Session", texts: list[str], given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    once = given.text is not None and given.count is None and not given.compare
    loop = 0 if once else max(given.count or len(texts), len(texts))
    return session.ask(texts=texts, count=loop, idle_s=given.idle_s)


def _say_timing(timing: dict[str, Any], labels: list[dict[str, Any]], seq_len: int) -> None:
    if timing:
        _say_loop(timing)
    else:
        say(
            f"tokenizer {labels[0]['tokenizer_ms']:.2f} ms, model {labels[0]['model_ms']:.1f} ms, measured: the first call"
        )
    if cut := sum(one["cut"] for one in labels):
        say(f"{count(cut, 'text')} longer than seq_len={seq_len} tokens: the label is of the beginning")
    if len(labels) > 1:
        shares = ", ".join(
            f"{escape_controls(name)} {n}" for name, n in Counter(one["label"] for one in labels).most_common()
        )
        say(f"labels: {shares}")


def _say_loop(timing: dict[str, Any]) -> None:
    idle = timing["after_idle_ms"]
    say(
        f"{timing['count']:,} predictions of {count(timing['distinct'], 'text')} in {timing['total_s']:.2f} s: "
        f"{timing['per_s']:.1f} a second (measured, a tight loop, tokens prepared before)",
        f"a prediction: first {timing['first_ms']:.1f} ms, then {timing['median_ms']:.1f} ms (median; 90 % within "
        f"{timing['p90_ms']:.1f})"
        + ("" if idle is None else f", {idle:.1f} ms after {timing['idle_s']:g} s of rest")
        + f"; tokenizer {timing['tokenizer_median_ms']:.2f} ms a text",
    )


def _differ(texts: list[str], sides: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the texts to which the two cells give different labels."""
    found = []
    for text, a, b in zip(texts, sides[0]["labels"], sides[1]["labels"]):
        if a["label"] != b["label"]:
            found.append({"text": text, "a": _verdict(a), "b": _verdict(b)})
    return found


def _verdict(label: dict[str, Any]) -> dict[str, Any]:
    return {"label": label["label"], "probability": label["probability"]}


def _print_differ(differ: list[dict[str, Any]], sides: list[dict[str, Any]], total: int) -> None:
    a, b = (side["timing"]["per_s"] for side in sides)
    fast, ratio = ("A", a / b) if a >= b else ("B", b / a)
    print(f"A {a:.1f} a second, B {b:.1f}: {fast} is {ratio:.2f} times as fast (measured)")
    print(f"the same label for {total - len(differ)} of {count(total, 'text')}")
    for one in differ[:_SHOWN]:
        print(f"  A {_label(one['a'])}, B {_label(one['b'])}: {_talk.plain(one['text'])}")
    if len(differ) > _SHOWN:
        print(f"  and {len(differ) - _SHOWN} more: --json has all")
