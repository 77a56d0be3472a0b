"""The algebra of reshapes and transposes, checked against numpy over random chains."""

from math import prod

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ane_sweep.fix.layout import channels_first
from ane_sweep.fix.views import MOST_AXES, AxisView

MANY = settings(max_examples=300, deadline=None)


def shapes_of(count):
    """Return a strategy of shapes with so many elements, of one to four axes."""

    def split(data):
        rest, sizes = count, []
        for cut in data:
            divisors = [size for size in range(1, rest + 1) if rest % size == 0]
            sizes.append(divisors[cut % len(divisors)])
            rest //= sizes[-1]
        return (*sizes, rest)

    return st.lists(st.integers(0, 20), max_size=3).map(split)


@st.composite
def chains(draw):
    """A view, and the source's numbers before and after it."""
    count = draw(st.sampled_from([1, 7, 12, 24, 30, 36]))
    shape = draw(shapes_of(count))
    source = made = np.arange(count).reshape(shape)
    view = AxisView.reshape(shape, shape)
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            shape = draw(shapes_of(count))
            step, made = AxisView.reshape(made.shape, shape), made.reshape(shape)
        else:
            perm = draw(st.permutations(range(made.ndim)))
            step, made = AxisView.transpose(made.shape, perm), made.transpose(perm)
        whole = view.then(step)
        assume(whole is not None)
        view = whole
    return view, source, made


def take(values, steps):
    for kind, given_ in steps:
        values = values.reshape(given_) if kind == "reshape" else values.transpose(given_)
    return values


@MANY
@given(chains())
def test_a_chain_is_its_view_and_the_inverse_leads_back(chain):
    view, source, made = chain
    assert (view.source, view.shape) == (source.shape, made.shape)
    back = view.inverse()
    for one, before, after in ((view, source, made), (back, made, source)):
        steps = one.steps
        if steps is None:
            assert len(one.atoms) > MOST_AXES
        else:
            np.testing.assert_array_equal(take(before, steps), after)
            assert len(steps) <= 3
    there_and_back = view.then(back)
    assert there_and_back.keeps_order and there_and_back.source == there_and_back.shape and back.inverse() == view
    assert view.keeps_order == np.array_equal(source.reshape(-1), made.reshape(-1))


@MANY
@given(chains(), st.data())
def test_a_broadcasting_operand_follows_the_view(chain, data):
    view, _, _ = chain
    shape = tuple(data.draw(st.sampled_from([1, size])) for size in view.shape)
    shape = shape[data.draw(st.integers(0, next((n for n, size in enumerate(shape) if size > 1), len(shape)))) :]
    way = view.for_operand(shape)
    if way is not None and way.steps is not None and view.steps is not None:
        operand = np.asarray(np.random.default_rng(0).random(shape))
        twin = np.broadcast_to(take(operand, way.steps), view.source)
        np.testing.assert_array_equal(take(twin, view.steps), np.broadcast_to(operand, view.shape))


@MANY
@given(chains(), st.integers(1, 5))
def test_an_axis_that_both_sides_have_is_found_and_can_be_resized(chain, size):
    view, source, made = chain
    for axis in range(made.ndim):
        place = view.axis_of(axis)
        if place is not None and view.steps is not None:
            np.testing.assert_array_equal(
                take(np.indices(source.shape)[place], view.steps), np.indices(made.shape)[axis]
            )
            other = view.resize(axis, size)
            assert other.shape[axis] == other.source[place] == size and prod(other.source) == prod(other.shape)
            assert view.resize(axis, made.shape[axis]) == view


@given(st.lists(st.integers(1, 4), min_size=2, max_size=6))
def test_channels_first_is_what_apple_asks_for(shape):
    view = channels_first(tuple(shape))
    values = np.arange(prod(shape)).reshape(shape)
    made = take(values, view.steps)
    if len(shape) == 4:
        np.testing.assert_array_equal(made, values.transpose(0, 3, 1, 2))
    else:
        batch = shape[0] if len(shape) > 2 else 1
        tokens = values.reshape(batch, -1, shape[-1])
        np.testing.assert_array_equal(made, tokens.transpose(0, 2, 1)[:, :, None])


def test_a_transpose_of_five_axes_is_avoided():
    view = AxisView.reshape((1, 32, 1, 64), (1, 1, 2, 16, 64)).then(
        AxisView.transpose((1, 1, 2, 16, 64), (0, 2, 1, 4, 3))
    )
    assert view.steps == [("reshape", (1, 2, 16, 64)), ("transpose", (0, 1, 3, 2)), ("reshape", (1, 2, 1, 64, 16))]
