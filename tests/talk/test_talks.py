"""Talks with real programs, each in its worker."""

import json
import os
import pty
import subprocess
import sys
from contextlib import contextmanager

import psutil
import pytest

from ane_sweep.__main__ import main
from ane_sweep.errors import AneSweepError, StageError
from ane_sweep.planner import config, options, overview, paths
from ane_sweep.talk import cells
from ane_sweep.talk.session import Session
from ane_sweep.verbs.generate import _build_request, _parser
from tests.bench import talk

TINY = ("model=tiny-gpt2", "weights=random", "seq_len=32")
PROMPT = "Hello, I'm"
SHIPPED = [name for name in ("tale",) if options.file_of(paths.conf_dir() / "model", name) is not None]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


@contextmanager
def talking(out, *words, verb="generate"):
    """(whom, a session with it)."""
    with (
        cells.prepare_partners(verb, [], words, [], out, 1, None) as ((partner,), folder),
        Session(verb, partner.params, partner.inputs, folder / "a") as session,
    ):
        yield partner, session


def written(session, *words, prompt=PROMPT):
    """The samples that come of a prompt and words of the command line."""
    asked = _build_request(_parser().read([*words]))
    return [event for event in session.ask(prompt=prompt, **asked) if event["event"] == "sample"]


def same_as_hugging_face(out, *words):
    """How many of the tokens, and of how many."""
    with cells.prepare_partners("generate", [], [*words, "precision=fp32"], [], out, 1, None) as ((one,), folder):
        found = talk.beside_hugging_face(one, folder)
    assert found.differ_most < 1e-3  # fp32, sums in another order
    return found.same if found.a is None else f"{found.same}, then {found.a} and {found.b}"


@pytest.mark.slow
@pytest.mark.parametrize("words", [TINY[:2], *((f"model={name}",) for name in SHIPPED)])
def test_greedy_decoding_is_hugging_faces_token_by_token(words, out):
    assert same_as_hugging_face(out, *words, "seq_len=64") == talk.TOKENS


@pytest.mark.slow
def test_greedy_decoding_of_gpt2_is_hugging_faces_token_by_token(out):
    assert same_as_hugging_face(out, "model=gpt2", "weights=random", "seq_len=64") == talk.TOKENS


@pytest.mark.slow
@pytest.mark.ci
def test_one_session_answers_what_it_is_asked(out):
    with talking(out, *TINY) as (_, session):
        assert session.ready["tokenizer"].startswith("bytes") and session.ready["load_ms"] > 0
        (plain,) = written(session, "max_new_tokens=8")
        assert len(plain["ids"]) == 8 and plain["stopped"] == "max_new_tokens"
        timing = plain["timing"]
        assert timing["tokens"] == 8 and timing["steady_ms"].keys() == {"tokenizer", "model", "sampling", "total"}
        assert timing["seconds"] * 1000 >= timing["first_ms"]["total"] > timing["first_ms"]["model"] > 0
        assert written(session, "max_new_tokens=8", "top_k=1")[0]["ids"] == plain["ids"], "chance among one is none"
        assert written(session, "max_new_tokens=8", "temperature=0")[0]["ids"] == plain["ids"]
        warm = ("max_new_tokens=8", "temperature=1.5", "samples=2")
        first, second = written(session, *warm, "seed=3")
        assert first["ids"] != second["ids"]
        assert [one["ids"] for one in written(session, *warm, "seed=3")] == [first["ids"], second["ids"]]
        assert written(session, *warm, "seed=4")[0]["ids"] == second["ids"], "sample 2 has the next seed"
        repeated = written(session, "max_new_tokens=8", "repetition_penalty=50")[0]["ids"]
        assert len(set(repeated)) == 8 > len(set(plain["ids"]))
        piece = plain["pieces"][2].strip()
        (stopped,) = written(session, "max_new_tokens=8", "--stop", piece)
        assert stopped["stopped"] == "stop string" and stopped["text"].endswith(piece)
        with pytest.raises(AneSweepError, match="the prompt has 40 tokens, and the program takes seq_len=32"):
            written(session, prompt="x" * 40)
        with pytest.raises(
            AneSweepError, match=r"seq_len=32 has room for 23; max_new_tokens=23 at most; .* seq_len=39"
        ):
            written(session, "max_new_tokens=30")
        (full,) = written(session)
        assert full["stopped"] == "seq_len" and len(full["ids"]) == 23, "the last one is made of a full window"


