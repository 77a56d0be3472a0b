"""Ops that only move values: equal to numpy to the last bit."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

X = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)


def same(found: list, expected: list) -> None:
    assert len(found) == len(expected)
    for index, (one, exact) in enumerate(zip(found, expected)):
        assert one.shape == exact.shape, index
        np.testing.assert_array_equal(one, exact, err_msg=str(index))


def test_reshaping(execute, mil):
    def body(x):
        mb = mil.mb
        return (
            mb.reshape(x=x, shape=(4, -1)),
            mb.reshape(x=x, shape=(0, -1, 2)),
            mb.expand_dims(x=x, axes=[0, -1]),
            mb.squeeze(x=mb.expand_dims(x=x, axes=[1])),
            mb.flatten2d(x=x, axis=2),
            mb.transpose(x=x, perm=(2, 0, 1)),
            mb.reverse(x=x, axes=[0, 2]),
            mb.tile(x=x, reps=(1, 2, 3)),
        )

    expected = [X.reshape(4, 6), X.reshape(2, 6, 2), X[None, ..., None], X, X.reshape(6, 4)]
    expected += [X.transpose(2, 0, 1), X[::-1, :, ::-1], np.tile(X, (1, 2, 3))]
    same(execute({"x": X}, body), expected)


def test_joining_and_splitting(execute, mil):
    def body(x):
        mb = mil.mb
        negative = mb.mul(x=x, y=np.float32(-1))
        a, b = mb.split(x=x, num_splits=2, axis=2)
        c, d = mb.split(x=x, split_sizes=[1, 2], axis=1)
        joined = mb.concat(values=(x, negative), axis=1), mb.concat(values=(x, negative), axis=1, interleave=True)
        return (*joined, mb.stack(values=(x, negative), axis=1), a, b, c, d)

    woven = np.stack([X, -X], 2).reshape(2, 6, 4)
    parts = [*np.split(X, 2, 2), X[:, :1], X[:, 1:]]
    same(execute({"x": X}, body), [np.concatenate([X, -X], 1), woven, np.stack([X, -X], 1), *parts])


def test_padding_and_filling(execute, mil):
    def body(x):
        mb = mil.mb
        return (
            mb.pad(x=x, pad=[1, 0, 0, 2], constant_val=np.float32(9)),
            mb.pad(x=x, pad=[1, 2], mode="reflect"),
            mb.pad(x=x, pad=[1, 2, 2, 3], mode="replicate"),
            mb.fill(shape=(2, 3), value=np.float32(7)),
            mb.fill_like(ref_tensor=x, value=np.float32(7)),
            mb.shape(x=x),
            mb.range_1d(start=np.int32(1), end=np.int32(8), step=np.int32(3)),
            mb.band_part(x=x, lower=1, upper=0),
        )

    band = X * (np.tri(3, 4) - np.tri(3, 4, -2)).astype(np.float32)
    expected = [np.pad(X, ((0, 0), (1, 0), (0, 2)), constant_values=9), np.pad(X, ((0, 0), (0, 0), (1, 2)), "reflect")]
    expected += [np.pad(X, ((0, 0), (1, 2), (2, 3)), "edge"), np.full((2, 3), 7.0), np.full(X.shape, 7.0)]
    same(execute({"x": X}, body), [*expected, np.array([2, 3, 4]), np.array([1, 4, 7]), band])


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_slices(execute, mil, data):
    begin, end, stride, masks, index = [], [], [], [[], [], []], []
    for size in X.shape:
        step = data.draw(st.sampled_from([-2, -1, 1, 2]))
        first = data.draw(st.integers(0, size - 1))
        last = data.draw(st.integers(first + 1, size) if step > 0 else st.integers(-1, first - 1))
        no_begin, squeezed = data.draw(st.booleans()), data.draw(st.booleans())
        no_end = data.draw(st.booleans()) or last == -1
        begin.append(first)
        end.append(last)
        stride.append(step)
        for mask, value in zip(masks, (no_begin, no_end, squeezed)):
            mask.append(value)
        index.append(first if squeezed else slice(None if no_begin else first, None if no_end else last, step))
    keys = ("begin_mask", "end_mask", "squeeze_mask")

    def body(x):
        part = mil.mb.slice_by_index(x=x, begin=begin, end=end, stride=stride, **dict(zip(keys, masks)))
        return mil.mb.add(x=part, y=np.float32(0))

    exact = X[tuple(index)]
    found = execute({"x": X}, body)[0]
    np.testing.assert_array_equal(found.reshape(exact.shape), exact)


def test_slices_by_size_and_updates(execute, mil):
    update = -np.ones((1, 3, 2), np.float32)

    def body(x):
        part = mil.mb.slice_by_size(x=x, begin=[0, 1, 2], size=[2, -1, 1])
        return part, mil.mb.slice_update(x=x, update=update, begin=[1, 0, 1], end=[2, 3, 3])

    changed = X.copy()
    changed[1:2, 0:3, 1:3] = update
    same(execute({"x": X}, body), [X[0:2, 1:, 2:3], changed])


def test_blocks_to_space_and_back(execute, mil):
    x = np.arange(2 * 8 * 2 * 2, dtype=np.float32).reshape(2, 8, 2, 2)

    def body(x):
        mb = mil.mb
        wide, shuffled = mb.depth_to_space(x=x, block_size=2), mb.pixel_shuffle(x=x, upscale_factor=2)
        return (
            wide,
            shuffled,
            mb.space_to_depth(x=wide, block_size=2),
            mb.pixel_unshuffle(x=shuffled, downscale_factor=np.uint32(2)),
            mb.upsample_nearest_neighbor(x=x, scale_factor_height=2, scale_factor_width=1),
        )

    depth = x.reshape(2, 2, 2, 2, 2, 2).transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 4, 4)
    pixel = x.reshape(2, 2, 2, 2, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 4, 4)
    same(execute({"x": x}, body), [depth, pixel, x, x, x.repeat(2, 2)])


def test_gathering(execute, mil):
    i = np.array([[2, 0], [-1, 1]], np.int32)
    along = np.array([[[0, 1, 2, 0]], [[2, 1, 0, -1]]], np.int32)
    pairs = np.array([[0, 2], [1, -1]], np.int32)
    batched = np.array([[0, 2], [1, 1]], np.int32)

    def body(x, i):
        mb = mil.mb
        return (
            mb.gather(x=x, indices=i, axis=1),
            mb.gather(x=x, indices=np.int32(1), axis=-1),
            mb.gather(x=x, indices=batched, axis=1, batch_dims=1),
            mb.gather_along_axis(x=x, indices=along, axis=1),
            mb.gather_nd(x=x, indices=pairs),
            mb.gather_nd(x=x, indices=batched[..., None], batch_dims=1),
            mb.one_hot(indices=mb.reshape(x=i, shape=(4,)), one_hot_vector_size=3),
        )

    rows = np.stack([X[0][[0, 2]], X[1][[1, 1]]])
    picked = np.take_along_axis(X, np.where(along < 0, along + 3, along), 1)
    # -1 names no place of a one-hot vector
    hot = (i.reshape(4)[:, None] == np.arange(3)).astype(np.int32)
    same(execute({"x": X, "i": i}, body), [X[:, i], X[..., 1], rows, picked, X[[0, 1], [2, -1]], rows, hot])


def test_scattering(execute, mil):
    indices = np.array([2, 0], np.int32)
    updates = np.full((2, 2, 4), 10, np.float32)
    pairs = np.array([[0, 2], [1, 0]], np.int32)
    rows = np.full((2, 4), 10, np.float32)

    def body(x):
        mb = mil.mb
        made = [mb.scatter(data=x, indices=indices, updates=updates, axis=1, mode=m) for m in ("add", "update", "max")]
        made.append(mb.scatter_nd(data=x, indices=pairs, updates=rows, mode="mul"))
        made.append(mb.scatter_along_axis(data=x, indices=np.zeros((2, 1, 4), np.int32), updates=rows[:, None], axis=1))
        return tuple(made)

    added, replaced, largest, scaled, first = X.copy(), X.copy(), X.copy(), X.copy(), X.copy()
    added[:, [2, 0]] += 10
    replaced[:, [2, 0]] = 10
    largest[:, [2, 0]] = np.maximum(largest[:, [2, 0]], 10)
    scaled[[0, 1], [2, 0]] *= 10
    first[:, 0] += 10
    same(execute({"x": X}, body), [added, replaced, largest, scaled, first])
