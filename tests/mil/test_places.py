"""Places of one's own to cut: each word comes to the cut that it says, or to a sentence with the nearest ones."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placement.by_hand import Writer

from ane_sweep.errors import ChunkError
from ane_sweep.mil import chunker, cuts, graph, places
from ane_sweep.mil import cut_words as words
from ane_sweep.mil.element_types import string_value
from ane_sweep.mil.line import line_up

VECTOR = ("fp16", (1, 64))


def line(tmp_path, sizes: list[int], named: str = "h_{}_{}", shapes: str = ""):
    """A chain of layers: `sizes[n]` linear ops of 64 x 64 in layer n, and a relu behind each, or a reshape to a shape of such a name."""
    writer = Writer(x=VECTOR)
    value = "x"
    for layer, count in enumerate(sizes):
        for number in range(count):
            weight = writer.const("fp16", (64, 64))
            writer.block.operations[-1].outputs[0].name = weight = named.format(layer, f"w{number}")
            value = writer.op("linear", VECTOR, x=value, weight=weight)
            if shapes:
                shape = writer.const("int32", (2,), (1, 64))
                writer.block.operations[-1].outputs[0].name = shape = shapes.format(layer, f"shape_{number}")
                value = writer.op("reshape", VECTOR, x=value, shape=shape)
            else:
                value = writer.op("relu", VECTOR, x=value)
    return line_up(graph.load(writer.runs(value).save(tmp_path / "m.mlpackage")))


def come_to(found, *asked) -> tuple[list[int], list[str]]:
    return places.resolve(found, words.parse_places(list(asked)), "m.mlpackage")


def test_a_layer_ends_behind_all_that_follows_its_last_weight(tmp_path):
    found = line(tmp_path, [2, 3, 2])
    assert places.find_layers(found) == [(0, 2), (4, 8), (10, 12)]
    assert come_to(found, "layer:2", "layer:1") == ([4, 10], [])
    assert [places.name_cut(found, cut) for cut in (4, 10)] == ["op:relu_6", "op:relu_15"]


def test_numbered_values_that_lie_in_no_weight_file_are_no_layers(tmp_path):
    """As `key_cache_0_begin_mask_0` and `key_cache_0_end_mask_0` of a program with a cache."""
    found = line(tmp_path, [2, 3, 2], shapes="cache_{}_{}")
    assert places.find_layers(found) == [(0, 2), (4, 8), (10, 12)]


def test_both_orders_of_two_sizes_come_to_chunks_of_those_sizes(tmp_path):
    found = line(tmp_path, [2, 3, 2])
    whole = 7 * 8192
    for first in (3 * 8192, 4 * 8192):
        (cut,), notes = come_to(found, f"{first / 1000}kB")
        assert cuts.weight_bytes(found, [cut]) == [first, whole - first] and not notes


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0.01, 0.99))
def test_no_legal_cut_is_nearer_to_a_share_than_the_one_taken(tmp_path_factory, share):
    found = line(tmp_path_factory.mktemp("shared"), [2, 3, 2])
    held = places.count_bytes_ahead(found)
    (cut,), _ = come_to(found, share)
    nearest = min(abs(held[place] - share * held[-1]) for place in found.positions)
    assert cut in found.positions and abs(held[cut] - share * held[-1]) <= nearest + places.NEAR * held[-1]


def rename(op, name):
    op.proto.attributes["name"].CopyFrom(string_value(name))


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("op:linear_3", [2]),
        ("op:linear_33", "linear_33 is the name of no op there, in m.mlpackage (did you mean 'linear_3'?)"),
        ("op:quite_else", "no op there, in m.mlpackage; legal cuts are op:linear_2 to op:linear_20"),
        ("op:h_0_w0", "h_0_w0 is a constant there"),
        ("op:relu_21", "cannot be cut behind relu_21: it is the last op; nearest: op:linear_20"),
        ("layer:3", "has 3 layers, so layer:1 to layer:2"),
        ("1MB", "m.mlpackage has 57.34 kB of weights; give less than that"),
    ],
)
def test_an_op_is_cut_behind_or_the_sentence_names_the_nearest(tmp_path, word, said):
    found = line(tmp_path, [2, 3, 2])
    if isinstance(said, list):
        rename(found.compute[1], "linear_3")
        assert come_to(found, word) == (said, [])
        return
    if "33" in word:
        rename(found.compute[1], "linear_3")
    with pytest.raises(ChunkError, match=re.escape(said)):
        come_to(found, word)


def test_two_words_for_one_place_and_weights_without_numbers_are_said(tmp_path):
    found = line(tmp_path, [2, 2])
    with pytest.raises(ChunkError, match=r"layer:1 and 0\.5 of m\.mlpackage come to one place, behind op:relu_6"):
        come_to(found, "layer:1", 0.5)
    with pytest.raises(ChunkError, match=r"number no layers; give bytes"):
        come_to(line(tmp_path / "b", [2, 2], "const{}{}"), "layer:1")


def test_a_cut_far_from_what_was_asked_is_said(tmp_path):
    found = line(tmp_path, [1, 1, 1])
    (cut,), (note,) = come_to(found, 0.5)
    assert cut in found.positions and note.startswith("cuts: 0.5 came to") and "no legal cut is nearer" in note


def test_what_is_no_place_is_told_the_forms():
    for wrong in (0, 1, 1.5, "24", "layer:", "layer:0", "layer:x", "op:", "1811", "0MB", "-3MB", "MB"):
        assert words.FORMS in words.find_problem("cuts", [0.5, wrong])
    assert words.find_problem("cuts", ["1811MB", "1.5 GiB", 0.25, "layer:24", "op:a:b"]) is None
    assert "twice" in words.find_problem("cuts", ["1811MB", "1811MB"]) and words.FORMS in words.find_problem("cuts", [])


def test_a_cut_of_ones_own_is_written_and_named(tmp_path):
    line(tmp_path, [2, 3, 2])
    asked = chunker.ChunkRequest(2, at=tuple(words.parse_places(["layer:1"])))
    (tmp_path / "cut").mkdir()
    facts = chunker.chunk(tmp_path / "m.mlpackage", tmp_path / "cut", asked)
    assert facts["cut_behind"] == ["op:relu_6"] and facts["chunk_bytes"] == [2 * 8192, 5 * 8192]
    assert "notes" not in facts, "it is what was asked for, however uneven"
