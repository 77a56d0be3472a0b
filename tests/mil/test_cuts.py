"""Choosing cuts, against trying them all."""

import math
from itertools import combinations, pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ane_sweep.mil import cuts
from ane_sweep.mil.line import OpLine


def line(sizes, uses, positions, crossing):
    """A Line with just what choosing needs; `uses` are lists of weight keys by op."""
    return OpLine(None, [None] * len(uses), {}, [], [frozenset(keys) for keys in uses], sizes, positions, crossing, 0)


def chunk_sizes(given, chosen):
    edges = [0, *chosen, len(given.compute)]
    return [sum(given.sizes[k] for k in frozenset().union(*given.blobs[a:b])) for a, b in pairwise(edges)]


@st.composite
def lines(draw):
    count = draw(st.integers(2, 9))
    keys = list(range(draw(st.integers(1, 6))))
    sizes = {key: draw(st.sampled_from([10_000, 20_000, 40_000, 90_000, 400_000])) for key in keys}
    uses = [draw(st.lists(st.sampled_from(keys), max_size=2)) for _ in range(count)]
    uses[0] = keys[:]  # so that no key is unused
    uses[0] = uses[0][: draw(st.integers(1, len(keys)))]
    sizes = {key: size for key, size in sizes.items() if any(key in use for use in uses)}
    positions = sorted(draw(st.sets(st.integers(1, count - 1), min_size=1)))
    return line(sizes, uses, positions, {place: draw(st.integers(0, 5)) for place in positions})


@given(lines(), st.integers(2, 5))
def test_the_largest_chunk_is_as_small_as_any_cutting_makes_it(made, count):
    count = min(count, len(made.positions) + 1)
    chosen = cuts.choose(made, count)
    assert len(chosen) == count - 1 == len(set(chosen)) and set(chosen) <= set(made.positions)
    assert chosen == sorted(chosen) == cuts.choose(made, count)
    best = min(max(chunk_sizes(made, other)) for other in combinations(made.positions, count - 1))
    ideal = sum(made.sizes.values()) / count
    assert max(chunk_sizes(made, chosen)) <= max(best, ideal * (1 + cuts.SLACK))


def test_fewest_boundary_bytes_among_equals():
    # two weights, far apart: any cut between them balances, and the third position crosses least
    made = line({0: 50_000, 1: 50_000}, [[0], [], [], [], [1]], [1, 2, 3, 4], {1: 9, 2: 7, 3: 2, 4: 8})
    assert cuts.choose(made, 2) == [3]


def test_one_giant_does_not_leave_the_others_uneven():
    """A vocabulary table fills a chunk of its own; the rest is shared out, not left empty for small tensors' sake."""
    uses = [[], [0], *[[key] for key in range(1, 10)]]
    sizes = {0: 900_000, **dict.fromkeys(range(1, 10), 30_000)}
    crossing = {1: 1, **dict.fromkeys(range(2, 11), 1000)}
    made = line(sizes, uses, list(range(1, 11)), crossing)
    assert chunk_sizes(made, cuts.choose(made, 4)) == [900_000, 90_000, 90_000, 90_000]


def test_a_weight_on_both_sides_counts_on_both():
    made = line({0: 100_000, 1: 30_000, 2: 30_000}, [[0], [1], [2], [0]], [1, 2, 3], {1: 1, 2: 1, 3: 1})
    chosen = cuts.choose(made, 2)
    assert chosen == [2] and chunk_sizes(made, chosen) == [130_000, 130_000]


def test_tiny_weights_balance_by_ops():
    made = line({0: 10, 1: 10}, [[0], [1], *[[]] * 10], list(range(1, 12)), dict.fromkeys(range(1, 12), 4))
    assert cuts.choose(made, 2) == [6] and cuts.choose(made, 4) == [3, 6, 9]


@pytest.mark.parametrize("count", [2, 3, 4, 8, 24])
def test_equal_layers_are_cut_within_ten_percent_of_the_ideal(count):
    uses = [[layer * 4 + part] for layer in range(48) for part in range(4)]
    sizes = {key: (30_000, 10_000, 40_000, 40_000)[key % 4] for key in range(192)}
    positions = list(range(1, 192))
    made = line(sizes, uses, positions, {place: 4 if place % 4 == 0 else 9 for place in positions})
    found = chunk_sizes(made, cuts.choose(made, count))
    assert max(found) <= 1.1 * math.fsum(found) / count
    assert all(place % 4 == 0 for place in cuts.choose(made, count)), "and between layers, where little crosses"


