"""Command lines that nobody would write: each ends with an exit code and sentences, in time, whatever the words."""

import json
import random

import nights
import pytest
from fuzz.ended import ended

from ane_sweep import tracking, verbs
from ane_sweep.errors import TrackingError
from ane_sweep.planner import schema
from ane_sweep.terminal import EXIT_CODES

HANG_S = 60.0
NUMBERS = (
    "0",
    "-1",
    "1",
    "3",
    "1e300",
    "-1e-300",
    "nan",
    "inf",
    "9" * 30,
    "9" * 5000,
    "0x1f",
    "1_000",
    "1.5",
    "017",
    "+1",
    "-0",
)
TEXTS = (
    "", " ", "x", "null", "true", "no", "None", "???", "~", "~nosuchuser/x", "/", "..", "/dev/null", "/dev/full", "a b", "a=b",
    "a,,b", ",", "é", "\udcff", "\x1b[2J", "\n", "\t", "'", '"', "'a", "\\", "$", "${", "${a}", "${seed}", "${oc.env:HOME}",
    "${oc.env:NOSUCH}", "${..}", "${hydra:job}", "[", "]", "[]", "[1,", "{", "{}", "{a:1}", "{1:2}", "{a:{b:[c]}}", "[[1]]", "[null]",
    "[" * 60 + "]" * 60, "x" * 3000, "%s", "#", ";", "&", "*", "?", "@", "a@b", "a:b", "a/b", "../../etc/passwd", "fp16", "p4", "tiny-gpt2",
    "tiny-bert", "nosuch", "quick", "notebooks/opt", "random", "auto", "m4", "reference", "coreml", "original", "split_einsum", "iOS18",
)  # fmt: skip
FUNCTIONS = (
    "range({a},{b})", "range({a},{b},{c})", "choice({a},{b})", "glob({a})", "glob([{a},{b}],exclude={c})", "sort({a},{b})",
    "shuffle(range({a},{b}))", "int({a})", "str([{a}])", "json_str({a})", "interval({a},{b})", "tag(x,choice({a},{b}))", "extend_list({a})",
    "{a},{b}", "{a},{b},{c}", "[{a},{b}]", "{{a:{a},b:{b}}}", "'{a}'", '"{a}"', "${{{a}}}", "{a}{b}",
)  # fmt: skip
FLAGS = (
    "-m", "--multirun", "--json", "--markdown", "--drift", "--html", "--across-hosts", "--chip", "--compute-units", "--min-ane-share",
    "--share", "--input", "--random", "--output", "--value", "--watch", "--numerics", "--device", "--effects", "--min-psnr", "--config-dir",
    "-cd", "--cfg", "-c", "--info", "--config-name", "--run", "--resolve", "--package", "--version", "--", "-", "-x", "--nonsense", "-h=1",
    "--json=1", "--help=1", "--experimental-rerun",
)  # fmt: skip
KEYS = (
    *schema.KEYS, *schema.GROUP_KEYS, *(f"{group}.{key}" for group, keys in schema.GROUP_KEYS.items() for key in keys), "sweep",
    "sweep.axes.chunks", "sweep.pairs", "sweep.exclude", "model.arch.n_layer", "model.arch.vocab_size", "model.arch.n_head",
    "precision.weights.kind", "precision.weights.bits", "precision.weights.sparsity", "precision.weights.overrides", "hydra.mode",
    "hydra/launcher", "hydra.sweeper.params", "hydra", "model@x", "nosuch", "latency", "limits", "", ".", "a.b.c", "at", "uri",
    "experiment", "older-than-days", "max-gb", "level", "least-percent",
)  # fmt: skip
SWEEPS = ("plan", "plan", "plan", "plan")  # what a matrix is asked for with, and nothing is run by


def value(draw: random.Random) -> str:
    if draw.random() < 0.3:
        a, b, c = (draw.choice((*NUMBERS, *TEXTS)) for _ in range(3))
        return draw.choice(FUNCTIONS).format(a=a, b=b, c=c)
    return draw.choice(draw.choice((NUMBERS, TEXTS)))


def word(draw: random.Random) -> str:
    kind = draw.random()
    if kind < 0.12:
        return draw.choice(FLAGS)
    if kind < 0.2:
        return value(draw)
    if kind < 0.25:
        return f"last:{draw.choice(KEYS)}={value(draw)}"
    line = f"{draw.choice(('', '', '', '', '+', '++', '~'))}{draw.choice(KEYS)}={value(draw)}"
    if kind > 0.95:  # a slip of the finger
        place = draw.randrange(len(line))
        line = line[:place] + draw.choice(",='\"[]{}()$~+-@ ") + line[place + draw.randrange(2) :]
    return line


def line(draw: random.Random) -> list[str]:
    verb = draw.choice((*SWEEPS, *(verb for verb in verbs.names() if verb not in ("sweep", "doctor"))))
    words = [word(draw) for _ in range(draw.choice((0, 1, 1, 2, 2, 3, 5)))]
    if verb == "plan" and draw.random() < 0.8:
        words = ["-m", "model=tiny-gpt2", "weights=random", *words]
    return [verb, *(found.replace("\0", "") for found in words)]  # no word of a command line holds a NUL


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    """A folder with two runs, in a working folder of its own, and a tracker that is down."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANE_SWEEP_OUT", str(tmp_path / "out"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))

    def down(*_, **__):
        raise TrackingError("the tracker is down")

    monkeypatch.setattr(tracking, "log_sweep", down)
    for day in (1, 2):
        stamp = f"2026010{day}-000000"
        nights.write_run(tmp_path / "out", stamp, [nights.cell(), nights.cell(chunks=2)])
        path = tmp_path / "out" / "runs" / stamp / "run.json"
        told = {
            "axes": ["chunks"],
            "cells": 2,
            "tracking": {"enabled": False, "uri": None, "experiment": "x", "ui": None},
        }
        started = {"started": f"2026-01-0{day}T00:00:00+00:00", "finished": f"2026-01-0{day}T00:00:01+00:00"}
        path.write_text(json.dumps({**json.loads(path.read_text()), **told, **started}))
    return tmp_path


def test_any_command_line_ends_in_words(tries, outputs, monkeypatch):
    for number, draw in tries:
        words = line(draw)
        where = f"try {number}: {words!r:.1000}"
        end = ended(words, monkeypatch)
        assert end.code in EXIT_CODES and "Traceback" not in end.said, f"{where}: {end.said[-2000:]}"
        assert end.code == 0 or (end.said + end.printed).strip(), f"{where} ends with {end.code} and not a word"
        assert end.seconds < HANG_S and len(end.said) < 1_000_000, where