@pytest.mark.slow
def test_decoding_over_states_and_chunks_writes_what_the_whole_window_writes(out):
    texts = []
    for words in ((), ("cache=stateful",), ("cache=stateful", "head=last", "variant=split_einsum", "chunks=2")):
        with talking(out, *TINY, *words) as (_, session):
            texts += [written(session, "max_new_tokens=12")[0]["ids"] for _ in range(2)]
    assert len(texts) == 6 and all(ids == texts[0] for ids in texts), "and the second time the states begin anew"


@pytest.mark.slow
@pytest.mark.ci
def test_what_was_made_to_be_talked_to_is_the_sweeps_own(out):
    with cells.prepare_partners("generate", [], TINY, [], out, 1, None):
        _, _, plain = overview.make_plan_view(config.load(list(TINY)), out)
    assert [task["cached"] for task in plain["tasks"] if task["stage"] == "convert"] == [True]
    assert not (out / "runs").exists(), "and it is no run"


@pytest.mark.slow
def test_whoever_leaves_in_haste_takes_the_worker_along(out):
    with pytest.raises(KeyboardInterrupt), talking(out, *TINY) as (_, session):
        (child,) = session._children._live
        raise KeyboardInterrupt
    assert not psutil.pid_exists(child.process.pid)


@pytest.mark.slow
@pytest.mark.ci
def test_a_worker_that_fails_says_why(tmp_path):
    with pytest.raises(StageError, match="KeyError: 'program'"), Session("drift", {}, {}, tmp_path / "a"):
        pass


@pytest.mark.slow
def test_a_file_is_classified_as_torch_classifies_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("I like cheese\n\nI hate cheesecake\nNaïve " + "x" * 60 + "\n", encoding="utf-8")
    words = [
        "classify",
        "--compare",
        "model=tiny-distilbert",
        "weights=random",
        "seq_len=32",
        "runtime=reference,torch_eager",
        "file=t.txt",
        "count=5",
        "idle_s=0.1",
    ]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["texts"] == 3 and found["differ"] == []
    for side in (found["a"], found["b"]):
        assert [one["cut"] for one in side["labels"]] == [False, False, True]
        assert {one["label"] for one in side["labels"]} <= {"NEGATIVE", "POSITIVE"}
        assert side["timing"]["count"] == 5 and side["timing"]["after_idle_ms"] > 0 and side["timing"]["per_s"] > 0
    shares = [[one["probabilities"]["POSITIVE"] for one in found[side]["labels"]] for side in "ab"]
    assert shares[0] == pytest.approx(shares[1], abs=2e-3)  # fp16 beside fp32


@pytest.mark.slow
def test_on_a_terminal_one_line_after_the_other_is_labelled(out, tmp_path):
    ours, theirs = pty.openpty()
    words = ["classify", "model=tiny-distilbert", "weights=random", "seq_len=32", f"out={out}"]
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "ane_sweep", *words],
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, text=True, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    os.write(ours, "I like cheese\n\nna\u00efve\n\x04".encode())
    said, told = child.communicate(timeout=120)
    os.close(ours)
    os.close(theirs)
    assert child.returncode == 0, told
    assert said.count(" %  (tokenizer ") == 2 and "text (Ctrl-D ends):" in told


@pytest.mark.slow
def test_core_ml_is_talked_to_through_the_stand_in_and_says_so(out, tmp_path):
    answers = [{"on": "predict", "units": "cpu_and_ne", "ms": 1.5}]
    script = {
        "name": "m4",
        "source": "constructed",
        "host": {"system": "Darwin", "chip": "Apple M4"},
        "answers": answers,
    }
    (tmp_path / "script.json").write_text(json.dumps(script))
    words = ["generate", *TINY, "runtime=coreml", "cache=stateful", "prompt=Hi", "max_new_tokens=3", f"out={out}"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ane_sweep", *words], capture_output=True, text=True, cwd=tmp_path, timeout=300,
        env={**os.environ, "ANE_SWEEP_STAND_IN": str(tmp_path / "script.json")}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Hi <") and "runtime=coreml" in done.stderr
    assert "the stand-in m4 (script.json" in done.stderr
