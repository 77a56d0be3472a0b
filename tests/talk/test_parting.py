"""Where two texts part."""

import numpy as np
import pytest

from ane_sweep.talk.divergence import describe_divergence, find_divergence


def sample(*ids):
    return {"ids": list(ids), "pieces": [f"<{one}>" for one in ids]}


@pytest.fixture
def rows(tmp_path):
    """Writes two files of logits over four tokens."""

    def write(a, b):
        for name, values in (("a", a), ("b", b)):
            np.save(tmp_path / f"{name}.npy", np.array(values, np.float32))
        return tmp_path / "a.npy", tmp_path / "b.npy"

    return write


def test_the_first_token_that_differs_has_both_tokens_and_both_gaps(rows):
    files = rows([[0, 3, 0, 0], [1, 0, 2, 0], [9, 9, 9, 9]], [[0, 3, 0, 0.5], [4, 0, 2, 0], [7, 7, 7, 7]])
    found = find_divergence(sample(1, 2, 3), sample(1, 0, 3), files)
    assert found.same == 1 and (found.a.id, found.b.id) == (2, 0) and (found.a.gap, found.b.gap) == (1.0, 2.0)
    assert found.differ_most == 3.0, "what follows is behind other texts, and not compared"
    assert "at token 2 A says '<2>' (2), whose logit is +1 from" in describe_divergence(found)


def test_texts_that_do_not_part_say_how_near_that_was(rows):
    found = find_divergence(sample(1, 1), sample(1, 1), rows([[0, 1], [0, 2]], [[0, 1.25], [0, 2]]))
    assert (found.a, found.b, found.same, found.differ_most) == (None, None, 2, 0.25)
    assert describe_divergence(found) == "A and B made the same 2 tokens; their logits differ by at most 0.25"


def test_a_text_that_ends_earlier_parts_there(rows):
    found = find_divergence(sample(1), sample(1, 0), rows([[0, 1]], [[0, 1], [1, 0]]))
    assert found.same == 1 and found.a.id is None and found.b.id == 0 and found.b.gap is None
    assert "at token 2 A has ended; B says '<0>' (0)" in describe_divergence(found)
