"""What the proof looks at: numbers that are read as a module is converted, and what two blocks have in common."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ane_sweep.worker.grow import proof, recipes, weights  # noqa: E402
from ane_sweep.worker.grow.recipes import Leaf, list_leaves, traced  # noqa: E402
from ane_sweep.worker.grow.repeats import Repeat  # noqa: E402
from ane_sweep.worker.grow.sequence import Growth, Item, Line, Rule, Unlike, grow_sequence  # noqa: E402

BLOCKS = Repeat("blocks", 9)
READINGS = {
    "a number": lambda w: float(w[0]), "a list": lambda w: w.tolist(), "a comparison": lambda w: bool((w > 1).any()),
    "two that are held against each other": lambda w: np.array_equal(w, np.ones(4)),
    "put into another": lambda w: np.zeros(4).__setitem__(0, w[0]),
}  # fmt: skip


def made(*values: float) -> proof.Differing:
    """Nine blocks that hold a number each."""
    net = torch.nn.Module()
    net.blocks = torch.nn.ModuleList(torch.nn.Module() for _ in range(9))
    for block, value in zip(net.blocks, [*values, *[0.5] * (9 - len(values))]):
        block.number = torch.nn.Parameter(torch.tensor([value, 2.0]))
    return proof.Differing(net, [BLOCKS])


@pytest.mark.parametrize("name", READINGS)
def test_what_is_read_is_observed_with_its_recipe(name):
    array = traced(np.arange(4, dtype=np.float32), Leaf("w"))
    READINGS[name](array)  # nobody looks
    with recipes.collect_recipes() as observed:
        READINGS[name](array)
    READINGS[name](array)
    assert observed and {leaf for one in observed for leaf in list_leaves(one)} == {"w"}


def test_what_is_only_looked_at_for_its_shape_is_not_observed():
    with recipes.collect_recipes() as observed:
        array = traced(np.arange(4, dtype=np.float32), Leaf("w"))
        assert np.size(array) == len(array) == array.shape[0] == 4
    assert observed == []


def test_observing_ends_with_an_error():
    with pytest.raises(ZeroDivisionError), recipes.collect_recipes():
        raise ZeroDivisionError
    with recipes.collect_recipes() as observed:
        recipes.observe(traced(np.zeros(2), Leaf("w")))
    assert observed == [Leaf("w")] and recipes._observed == []


def test_a_comparison_that_a_later_block_decides_otherwise_is_refused():
    compared = recipes.Recipe(np.greater, (Leaf("blocks.1.number"), 1.0))
    proof.check_observed([compared], made(0.5, 0.6, 0.7, 0.8))
    with pytest.raises(Unlike, match=r"blocks\.3\.number"):
        proof.check_observed([compared], made(0.5, 0.6, 0.7, 1.1))


def test_a_number_of_two_inner_blocks_is_refused():
    both = recipes.Recipe(np.array_equal, (Leaf("blocks.1.number"), Leaf("blocks.2.number")))
    with pytest.raises(Unlike, match="two blocks"):
        proof.check_apart([both], made(0.1, 0.2), BLOCKS)
    proof.check_apart(
        [recipes.Recipe(np.array_equal, (Leaf("blocks.0.number"), Leaf("blocks.2.number")))], made(0.1, 0.2), BLOCKS
    )


def test_zero_and_minus_zero_are_not_the_same():
    assert not made(*[0.0] * 9).names
    assert made(*[0.0] * 4, -0.0, *[0.0] * 4).names


def test_two_tensors_of_one_name_are_refused():
    with pytest.raises(Unlike, match="one name"):
        proof._refuse_one_name(["blocks.6.w", "blocks_6.w"])
    proof._refuse_one_name(["blocks.6.w", "blocks.7.w"])


@pytest.mark.parametrize(("value", "is_refused"), [(65510.0, True), (7e4, True), (np.nan, True), (65472.0, False)])
def test_numbers_that_fp16_only_just_holds_are_refused(value, is_refused):
    """65504 is what 65510 is rounded to, where coremltools leaves the op in fp32."""
    half = recipes.narrow_to_half(np.array([value, 1.0] * 200, np.float32))
    if is_refused:
        with pytest.raises(Unlike, match="beyond"):
            weights._refuse_special("w", half, half.view(np.uint8), half.view(np.uint8))
    else:
        weights._refuse_special("w", half, half.view(np.uint8), half.view(np.uint8))


def test_a_number_in_a_name_that_would_fall_under_zero_is_refused():
    falling = Growth((), [Rule(((Line(1, 0, -1),),), ())])
    assert [one.names for one in grow_sequence([Item("linear", ("linear_1",))], [falling], [1])] == [("linear_0",)]
    with pytest.raises(Unlike, match="under zero"):
        list(grow_sequence([Item("linear", ("linear_1",))], [falling], [2]))
