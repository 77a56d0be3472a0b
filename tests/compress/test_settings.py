"""What a recipe says of each weight: patterns, sizes that do not divide, what is no weight."""

import numpy as np
import pytest

from ane_sweep.bridge import recipes
from ane_sweep.worker.compress.settings import Weight, resolve


def weight(name: str = "w", shape: tuple[int, ...] = (64, 48), kind: str = "linear", value=None) -> Weight:
    value = np.random.default_rng(0).normal(size=shape).astype(np.float16) if value is None else value
    return Weight(name, value, frozenset({kind}), frozenset({f"{name}_op"}), 1, 0)


def settled(weights: list[Weight], **recipe):
    return resolve(weights, recipes.canonical(recipe))


def test_skips_match_names_of_weights_and_names_and_types_of_ops():
    weights = [weight("a"), weight("b"), weight("c", kind="gather"), weight("d")]
    done = settled(weights, kind="linear", skip=["a", "b_*", "gather"])
    assert set(done.settings) == {"d"} and done.left == {"a": "skip: a", "b": "skip: b_*", "c": "skip: gather"}


def test_the_last_override_that_matches_holds():
    overrides = [{"match": "*", "bits": 2}, {"match": "b", "kind": "linear"}]
    done = settled([weight("a"), weight("b")], kind="palettized", overrides=overrides).settings
    assert (done["a"]["kind"], done["a"]["bits"], done["b"]["kind"], done["b"]["bits"]) == (
        "palettized", 2, "linear", 8,
    )  # fmt: skip


def test_an_override_that_matches_no_weight_is_said_once_and_one_that_matches_an_op_is_not():
    overrides = [{"match": pattern, "bits": 2} for pattern in ("*nowhere*", "a", "b_o?", "linear", "*nowhere*")]
    [doubt] = settled([weight("a"), weight("b")], kind="palettized", overrides=overrides).doubts
    assert doubt.startswith("precision.weights.overrides: *nowhere* matches no weight") and doubt.endswith("are a, b")


def test_blocks_and_groups_that_do_not_divide_give_way():
    done = settled([weight()], kind="linear", bits=4, granularity="per_block", block_size=32)
    assert (
        done.settings["w"]["granularity"] == "per_channel" and "blocks of 32 do not divide its 48" in done.adapted["w"]
    )
    done = settled([weight(shape=(60, 48)), weight("v")], kind="palettized", granularity="per_grouped_channel")
    assert [done.settings[name]["granularity"] for name in "wv"] == ["per_tensor", "per_grouped_channel"]
    assert list(done.adapted) == ["w"]


@pytest.mark.parametrize("other", [{"kind": "gather"}, {"shape": (64, 7)}])
def test_n_of_m_is_for_linear_and_conv_with_inputs_enough(other):
    assert settled([weight()], kind="sparse", sparsity="2:4").settings["w"]["sparsity"] == "2:4"
    assert settled([weight(**other)], kind="sparse", sparsity="1:4", min_elements=0).settings["w"]["sparsity"] == 0.25


def test_masks_infinities_and_small_weights_stay():
    mask = np.where(np.tri(64, dtype=bool), 0, -1e4).astype(np.float16)
    infinite = np.full((64, 64), np.inf, np.float16)
    infinite[0] = 1
    done = settled([weight("m", value=mask), weight("i", value=infinite), weight("s", (8, 8))], kind="linear")
    assert done.settings == {}
    assert done.left["m"] == "it is a mask of two values" and "not finite" in done.left["i"]
    assert done.left["s"] == "64 numbers are fewer than min_elements=2048"


def test_readers_that_disagree_on_the_channels():
    odd = Weight("w", np.ones((64, 64), np.float16), frozenset(), frozenset(), None, None)
    assert "disagree" in settled([odd], kind="linear").left["w"]