def ops_line(types, uses=None, sizes=None, crossing=None):
    """A Line of ops of given types, each making a value `v<place>`."""
    ops = [SimpleNamespace(type=kind, outputs=[f"v{place}"]) for place, kind in enumerate(types)]
    made = line(sizes or {}, uses or [[] for _ in types], list(range(1, len(types))), {})
    made.compute = ops
    made.crossing = crossing or dict.fromkeys(made.positions, 4)
    return made


def test_by_layers_each_chunk_has_as_many_however_large_they_are():
    kinds = ["gather", *["linear", "gelu", "conv", "add"] * 6]
    uses = [[0], *([[1 + place] if kind in cuts.LAYERS else [] for place, kind in enumerate(kinds[1:])])]
    sizes = {key: 50_000_000 if key < 4 else 1_000_000 for keys in uses for key in keys}
    made = ops_line(kinds, uses, sizes)
    chosen = cuts.choose(made, 3, cuts.Wish("layers"))
    layers = [sum(op.type in cuts.LAYERS for op in made.compute[a:b]) for a, b in pairwise([0, *chosen, len(kinds)])]
    assert layers == [4, 4, 4] and cuts.choose(made, 3) != chosen


def test_by_time_each_chunk_takes_as_long():
    made = ops_line(["mul"] * 8)
    times = {f"v{place}": 6.0 if place == 0 else 1.0 for place in range(8)}
    assert cuts.choose(made, 2, cuts.Wish("time", times)) == [1]
    assert cuts.choose(made, 2, cuts.Wish("layers")) == [4], "without layers every op counts as one"


@given(lines(), st.sampled_from([30_000, 100_000, 400_000, 900_000]))
def test_fewest_is_the_least_number_that_keeps_under_the_limit(made, limit):
    found = cuts.choose_fewest(made, limit)
    fits = [
        n for n in range(len(made.positions) + 1)
        if any(max(chunk_sizes(made, other)) <= limit for other in combinations(made.positions, n))
    ]  # fmt: skip
    if not fits:
        assert found is None
    else:
        assert len(found) == fits[0] and max(chunk_sizes(made, found)) <= limit


def test_chunks_of_their_own_are_among_the_number():
    uses = [[0], *[[key] for key in range(1, 9)], [9]]
    sizes = {0: 300_000, **dict.fromkeys(range(1, 9), 50_000), 9: 10_000}
    made = line(sizes, uses, list(range(1, 10)), dict.fromkeys(range(1, 10), 1))
    both = cuts.Wish(first=1, last=9)
    assert [cuts.choose(made, n, both) for n in (3, 4, 6)] == [[1, 9], [1, 5, 9], [1, 3, 5, 7, 9]]
    assert cuts.count_most(made, both) == 10 and cuts.count_most(made, cuts.Wish(first=3)) == 8
    assert cuts.choose_fewest(made, 210_000, both) is None, "the embedding alone has more"
    assert cuts.choose_fewest(made, 310_000, both) == [1, 5, 9]


def test_a_layer_whose_numbers_come_back_from_a_state_is_not_the_last():
    """Keys of the last block: written into a cache, read from it, and then looked at by the layers behind."""
    ops = [
        SimpleNamespace(type=kind, outputs=outputs, reads=reads)
        for kind, outputs, reads in [
            ("linear", ("key",), {"x"}),
            ("write_state", (), {"cache", "key"}),
            ("read_state", ("keys",), {"cache"}),
            ("add", ("seen",), {"keys"}),
            ("linear", ("hidden",), {"seen"}),
            ("linear", ("logits",), {"hidden"}),
            ("linear", ("unread",), {"x"}),
            ("write_state", (), {"other", "unread"}),
        ]
    ]
    line = SimpleNamespace(compute=ops, reads=[op.reads for op in ops])
    assert cuts._find_last_layers(line) == [6, 5]
