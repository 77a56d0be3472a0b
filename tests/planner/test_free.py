"""Free values as words: what they may be, which words of a sweep a drawing comes to, and what is wrong with others."""

import random

import pytest

from ane_sweep.errors import ConfigError
from ane_sweep.planner import config, free
from ane_sweep.planner.space import Between, Choice

GIVEN = ["model=tiny-gpt2", "weights=random"]


def space(*words):
    return free.space([*GIVEN, *words])


def test_words_without_free_values_are_a_matrix():
    assert space("-m", "chunks=1,2", "precision=glob(p4*)") is None


@pytest.mark.parametrize(
    ("words", "name", "means"),
    [
        (["precision=mixed4", "precision.weights.bits=interval(2.5,6)"], "precision.weights.bits", Between(2.5, 6.0)),
        (["seq_len=range(16,64,16)"], "seq_len", Choice((16, 32, 48), ordered=True)),
        (["seq_len=int(interval(16,19))"], "seq_len", Choice((16, 17, 18, 19), ordered=True)),
        (["cuts=interval(0.2,0.8)"], "cuts", Between(0.2, 0.8)),
        (["cuts=range(1,2)"], "cuts", Choice((1,), ordered=True)),
        (["precision=p4", "precision.overrides.*h_0*=interval(1,3)"], "precision.overrides.*h_0*", Choice((1, 2, 3), True)),
        (["precision=p4", "precision.overrides.gather=8,4"], "precision.overrides.gather", Choice((4, 8), True)),
    ],
)  # fmt: skip
def test_a_free_value_is_what_hydras_word_says(words, name, means):
    assert space(*words).free == {name: means}


def test_widths_that_no_recipe_has_are_left_out_and_told():
    found = space("-m", "precision=p8,p4", "precision.overrides.*=range(2,9)")
    assert found.free["precision.overrides.*"].values == (2, 3, 4, 6, 8)
    assert found.notes[0].startswith(
        "precision.overrides.*: 5, 7 left out: precision.weights.overrides[0].bits=5: choices"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["precision=mixed4", "precision.weights.bits=interval(2,8)", "seq_len=range(16,65,16)"],
        ["-m", "chunks=1,2,3", "variant=original,split_einsum", "cuts=interval(0.1,0.9)"],
        ["-m", "precision=p8,p4", "precision.overrides.*h_0*=range(1,9)", "precision.overrides.*h_1*=range(1,9)"],
        ["precision=sparse50", "precision.weights.sparsity=interval(0.1,0.9)"],
    ],
)
def test_a_drawing_is_words_of_a_sweep_of_one_cell_that_has_its_values(words):
    found, chance = space(*words), random.Random(0)
    for _ in range(5):
        drawn = found.any(chance)
        request = found.request(drawn)
        [cell] = request.cells
        assert config.load(found.trial(drawn)).cells[0].key == cell.key == found.cell(drawn).key
        for name, value in found.values(drawn).items():
            if not name.startswith(("cuts", "precision.overrides.")):
                assert cell.value(name) == value
        if "chunks" in found.values(drawn):
            assert len(cell.cuts or ()) == cell.chunks - 1
        assert cell.label(request.axes)


def test_a_kept_matrix_may_have_free_values_as_text(tmp_path):
    (tmp_path / "sweep").mkdir()
    text = "name: mine\naxes:\n  precision: [mixed4, mixed3]\n  precision.weights.bits: interval(2.5,6)\n  cuts: range(1,2)\n"
    (tmp_path / "sweep" / "mine.yaml").write_text(text)
    words = ["--config-dir", str(tmp_path), "+sweep=mine"]
    found = space(*words)
    assert set(found.free) == {"precision.weights.bits", "cuts"} and found.listed[0].keys == ("precision",)
    assert space(*words, "cuts=null").free == {"precision.weights.bits": Between(2.5, 6.0)}
    with pytest.raises(ConfigError) as error:
        config.load([*GIVEN, *words])
    assert "got 'interval(2.5,6)'; free values are searched by `ane-sweep best`" in str(error.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["precision=p4", "precision.overrides.*=5"],
            "precision.overrides.*: precision.weights.overrides[0].bits=5: choices",
        ),
        (["precision=fp16", "precision.overrides.*=2,4"], "precision.overrides.*: "),
        (["precision=mixed4", "precision.overrides.*=2,4"], "mixed chooses the bits itself"),
        (["precision=p4", "precision.overrides.*=few"], "expected bits as range(2,8), interval(2,8) or 2,4,6"),
        (["precision=p4", "precision.overrides.*=interval(2.1,2.9)"], "no whole number of bits lies there"),
        (["precision=p4", 'precision.overrides.a"b=range(2,4)'], "neither quotes nor backslashes"),
        (["precision=p4", "precision.weights.bits=interval(2,8)"], "choices for palettized"),
        (["precision=mixed4", "precision.weights.bits=interval(6,2)"], "the lower one first"),
        (["precision=mixed4", "precision.weights.bits=range(6,2)"], "0 values; expected 1 to 10,000"),
        (["precision=mixed4", "precision.weights.bits=range(0,9,0.0001)"], "expected 1 to 10,000"),
        (["precision=range(1,3)"], "its options have no order; list them"),
        (["lanes=range(1,3)"], "lanes: a setting of the whole sweep and nothing to search"),
        (["cuts=interval(0.2,0.8)", "chunks=auto"], "their number must be known; give chunks a number"),
        (["cuts=interval(2,8)"], "cuts: 2"),
        (["chunk=interval(2,8)"], "chunk: nothing reads this key"),
        (["chunks=1,2", "cuts=interval(0.2,0.8)"], "chunks=1,2 lists several values: add -m to search them"),
    ],
)
def test_a_wrong_word_is_told_with_what_is_right(words, said):
    with pytest.raises(ConfigError) as error:
        space(*words)
    assert said in str(error.value)


def test_a_sweep_says_who_searches_an_interval():
    with pytest.raises(ConfigError) as error:
        config.load([*GIVEN, "-m", "precision=mixed4", "precision.weights.bits=interval(2,8)"])
    assert "an interval has no list of values; write choices or range(...), or search it: ane-sweep best" in str(
        error.value
    )
