"""Shapes that are only known while the program runs."""

import numpy as np
import pytest

from ane_sweep import reference
from ane_sweep.errors import PackageError

RNG = np.random.default_rng(7)


def load(mil, tmp_path, body, shape, target="iOS18", dtype=np.float32):
    example = np.zeros([2] * len(shape.shapes[0].shape if hasattr(shape, "shapes") else shape), dtype)
    path = mil.write(tmp_path / "m.mlpackage", {"x": example}, body, target, flexible={"x": shape})
    return reference.load(path)


def test_everything_that_asks_for_a_shape(mil, tmp_path):
    ct = mil.ct
    weight = RNG.standard_normal((6, 4)).astype(np.float32)

    def body(x):  # (n, 4)
        mb = mil.mb
        size = mb.shape(x=x)
        rows = mb.gather(x=size, indices=np.int32([0]), axis=0)
        return (
            mb.reshape(x=x, shape=mb.concat(values=(rows, np.int32([2, 2])), axis=0)),
            mb.reshape(x=x, shape=[2, -1]),
            mb.expand_dims(x=x, axes=[0, 2]),
            mb.squeeze(x=mb.expand_dims(x=x, axes=[1]), axes=[1]),
            mb.flatten2d(x=mb.expand_dims(x=x, axes=[0]), axis=2),
            mb.fill(shape=size, value=np.float32(3)),
            mb.tile(x=x, reps=mb.concat(values=(rows, np.int32([1])), axis=0)),
            mb.slice_by_index(x=x, begin=[0, 1], end=mb.concat(values=(rows, np.int32([3])), axis=0)),
            mb.range_1d(start=np.int32(0), end=mb.squeeze(x=rows), step=np.int32(1)),
            mb.linear(x=x, weight=weight),
            mb.layer_norm(x=x, axes=[0]),
            mb.softmax(x=mb.matmul(x=x, y=x, transpose_y=True), axis=-1),
            mb.pad(x=x, pad=[0, 1, 2, 0]),
            mb.concat(values=(x, x), axis=0),
            mb.split(x=x, num_splits=2, axis=0)[1],
        )

    model = load(mil, tmp_path, body, (ct.RangeDim(2, 10, 4), 4))
    for n in (2, 4, 10):
        x = RNG.standard_normal((n, 4)).astype(np.float32)
        found = list(model.predict({"x": x}).values())
        exps = np.exp(x @ x.T - (x @ x.T).max(-1, keepdims=True))
        exact = [
            x.reshape(n, 2, 2), x.reshape(2, -1), x[None, :, None], x, x, np.full((n, 4), 3.0), np.tile(x, (n, 1)),
            x[:, 1:3], np.arange(n), x @ weight.T, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5),
            exps / exps.sum(-1, keepdims=True), np.pad(x, ((0, 1), (2, 0))), np.concatenate([x, x]),
            x[n // 2 :],
        ]  # fmt: skip
        for index, (one, true) in enumerate(zip(found, exact)):
            assert one.shape == true.shape, index
            np.testing.assert_allclose(one, true, rtol=1e-4, atol=1e-5, err_msg=str(index))


