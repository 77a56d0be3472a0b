"""Bits by what they cost, on plain values."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ane_sweep.errors import StageError
from ane_sweep.worker.compress import allot


def weight(elements: int, gain: float) -> dict:
    """Noise falls by 4 with each bit, as a quantizer's does."""
    return {"elements": elements, "noise": {str(bits): gain * 4.0**-bits for bits in (2, 4, 8)}}


def noise(weights: dict, bits: dict) -> float:
    return sum(weights[name]["noise"][str(b)] for name, b in bits.items())


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0.01, 100)), min_size=1, max_size=4), st.floats(2.0, 8.0))
def test_the_average_holds_and_little_is_lost(pairs, average):
    weights = {f"w{n}": weight(elements, gain) for n, (elements, gain) in enumerate(pairs)}
    bits = allot.allot_bits(weights, average)
    assert allot.compute_average_bits(weights, bits) <= average + 1e-9
    # No single weight could be raised within the average, unless something cheaper was.
    for name, to in itertools.product(bits, (4, 8)):
        raised = {**bits, name: to}
        if to > bits[name]:
            assert allot.compute_average_bits(weights, raised) > average - 1e-9


def test_what_hurts_gets_more_bits():
    weights = {"loud": weight(10, 100.0), "quiet": weight(10, 0.01)}
    assert allot.allot_bits(weights, 5) == {"loud": 8, "quiet": 2}
    assert noise(weights, allot.allot_bits(weights, 5)) < noise(weights, {"loud": 4, "quiet": 4})


def test_ties_are_settled_by_name():
    assert allot.allot_bits({name: weight(10, 1.0) for name in "ba"}, 6) == {"a": 4, "b": 8}


def test_an_average_below_all_candidates_ends_at_the_least():
    assert allot.allot_bits({"a": weight(10, 1.0)}, 1) == {"a": 2}


def test_a_wanted_psnr_takes_the_smallest_point_that_reaches_it(tmp_path):
    curve = [{"average_bits": b, "psnr_db": db, "bits": {"a": b}} for b, db in ((8, 50.0), (4, 41.0), (2, 20.0))]
    (tmp_path / "sensitivity.json").write_text(json.dumps({"weights": {}, "curve": curve}))
    wanted = {"min_psnr_db": 40, "candidates": [2, 4, 8]}
    two_outputs = [{**point, "psnr_worst_db": point["psnr_db"] - 5} for point in curve]
    assert allot.choose_bits(tmp_path, wanted) == {"a": 4}
    with pytest.raises(StageError, match=r"the best of candidates=\[2, 4, 8\] reaches 50.0 dB"):
        allot.choose_bits(tmp_path, {**wanted, "min_psnr_db": 60})
    (tmp_path / "sensitivity.json").write_text(json.dumps({"weights": {}, "curve": two_outputs}))
    assert allot.choose_bits(tmp_path, wanted) == {"a": 8}
