"""What cannot be talked to, or said to it: a sentence and an exit code, before anything is made."""

import io
import json
import sys
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import nights
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import gpt2_checkpoint

from ane_sweep.__main__ import main
from ane_sweep.bridge.record import StageOutcome, StageStatus, Weights
from ane_sweep.errors import ConfigError
from ane_sweep.planner import config
from ane_sweep.terminal import BAD_CONFIGURATION
from ane_sweep.verbs import _talk

TINY = ["model=tiny-gpt2", "weights=random"]
CLASSIFIER = ["model=tiny-distilbert", "weights=random"]


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """What is said of words that end with exit code 2 and leave nothing but the outputs folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANE_SWEEP_OUT", str(tmp_path / "out"))
    monkeypatch.setattr(sys, "stdin", typing(b""))

    def said(*words: str) -> str:
        assert main(list(words)) == BAD_CONFIGURATION
        captured = capsys.readouterr()
        assert captured.out == "" and "Traceback" not in captured.err
        return captured.err

    return said


def typing(raw: bytes, terminal: bool = False) -> SimpleNamespace:
    return SimpleNamespace(buffer=io.BytesIO(raw), isatty=lambda: terminal)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["generate", *TINY, "prompt="], "prompt= is empty"),
        (["generate", *TINY], "standard input is empty"),
        (["generate", *TINY, "prompt=\udcff"], "prompt= is no UTF-8 text: byte 0"),
        (["generate", *TINY, "prompt=x", "file=y"], "prompt= and file=: give one of them"),
        (["generate", *TINY, "file=nosuch"], "file=nosuch: no such file"),
        (["generate", *TINY, "prompt=x", "file="], "give one of them"),
        (["generate", *TINY, "prompt=x", "tokenizer=nosuch"], "expected a folder with a tokenizer"),
        (["generate", *TINY, "prompt=x", "temprature=1"], "temprature=1: unknown here (did you mean 'temperature'?)"),
        (["generate", *TINY, "prompt=x", "top_p=1.5"], "top_p=1.5: expected a number above 0, 1 at most"),
        (["generate", *TINY, "prompt=x", "top_k=0"], "top_k=0: expected a whole number from 1"),
        (["generate", *TINY, "prompt=x", "temperature=-1"], "temperature=-1: expected a number of 0 or more"),
        (["generate", *TINY, "prompt=x", "repetition_penalty=0"], "expected a number above 0"),
        (["generate", *TINY, "prompt=x", "samples=2"], "all would be the same"),
        (["generate", *TINY, "prompt=x", "--stop", ""], "an empty text is behind every token"),
        (["generate", *TINY, "prompt=x", "head=last"], "use head=all, or cache=stateful"),
        (["generate", *TINY, "prompt=x", "precision=fp16,fp32"], "2 cells (model=tiny-gpt2 precision=fp16; "),
        (["generate", "--compare", *TINY, "prompt=x"], "--compare takes two cells, and these are 1"),
        (["generate", *CLASSIFIER, "prompt=x"], "model=tiny-distilbert classifies texts: ane-sweep classify"),
        (["classify", *TINY, "text=x"], "model=tiny-gpt2 writes text: ane-sweep generate"),
        (["classify", "model=minilm", "text=x"], "model=minilm leaves embeddings of texts"),
        (["generate", "model=tiny-vit", "weights=random", "prompt=x"], "model=tiny-vit takes pictures"),
        (["classify", *CLASSIFIER, "text= "], "there is no text in it"),
        (["classify", *CLASSIFIER, "text=x", "count=0"], "count=0: expected a whole number"),
        (["classify", *CLASSIFIER, "prompt=x"], "prompt=: nothing here reads it; a text is given as text=TEXT"),
        (["generate", *TINY, "text=x"], "text=: nothing here reads it; a text is given as prompt=TEXT"),
        (["generate", *TINY, "prompt=x", "chunks=99"], "chunks=99"),
        (["generate", "nosuch:chunks=1", "prompt=x"], "no sweep nosuch with records"),
        (["classify", *CLASSIFIER, "I am glad"], 'I am glad: no run is called so; a text is given as text="I am glad"'),
        (["generate", *TINY, "prompt=x", "stop=."], "stop=.: unknown here (did you mean '--stop'?)"),
        (["generate", *TINY, "prompt=x", "seq_len=4096"], "seq_len=4096"),
    ],
)
def test_a_wrong_word_is_refused_with_a_sentence(words, sentence, refused):
    assert sentence in refused(*words)


def test_a_checkpoint_without_a_tokenizer_is_refused_before_it_is_converted(refused, tmp_path):
    folder = gpt2_checkpoint(tmp_path / "ckpt")
    (folder / "tokenizer.json").unlink()
    assert "ckpt has no tokenizer" in refused("generate", "model=./ckpt", "prompt=x", "seq_len=16")


def test_what_is_no_utf8_names_the_byte_and_its_line(tmp_path):
    with pytest.raises(ConfigError, match=r"it is no UTF-8 text: byte 7 \(line 2\) is 0xe9"):
        _talk.utf8(b"ab\r\ncaf\xe9\n", "it")
    assert _talk.utf8(b"\xef\xbb\xbfab\r\ncd\n", "it") == "ab\ncd"
    with pytest.raises(ConfigError, match="is no file"):
        _talk.read(tmp_path)


def test_on_a_terminal_json_wants_its_text_as_a_word(refused, monkeypatch):
    monkeypatch.setattr(sys, "stdin", typing(b"", terminal=True))
    assert "prompt= is missing" in refused("generate", *TINY, "--json")
    assert "file= is missing" in refused("classify", *CLASSIFIER, "--compare")


@pytest.fixture
def run(tmp_path):
    """Leaves a run of one cell of tiny-gpt2, as it is changed."""

    def leave(status="ok", reason=None, **changes):
        cell = config.load([*TINY, "seq_len=16"]).cells[0].as_dict()
        record = nights.cell(status=status, reason=reason)
        stage = StageOutcome("convert", StageStatus(changes.pop("convert", "ok")), None, key="0" * 64)
        weights = Weights("random", "random:0", changes.pop("digest", "random:0"))
        record = replace(record, cell={**cell, **changes}, stages=[stage], weights=weights)
        nights.write_run(tmp_path / "out", "20260101-000000", [record])

    return leave


def test_a_cell_of_a_run_that_failed_has_nothing_to_talk_to(refused, run):
    run("failed", "convert: no rule", convert="failed")
    assert "this cell has no package to give (failed: convert: no rule)" in refused("generate", "last", "prompt=x")


def test_a_package_that_was_pruned_says_how_it_is_made_again(refused, run):
    run()
    said = refused("generate", "last:seq_len=16", "prompt=x")
    assert "not in this cache any more" in said and "the command of 20260101-000000 makes it" in said


def test_a_run_of_other_weights_or_of_another_version_is_refused(refused, run):
    run(digest="random:1")
    assert "have changed since 20260101-000000 was made" in refused("generate", "last", "prompt=x")
    run(an_axis_of_tomorrow=3)
    assert "another version of ane-sweep" in refused("generate", "last", "prompt=x")


@cache
def a_byte_a_token():
    from ane_sweep.worker.talk.tokens import make_byte_tokenizer

    return make_byte_tokenizer(300)


@given(st.text(max_size=60))
def test_bytes_come_back_as_the_text_that_they_were_made_of(text):
    tokenizer = a_byte_a_token()
    ids = tokenizer.encode(text).ids
    assert len(ids) == len(text.encode()) and tokenizer.decode(ids) == text
    assert tokenizer.decode([*ids, 299]) == f"{text} <299>"


def test_a_vocabulary_without_room_for_the_bytes_is_refused():
    from ane_sweep.worker.talk.tokens import make_byte_tokenizer

    with pytest.raises(ConfigError, match="a vocabulary of 99 ids has no room"):
        make_byte_tokenizer(99)


def test_a_cell_can_be_made_of_its_record_again():
    (cell,) = config.load(TINY).cells
    assert type(cell)(**json.loads(json.dumps(cell.as_dict()))).key == cell.key
