"""The file that a model is scored on: found, read and refused before anything runs."""

import json
import os
import subprocess
import sys

import pytest
from hub_server import serve
from tiny import ONCE

from ane_sweep.bridge import examples
from ane_sweep.errors import ConfigError
from ane_sweep.planner import checkpoints, config, plan, scoring

MOODS = {"id2label": {"0": "glad", "1": "sad", "2": "afraid"}}
GOOD = "label,text\nglad,a song\nsad,a loss\n"


@pytest.fixture
def planned(tmp_path):
    def planned(*words: str):
        request = config.load([ONCE, "runtime=reference", *words])
        known = scoring.read_examples(request.cells)
        sources = {
            cell.key: checkpoints.resolve(
                cell.model_options, cell.weights, seed=0, allow_pickle=False, digests=tmp_path / "digests.json"
            )
            for cell in request.cells
        }
        return plan.make_plan(request.cells, request.axes, sources, host="host", toolchain={}, examples=known)

    return planned


def keys(made, *stages: str) -> list[str]:
    return [key for key, task in made.tasks.items() if task.stage in stages]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"", "the file is empty; give one with text"),
        ("a.csv", b" \n", "the file is empty"),
        ("a.txt", b"gr\xfc\xdfe", "byte 2 is no UTF-8; save it as UTF-8"),
        ("a.docx", b"PK", "a file that ends in .docx; choices: .txt, .csv"),
        ("a", b"text", "a file that ends in nothing"),
        ("a.csv", b"id,mood\n1,glad\n", "no column of texts; it has id, mood, expected text or sentence"),
        ("a.csv", b"text,label\nx,glad,more\n", "line 2 has another number of fields"),
        ("a.csv", b"text,label\nx\n", "line 2 has another number of fields"),
        ("a.csv", b"text,label\n", "no example in it"),
        ("a.csv", b"text,label\n ,glad\n", "row 1 has no text"),
        ("a.tsv", b"text\tlabel\nx\t\n", "row 1 has no label"),
        ("a.jsonl", b'{"text": "x"}\n["y"]\n', "line 2 is no JSON object"),
        ("a.jsonl", b"[" * 100_000, "line 1 is no JSON object"),
        ("a.parquet", b"PAR2", "cannot be read as parquet"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_scored_on_stops_everything(planned, tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as error:
        planned("model=mood", "score=agreement", f"score_data={tmp_path / name}")
    assert said in str(error.value) and str(tmp_path / name) in str(error.value)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("sentence1,sentence2,score\na,b,much\n", "row 1: score is 'much', expected a number"),
        ("sentence1,sentence2,score\na,b,inf\n", "row 1: score is 'inf', expected a number"),
        ("sentence1,sentence2\na,a\n", "1 different texts; an order of their likeness needs 3 or more"),
    ],
)
def test_pairs_that_cannot_be_compared_are_told(planned, tmp_path, rows, said):
    (tmp_path / "pairs.csv").write_text(rows)
    with pytest.raises(ConfigError, match=said):
        planned("model=minilm", "score=embedding", f"score_data={tmp_path / 'pairs.csv'}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.txt", "score_data=nowhere.txt: no such file"),
        ("nobody/texts", "of a dataset on the hub, name the file too: nobody/texts:FILE"),
        (".", "a folder; give a file in it"),
    ],
)
def test_a_file_that_is_not_there(planned, name, said):
    with pytest.raises(ConfigError, match=said):
        planned("model=tale", "score=perplexity", f"score_data={name}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model=minilm", "score=perplexity"], "minilm is of task encoder; use score=embedding or score=none"),
        (["model=tale", "score=accuracy"], "tale is of task causal_lm; use score=perplexity or score=agreement or score=none"),
        (["model=mood", "score=embedding"], "mood is of task classifier; use score=accuracy or score=agreement or score=none"),
        (["model=tiny-vit", "weights=random", "score=accuracy"], "tiny-vit is of task image_classifier; use score=none"),
        (["model=tale", "score=perplexity", "head=last"], "head=last gives those of one; use head=all"),
        (["model=tale", "score=perplexity", "score_stride=200"], "score_stride=200 is more than the 128 tokens of a window"),
        (["model=mood", "score=accuracy", "score_stride=2"], "score=accuracy reads examples; leave it out"),
        (["model=mood", "score_data=x.csv"], "score=none asks for none; add score=..."),
        (["model=tiny-gpt2", "weights=random", "score=perplexity"], "has no tokenizer; use weights=pretrained"),
        (["model=tale", "chunks=2", "pieces=2", "score=perplexity"], "score=perplexity with pieces=2: a task is asked of the whole model"),
    ],
)  # fmt: skip
def test_what_a_model_cannot_be_scored_on_is_refused_in_the_plan(planned, words, said):
    (reason,) = planned(*words).refused.values()
    assert said in reason


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("text,label\na song,glad\na loss,gloomy\n", "has the label 'gloomy', and mood knows glad, sad, afraid"),
        ("text,label\na song,3\n", "has the label '3'"),
        ("text,label\na song,glad\na dance,GLAD\n", "have the label 'glad', and a constant answer"),
        ("text\na song\n", "has no column label; use score=agreement"),
    ],
)
def test_labels_are_held_against_the_model_before_anything_runs(planned, tmp_path, rows, said):
    (tmp_path / "own.csv").write_text(rows)
    words = ("model=mood", f"score_data={tmp_path / 'own.csv'}")
    (reason,) = planned(*words, "score=accuracy").refused.values()
    assert said in reason
    assert not planned(*words, "score=agreement").refused


