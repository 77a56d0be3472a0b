"""Constants that remember what they were made of."""

import numpy as np
import pytest

from ane_sweep.worker.grow import recipes
from ane_sweep.worker.grow.recipes import Leaf, list_leaves, recipe_of, replay, shape_of, traced

ONE, TWO = (np.random.default_rng(seed).normal(size=(6, 4)).astype(np.float32) for seed in (1, 2))
CALLS = {
    "transposed": lambda w: w.T,
    "cast": lambda w: w.astype(dtype=np.float16),
    "scaled": lambda w: np.array(w * np.float32(0.5)).astype(np.float32),
    "squared": lambda w: w * w,
    "part": lambda w: np.split(w, 2, axis=1)[1],
    "reshaped": lambda w: np.reshape(np.transpose(w, (1, 0)), (2, 12))[:, None],
    "joined": lambda w: np.concatenate([w, -w], axis=0),
    "offset": lambda w: np.float32(1) + w,
}


@pytest.mark.parametrize("call", CALLS)
def test_the_same_is_made_of_another_layers_weights(call):
    with recipes.patch_numpy():
        made = CALLS[call](traced(ONE.copy(), Leaf("h.0.w")))
    recipe = recipe_of(made)
    named = list_leaves(recipe)
    assert named == ["h.0.w"]
    other = replay(recipe, {"h.1.w": TWO}.__getitem__, ["h.1.w"])
    assert np.array_equal(other, CALLS[call](TWO)) and np.array_equal(np.asarray(made), CALLS[call](ONE))


def test_recipes_differ_where_calls_do():
    with recipes.patch_numpy():
        shapes = [shape_of(recipe_of(call(traced(ONE.copy(), Leaf("w"))))) for call in CALLS.values()]
    assert len({str(shape) for shape in shapes}) == len(CALLS)


def test_a_call_that_is_not_seen_loses_the_memory_and_not_the_values():
    made = traced(ONE.copy(), Leaf("w")).view(np.ndarray) + 1
    assert recipe_of(made) is None and np.array_equal(made, ONE + 1)
    lost = traced(ONE.copy(), Leaf("w"))
    lost[0, 0] = 3
    assert recipe_of(lost) is None
    lost = traced(ONE.copy(), Leaf("w"))
    lost += 1
    assert recipe_of(lost) is None and np.array_equal(lost, ONE + 1)


def test_numpy_is_left_as_it_was():
    before = np.array, np.asarray, np.ascontiguousarray
    with pytest.raises(ZeroDivisionError), recipes.patch_numpy():
        raise ZeroDivisionError
    assert (np.array, np.asarray, np.ascontiguousarray) == before


def test_small_tensors_keep_what_would_vanish_in_fp16():
    least = np.nextafter(np.float16(0), np.float16(1))
    few = np.array([1e-12, -1e-12, 0.0, 0.5], np.float32)
    assert recipes.narrow_to_half(few).tolist() == [least, -least, 0.0, 0.5]
    many = np.resize(few, 400)
    assert np.array_equal(recipes.narrow_to_half(many), many.astype(np.float16))


def test_what_is_folded_a_channel_at_a_time_is_remembered():
    def folded(weight, scale):
        return np.array([weight[i] * np.sqrt(scale[i] + 2) for i in range(len(weight))]).astype(np.float32)

    one, two = np.abs(ONE[:, 0]).copy(), np.abs(TWO[:, 0]).copy()
    with recipes.patch_numpy(), recipes.remember_single_numbers():
        made = folded(traced(ONE.copy(), Leaf("w")), traced(one, Leaf("s")))
    assert list_leaves(recipe_of(made)) == ["w", "s"] and np.array_equal(np.asarray(made), folded(ONE, one))
    other = replay(recipe_of(made), {"v": TWO, "t": two}.__getitem__, ["v", "t"])
    assert np.array_equal(other, folded(TWO, two))
