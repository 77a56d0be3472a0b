"""A sequence that goes on: from two short ones to the long one, names and reads with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ane_sweep.worker.grow.sequence import Item, Unlike, find_growth, grow_sequence

PER_BLOCK = 3


def net(blocks: int, first_number: int = 7, steps: int = 4, last: str = "norm") -> list[Item]:
    """A table, blocks of three ops whose numbers go on, a last op; all blocks read the table, and each the one before."""
    items = [Item("table", (f"op_{first_number + 2 * blocks}", "table"))]
    for block in range(blocks):
        at = len(items)
        number = first_number + steps * block
        items.append(Item("const", (f"op_{number}", f"h_{block}_weight"), ()))
        items.append(Item("mul", (f"op_{number + 1}", f"x_{number + 1}"), ((1, at - 1, 0), (1, at, 0))))
        items.append(Item("add", (f"op_{number + 2}", f"y_{number + 2}"), ((1, at + 1, 0), (1, 0, 0))))
    return [*items, Item(last, ("norm", "norm_0"), ((1, len(items) - 1, 0),))]


def grow(few: list[Item], more: list[Item], copies: int, count: int) -> list[Item]:
    found = find_growth(few, more, copies)
    return [Item(few[one.index].token, one.names, one.reads) for one in grow_sequence(few, [found], [count])]


@given(count=st.integers(0, 40), first=st.integers(0, 200), steps=st.integers(0, 9))
def test_what_is_grown_is_what_the_long_one_is(count, first, steps):
    made = grow(net(3, first, steps), net(5, first, steps), 2, count)
    assert made == net(3 + count, first, steps)


def test_a_block_that_counts_otherwise_is_not_grown():
    odd = net(5)
    odd[8] = Item("mul", ("op_99", "x_99"), odd[8].reads)
    with pytest.raises(Unlike, match="do not go on evenly"):
        grow(net(3), odd, 2, 4)


def test_a_block_that_does_something_else_is_not_grown():
    odd = net(5)
    odd[8] = Item("sub", odd[8].names, odd[8].reads)
    with pytest.raises(Unlike, match="no piece"):
        grow(net(3), odd, 2, 4)


def test_a_block_that_reads_something_else_is_not_grown():
    odd = net(5)
    odd[8] = Item("mul", odd[8].names, (odd[8].reads[0], (1, 1, 0)))
    with pytest.raises(Unlike):
        grow(net(3), odd, 2, 4)


def test_an_end_that_grows_with_depth_is_not_a_piece():
    with pytest.raises(Unlike, match="equal pieces"):
        grow(net(3), [*net(5), Item("add", ("op_1", "z_1"))], 2, 4)


@given(count=st.integers(0, 40), first=st.integers(0, 200))
def test_weights_may_lie_together_before_what_is_done_with_them(count, first):
    def apart(blocks: int) -> list[Item]:
        weights = [Item("const", (f"h_{block}_weight",)) for block in range(blocks)]
        products = [Item("mul", (f"x_{first + 2 * block}",), ((1, block, 0),)) for block in range(blocks)]
        return [*weights, Item("table", ("table",)), *products]

    assert grow(apart(3), apart(5), 2, count) == apart(3 + count)
