"""The ops that fit nowhere else: pooling in all its forms, transposed convolution, detection, chance, the odd shapes."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ane_sweep.errors import PackageError

RNG = np.random.default_rng(17)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_ceil_mode_as_torch(execute, mil, dimensions):
    x = RNG.standard_normal((1, 2, *(7, 6, 5)[:dimensions])).astype(np.float32)
    kernel, strides, pad = [3] * dimensions, [2] * dimensions, [1] * (2 * dimensions)
    up = dimensions < 3

    def body(x):
        how = {"x": x, "kernel_sizes": kernel, "strides": strides, "pad_type": "custom", "pad": pad, "ceil_mode": up}
        mb = mil.mb
        return mb.max_pool(**how), mb.avg_pool(**how), mb.avg_pool(**how, exclude_padding_from_average=True)

    largest = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[dimensions - 1]
    mean = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[dimensions - 1]
    t = torch.from_numpy(x)
    exact = [largest(t, 3, 2, 1, ceil_mode=up)]
    exact += [mean(t, 3, 2, 1, up, counted) for counted in (True, False)]
    for one, true in zip(execute({"x": x}, body), exact):
        np.testing.assert_allclose(one, true, atol=1e-5)


@pytest.mark.parametrize("kind", ["same", "same_lower", "valid"])
def test_pooling_with_padding(execute, mil, kind):
    x = RNG.standard_normal((1, 2, 7, 6)).astype(np.float32)
    how = {"kernel_sizes": [3, 2], "strides": [2, 2], "pad_type": kind}

    def body(x):
        return mil.mb.max_pool(x=x, **how), mil.mb.l2_pool(x=x, **how), mil.mb.avg_pool(x=x, **how)

    sides = []
    for size, length in zip((3, 2), (7, 6)):
        total = 0 if kind == "valid" else max(0, (-(-length // 2) - 1) * 2 + size - length)
        sides.append((total - total // 2, total // 2) if kind == "same_lower" else (total // 2, total - total // 2))
    padded = np.pad(x, ((0, 0), (0, 0), *sides))
    lowest = np.pad(x, ((0, 0), (0, 0), *sides), constant_values=-np.inf)
    exact = F.max_pool2d(torch.from_numpy(lowest), (3, 2), 2), F.avg_pool2d(torch.from_numpy(padded), (3, 2), 2)
    squares = F.avg_pool2d(torch.from_numpy(padded).square(), (3, 2), 2) * 6
    found = execute({"x": x}, body)
    np.testing.assert_allclose(found[0], exact[0], atol=1e-6)
    np.testing.assert_allclose(found[1], squares.sqrt(), atol=1e-5)
    np.testing.assert_allclose(found[2], exact[1], atol=1e-6)


@pytest.mark.parametrize(("groups", "strides", "dilations"), [(1, 1, 1), (2, 2, 1), (1, 2, 2), (2, 1, 2)])
def test_transposed_convolution(execute, mil, groups, strides, dilations):
    x = RNG.standard_normal((1, 4, 5, 4)).astype(np.float32)
    weight = RNG.standard_normal((4, 3, 3, 2)).astype(np.float32)
    bias = RNG.standard_normal(3 * groups).astype(np.float32)
    how = {"strides": [strides] * 2, "dilations": [dilations] * 2, "groups": groups}

    def body(x):
        mb = mil.mb
        return (
            mb.conv_transpose(x=x, weight=weight, bias=bias, **how),
            mb.conv_transpose(x=x, weight=weight, pad_type="custom", pad=[1, 0, 1, 1], **how),
            mb.conv_transpose(x=x, weight=weight, pad_type="same", **how),
        )

    full = F.conv_transpose2d(
        torch.from_numpy(x), torch.from_numpy(weight), None, strides, 0, 0, groups, dilations
    ).numpy()
    found = execute({"x": x}, body)
    np.testing.assert_allclose(found[0], full + bias[:, None, None], atol=1e-4)
    np.testing.assert_allclose(found[1], full[:, :, 1:, 1:-1], atol=1e-4)
    assert found[2].shape == (1, 3 * groups, 5 * strides, 4 * strides)
    rows = (full.shape[2] - 5 * strides) // 2 if full.shape[2] > 5 * strides else 0
    np.testing.assert_allclose(
        found[2][:, :, 0, 0], full[:, :, rows, max(0, full.shape[3] - 4 * strides) // 2], atol=1e-4
    )


@pytest.mark.parametrize("target", ["iOS16", "iOS17"])
@pytest.mark.parametrize("by_class", [False, True])
def test_boxes_that_overlap_a_better_one_go(execute, mil, by_class, target):
    """Since iOS17 without a threshold of scores or a count, and with the boxes last."""
    boxes = np.float32([[[0, 0, 4, 4], [0.5, 0, 4, 4], [10, 10, 2, 2], [0, 0.2, 4, 4], [30, 30, 1, 1]]])
    scores = np.float32([[[0.9, 0.1], [0.2, 0.8], [0.7, 0.1], [0.6, 0.1], [0.01, 0.02]]])
    is_old = target == "iOS16"
    given = {"boxes": boxes, "scores": scores}
    given = given if is_old else {name: value.transpose(0, 2, 1).copy() for name, value in given.items()}

    def body(boxes, scores):
        how = {"iou_threshold": np.float32(0.5), "max_boxes": 6, "per_class_suppression": by_class}
        if is_old:
            how["score_threshold"] = np.float32(0.1)
        return mil.mb.non_maximum_suppression(boxes=boxes, scores=scores, **how)

    kept = ([0, 1, 2] if by_class else [0, 2]) + ([] if is_old else [4])
    kept_boxes, kept_scores, places, *counts = execute(given, body, target)
    assert places.tolist() == [[*kept, *[-1] * (6 - len(kept))]]
    assert [count.tolist() for count in counts] == ([[len(kept)]] if is_old else [])
    if not is_old:
        kept_boxes, kept_scores = kept_boxes.transpose(0, 2, 1), kept_scores.transpose(0, 2, 1)
    np.testing.assert_array_equal(kept_boxes[0, : len(kept)], boxes[0, kept])
    np.testing.assert_array_equal(kept_scores[0, : len(kept)], scores[0, kept])
    assert not kept_boxes[0, len(kept) :].any()


def test_equal_values_keep_their_order(execute, mil):
    x = np.float32([[3, 1, 3, 2, 1]])

    def body(x):
        mb = mil.mb
        best, places = mb.topk(x=x, k=3, axis=-1)
        low, low_places = mb.topk(x=x, k=2, axis=1, ascending=True, sort=False)
        only = mb.topk(x=x, k=1, axis=1, return_indices=False)
        return best, places, low, low_places, only, mb.argsort(x=x), mb.argsort(x=x, ascending=True)

    found = [one.tolist()[0] for one in execute({"x": x}, body, "iOS16")]
    assert found == [[3, 3, 2], [0, 2, 3], [1, 1], [1, 4], [3], [0, 2, 3, 1, 4], [1, 4, 3, 0, 2]]


def test_sequences_and_blocks(execute, mil):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    y = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
    lengths = np.int32([2, 4])

    def body(x, y, lengths):
        mb = mil.mb
        batches = mb.space_to_batch(x=y, block_shape=[2, 2], paddings=[[2, 0], [0, 2]])
        return (
            mb.reverse_sequence(x=x, lengths=lengths, seq_axis=2, batch_axis=0),
            batches,
            mb.batch_to_space(x=batches, block_shape=[2, 2], crops=[[2, 0], [0, 2]]),
            mb.sliding_windows(x=x, axis=2, size=3, stride=1),
            mb.reshape_like(x=x, ref_tensors=(x, x), begins=(0, 1), ends=(1, 0), end_masks=(False, True)),
        )

    turned = x.copy()
    turned[0, :, :2], turned[1] = x[0, :, 1::-1], x[1, :, ::-1]
    found = execute({"x": x, "y": y, "lengths": lengths}, body)
    np.testing.assert_array_equal(found[0], turned)
    padded = np.pad(y, ((0, 0), (0, 0), (2, 0), (0, 2)))
    exact = np.concatenate([padded[:, :, i::2, j::2] for i in range(2) for j in range(2)])
    np.testing.assert_array_equal(found[1], exact)
    np.testing.assert_array_equal(found[2], y)
    np.testing.assert_array_equal(found[3], np.stack([x[:, :, i : i + 3] for i in range(2)], 2))
    np.testing.assert_array_equal(found[4], x)


def test_indices_that_must_be_in_range(execute, mil):
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    i = np.int32([2, 0])

    def body(x, i):
        mb = mil.mb
        return (
            mb.gather(x=x, indices=i, axis=0, validate_indices=True),
            mb.scatter(data=x, indices=i, updates=np.ones((2, 2), np.float32), mode="add", validate_indices=True),
        )

    gathered, scattered = execute({"x": x, "i": i}, body)
    np.testing.assert_array_equal(gathered, x[[2, 0]])
    np.testing.assert_array_equal(scattered, x + np.float32([[1], [0], [1]]))
    for bad in ([3, 0], [-1, 0]):  # one too large, and one that counts from the end
        with pytest.raises(PackageError, match="an index is out of range"):
            execute({"x": x, "i": np.int32(bad)}, body)


def test_scattering_one_place_twice(execute, mil):
    """In turn: mode mul with duplicates is where a first draft of another executor went wrong unnoticed."""
    x, i = np.float32([1, 2, 3]), np.int32([1, 1])
    updates = np.float32([5, 7])
    modes = {"add": 14, "sub": -10, "mul": 70, "div": 2 / 35, "max": 7, "min": 2, "update": 7}

    def body(x, i):
        return tuple(mil.mb.scatter(data=x, indices=i, updates=updates, mode=mode) for mode in modes)

    for one, exact in zip(execute({"x": x, "i": i}, body), modes.values()):
        np.testing.assert_allclose(one, [1, exact, 3], rtol=1e-6)


def test_chance(execute, mil):
    """Not bit-exact with anything; the distributions hold, and a seed repeats."""
    x = np.log(np.float32([[0.1, 0.2, 0.7]]))

    def body(x):
        mb, shape = mil.mb, [200, 100]
        return (
            mb.random_uniform(shape=shape, low=np.float32(-1), high=np.float32(3), seed=4),
            mb.random_normal(shape=shape, mean=np.float32(2), stddev=np.float32(3), seed=5),
            mb.random_bernoulli(shape=shape, prob=np.float32(0.3), seed=6),
            mb.random_categorical(x=x, size=20000, seed=7),
            mb.random_uniform(shape=shape, low=np.float32(0), high=np.float32(1), seed=-1),
        )

    first, second = execute({"x": x}, body), execute({"x": x}, body)
    for one, again in zip(first[:4], second):
        np.testing.assert_array_equal(one, again)
    assert (first[4] != second[4]).any()
    uniform, normal, bernoulli, categorical, _ = first
    assert uniform.min() >= -1 and uniform.max() < 3 and abs(uniform.mean() - 1) < 0.05
    assert abs(normal.mean() - 2) < 0.1 and abs(normal.std() - 3) < 0.1
    assert set(np.unique(bernoulli)) == {0, 1} and abs(bernoulli.mean() - 0.3) < 0.02
    assert abs((categorical == 2).mean() - 0.7) < 0.02


def test_local_response_norm_as_torch(execute, mil):
    x = RNG.standard_normal((2, 7, 3, 3)).astype(np.float32)
    how = {"alpha": np.float32(0.1), "beta": np.float32(0.75), "k": np.float32(2)}
    for size in (3, 4):
        (found,) = execute({"x": x}, lambda x, s=size: mil.mb.local_response_norm(x=x, size=s, **how))
        exact = F.local_response_norm(torch.from_numpy(x), size, 0.1, 0.75, 2)
        np.testing.assert_allclose(found, exact, rtol=1e-5)


def test_integers(execute, mil):
    """Negative values survive a cast to uint16: coremltools casts negative indices so and wants them back."""
    x, y = np.int32([7, -7, 9, -9]), np.int32([2, 2, -4, -4])

    def body(x, y):
        mb = mil.mb
        small = [mb.cast(x=x, dtype=kind) for kind in ("int8", "uint8", "int16", "uint16")]
        back = [mb.cast(x=value, dtype="int32") for value in small]
        return mb.floor_div(x=x, y=y), mb.mod(x=x, y=y), mb.cast(x=mb.cast(x=x, dtype="fp16"), dtype="int32"), *back

    found = execute({"x": x, "y": y}, body)
    exact = [x // y, x % y, x, x, x.astype(np.uint8), x, x]
    for one, true in zip(found, exact):
        np.testing.assert_array_equal(one, true)


@pytest.mark.parametrize("indices", [[-1, 0], [10, 0]])
def test_a_scatter_that_checks_nothing_leaves_out_what_lies_outside(mil, execute, indices):
    """coremltools' TestScatter.test_ios17_invalid_indices: it succeeds, and what comes out is not the wrapped sum."""
    data, updates = np.float32([[1, 2, 3], [4, 5, 6]]), np.float32([[5, 6, 7], [8, 9, 10]])

    def body(data, at):
        return mil.mb.scatter(data=data, indices=at, updates=updates, mode="add", validate_indices=False)

    (found,) = execute({"data": data, "at": np.int32(indices)}, body)
    assert found.tolist() == [[9, 11, 13], [4, 5, 6]]