def test_a_label_is_a_name_in_any_case_or_a_number():
    known = examples.known_labels(MOODS)
    assert [examples.find_output(label, known) for label in ("sad", " Sad ", "1", "3", "-1", "x")] == [
        1,
        1,
        1,
        None,
        None,
        None,
    ]
    assert examples.known_labels({"num_labels": 2}) == ["LABEL_0", "LABEL_1"]


def test_one_reading_of_torch_serves_all_cells_and_no_other_task_is_another_one(planned):
    plain = planned("-m", "model=tale", "precision=fp16,p4", "variant=original,split_einsum")
    made = planned("-m", "model=tale", "precision=fp16,p4", "variant=original,split_einsum", "score=perplexity")
    assert len(keys(made, "examples")) == 1 and len(keys(made, "evaluate")) == 4
    assert set(plain.tasks) == set(made.tasks) - set(keys(made, "examples", "evaluate"))


@pytest.mark.parametrize("option", ["batch=2", "cache=explicit"])
def test_a_batch_and_a_cache_are_scored_as_they_run(planned, option):
    made = planned("-m", "model=tale", "score=perplexity", option)
    (scored,) = (made.tasks[key] for key in keys(made, "evaluate"))
    name, value = option.split("=")
    assert not made.refused and str(scored.params["options"][name]) == value
    assert keys(made, "examples") == keys(planned("model=tale", "score=perplexity"), "examples"), "torch's are the same"


def test_the_content_of_the_file_is_in_the_key_and_its_name_is_not(planned, tmp_path):
    for name, text in (("a.csv", GOOD), ("b.csv", GOOD), ("c.csv", GOOD + "afraid,a shadow\n")):
        (tmp_path / name).write_text(text)
    found = [
        keys(planned("model=mood", "score=accuracy", f"score_data={tmp_path / n}"), "examples", "evaluate")
        for n in ("a.csv", "b.csv", "c.csv")
    ]
    assert found[0] == found[1] and not set(found[0]) & set(found[2])
    fewer = planned("model=mood", "score=accuracy", f"score_data={tmp_path / 'a.csv'}", "score_rows=1")
    assert not set(found[0]) & set(keys(fewer, "examples", "evaluate"))


def test_rows_come_out_of_every_form_alike(tmp_path):
    import pandas

    table = pandas.DataFrame({"sentence": ["a, song", "a loss"], "label": ["glad", "sad"]})
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    table.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    table.to_parquet(tmp_path / "a.parquet")
    wanted = [examples.Row("a, song", None, "glad"), examples.Row("a loss", None, "sad")]
    for suffix in ("csv", "tsv", "jsonl", "parquet"):
        assert examples.rows(tmp_path / f"a.{suffix}", "a") == wanted, suffix
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    assert [row.text for row in examples.rows(tmp_path / "a.txt", "a")] == ["one", "two"]
    assert examples.running_text(tmp_path / "a.txt", "a") == "one\n\ntwo\n"
    assert examples.running_text(tmp_path / "a.csv", "a") == "a, song\na loss"


ASKED = """
import json, sys
from ane_sweep.errors import ConfigError
from ane_sweep.planner import scoring
told = []
for name in sys.argv[1:]:
    try:
        told.append(scoring._find_file(name).read_text())
    except ConfigError as error:
        told.append(error.problems[0])
print(json.dumps(told))
"""


@pytest.mark.slow
@pytest.mark.ci
def test_a_file_of_a_dataset_comes_from_the_hub_and_is_then_here(tmp_path):
    folder = tmp_path / "hub" / "datasets" / "me" / "moods"
    folder.mkdir(parents=True)
    (folder / "test.csv").write_text(GOOD)
    env = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}

    def asked(endpoint: str, *names: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-P", "-c", ASKED, *names],
            capture_output=True,
            text=True,
            env=env | {"HF_ENDPOINT": endpoint},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    with serve(tmp_path / "hub") as (endpoint, _):
        there, missing = asked(endpoint, "me/moods:test.csv", "me/moods:none.csv")
    assert there == GOOD and "cannot give it (" in missing and "give a file of this machine" in missing
    assert asked(endpoint, "me/moods:test.csv") == [GOOD]  # nobody listens any more