def test_images_of_any_size(mil, tmp_path):
    torch = pytest.importorskip("torch")
    ct = mil.ct
    weight = RNG.standard_normal((3, 2, 3, 3)).astype(np.float32)
    back = RNG.standard_normal((2, 3, 2, 2)).astype(np.float32)

    def body(x):
        mb = mil.mb
        return (
            mb.conv(x=x, weight=weight, pad_type="same", strides=[2, 2]),
            mb.conv_transpose(x=x, weight=back, strides=[2, 2]),
            mb.max_pool(x=x, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid"),
            mb.upsample_bilinear(x=x, scale_factor_height=2, scale_factor_width=2, align_corners=False),
            mb.upsample_nearest_neighbor(x=x, scale_factor_height=3, scale_factor_width=2),
            mb.reduce_mean(x=x, axes=[2, 3], keep_dims=True),
        )

    model = load(mil, tmp_path, body, (1, 2, ct.RangeDim(4, 9, 6), ct.RangeDim(4, 9, 8)))
    for size in ((4, 4), (6, 9)):
        x = RNG.standard_normal((1, 2, *size)).astype(np.float32)
        t, F = torch.from_numpy(x), torch.nn.functional
        exact = [
            F.conv2d(F.pad(t, _same(size)), torch.from_numpy(weight), stride=2),
            F.conv_transpose2d(t, torch.from_numpy(back), stride=2),
            F.max_pool2d(t, 2),
            F.interpolate(t, scale_factor=2, mode="bilinear"),
            t.repeat_interleave(3, 2).repeat_interleave(2, 3),
            t.mean((2, 3), keepdim=True),
        ]
        for one, true in zip(model.predict({"x": x}).values(), exact):
            np.testing.assert_allclose(one, true, rtol=1e-4, atol=1e-5)


def _same(size):
    sides = [max(0, (-(-length // 2) - 1) * 2 + 3 - length) for length in reversed(size)]
    return [side for total in sides for side in (total // 2, total - total // 2)]


def test_what_depends_on_values(mil, tmp_path):
    def body(x):
        mb = mil.mb
        places = mb.non_zero(x=x)
        picked = mb.gather_nd(x=x, indices=places)
        return picked, mb.reduce_sum(x=picked, axes=[0], keep_dims=True), mb.shape(x=places)

    x = np.float32([[0, 2, 0], [3, 0, 4]])
    model = reference.load(mil.write(tmp_path / "m.mlpackage", {"x": x}, body))
    picked, total, size = model.predict({"x": x}).values()
    assert picked.tolist() == [2, 3, 4] and total.tolist() == [9] and size.tolist() == [3, 2]
    picked, _, size = model.predict({"x": x * 0}).values()
    assert picked.size == 0 and size.tolist() == [0, 2]


def test_the_range_is_kept_to(mil, tmp_path):
    model = load(mil, tmp_path, lambda x: mil.mb.exp(x=x), (mil.ct.RangeDim(3, 5, 4), 2))
    assert model.inputs["x"].ranges == ((3, 5), (2, 2))
    with pytest.raises(PackageError, match=r"Size \(99\) of dimension \(0\) is not in allowed range \(3\.\.5\)"):
        model.predict({"x": np.zeros((99, 2), np.float32)})


def test_the_enumerated_shapes_are_kept_to(mil, tmp_path):
    shapes = mil.ct.EnumeratedShapes(shapes=[(1, 3, 4), (1, 3, 8)])
    model = load(mil, tmp_path, lambda x: mil.mb.exp(x=x), shapes)
    assert next(iter(model.predict({"x": np.zeros((1, 3, 8), np.float32)}).values())).shape == (1, 3, 8)
    with pytest.raises(PackageError, match=r"Shape \(1 x 3 x 5\) was not in enumerated set of allowed shapes"):
        model.predict({"x": np.zeros((1, 3, 5), np.float32)})


def test_weights_that_are_computed(mil, tmp_path):
    """A builder that needs its weight is built at each run, with what the run made."""
    torch = pytest.importorskip("torch")
    x, w = RNG.standard_normal((1, 2, 5, 5)).astype(np.float32), RNG.standard_normal((3, 2, 3, 3)).astype(np.float32)
    path = mil.write(
        tmp_path / "m.mlpackage",
        {"x": x, "w": w},
        lambda x, w: mil.mb.conv(x=x, weight=mil.mb.mul(x=w, y=np.float32(2)), pad_type="valid"),
    )
    model = reference.load(path)
    for factor in (1, 3):
        found = next(iter(model.predict({"x": x, "w": factor * w}).values()))
        exact = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(2 * factor * w))
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)
