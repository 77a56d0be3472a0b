"""Resizing, cropping and sampling of images."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

RNG = np.random.default_rng(13)
TWO = np.float32([0, 1]).reshape(1, 1, 2)
SIXTEEN = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)


def test_the_five_grids(execute, mil):
    """Points over two pixels, as the documentation of resize_bilinear lists them."""
    grids = {
        "UNALIGN_CORNERS": [0, 0.1, 0.5, 0.9, 1],
        "STRICT_ALIGN_CORNERS": [0, 0.25, 0.5, 0.75, 1],
        "ALIGN_CORNERS": [0, 0.25, 0.5, 0.75, 1],
        "DEFAULT": [0, 0.4, 0.8, 1, 1],
        "OFFSET_CORNERS": [0.1, 0.3, 0.5, 0.7, 0.9],
    }

    def body(x):
        mb = mil.mb
        made = [mb.resize_bilinear(x=x, target_size_height=1, target_size_width=5, sampling_mode=g) for g in grids]
        made += [mb.resize(x=x, shape=[1, 1, 5], resized_dims=np.uint32(2), sampling_mode=g) for g in grids]
        single = [mb.resize_bilinear(x=x, target_size_height=1, target_size_width=1, sampling_mode=g) for g in grids]
        return (*made, *single)

    found = execute({"x": TWO}, body)
    for one, exact in zip(found, list(grids.values()) * 2):
        np.testing.assert_allclose(one.reshape(-1), exact, atol=1e-6)
    assert [float(one.reshape(())) for one in found[10:]] == [0.5, 0, 0.5, 0, 0.5]


def test_bilinear_as_torch(execute, mil):
    x = RNG.standard_normal((2, 3, 10, 12)).astype(np.float32)
    cases = list(itertools.product([True, False], [(3, 4), (2.5, 2.0), (0.5, 0.75)]))

    def body(x):
        return tuple(
            mil.mb.upsample_bilinear(x=x, scale_factor_height=high, scale_factor_width=broad, align_corners=corners)
            for corners, (high, broad) in cases
        )

    for (corners, scales), found in zip(cases, execute({"x": x}, body)):
        how = {"mode": "bilinear", "align_corners": corners, "recompute_scale_factor": True}
        exact = F.interpolate(torch.from_numpy(x), scale_factor=scales, **how)
        np.testing.assert_allclose(found, exact, atol=1e-5)


def test_half_pixel_centres(execute, mil):
    x = np.float32([1, 2]).reshape(1, 1, 1, 2)
    given = {"scale_factor_height": 1, "scale_factor_width": 3, "align_corners": False, "half_pixel_centers": False}
    (found,) = execute({"x": x}, lambda x: mil.mb.upsample_bilinear(x=x, **given))
    np.testing.assert_allclose(found.reshape(-1), [1, 4 / 3, 5 / 3, 2, 2, 2], atol=1e-6)


def test_nearest(execute, mil):
    x = np.float32([1.5, -2.5, 3.5]).reshape(1, 1, 1, 3)
    tall = np.float32([-6, 9]).reshape(1, 1, 2, 1)

    def body(x, tall):
        mb = mil.mb
        return (
            mb.upsample_nearest_neighbor(x=x, scale_factor_height=3.17, scale_factor_width=0.67),
            mb.upsample_nearest_neighbor(x=x, scale_factor_height=2.0, scale_factor_width=1.12),
            mb.resize_nearest_neighbor(x=x, target_size_height=1, target_size_width=7),
            mb.resize(x=tall, shape=[3, 2], resized_dims=np.uint32(2), interpolation_mode="NEAREST_NEIGHBOR"),
            mb.resize_nearest_neighbor(x=tall, target_size_height=3, target_size_width=1),
        )

    exact = [np.tile(x[..., :2], (1, 1, 3, 1)), np.tile(x, (1, 1, 2, 1)), x[..., [0, 0, 0, 1, 1, 2, 2]]]
    exact += [np.float32([[-6, -6], [9, 9], [9, 9]])[None, None], np.float32([-6, -6, 9]).reshape(1, 1, 3, 1)]
    for one, true in zip(execute({"x": x, "tall": tall}, body), exact):
        np.testing.assert_array_equal(one, true)


def test_crops(execute, mil):
    def body(x):
        how = {"x": x, "sampling_mode": "ALIGN_CORNERS"}
        square = np.float32([1, 1, 2, 2]).reshape(1, 1, 4, 1, 1)
        third = np.float32([0, 0, 0, 1 / 3, 1 / 3]).reshape(1, 1, 5, 1, 1)
        mb = mil.mb
        return (
            mb.crop_resize(**how, roi=square, target_width=2, target_height=2),
            mb.crop_resize(**how, roi=square[:, :, [2, 3, 0, 1]], target_width=2, target_height=2),
            mb.crop_resize(**how, roi=square, target_width=1, target_height=1),
            mb.crop_resize(**how, roi=third, target_width=2, target_height=2, normalized_coordinates=True),
            mb.crop(x=x, crop_height=[0, 1], crop_width=[1, 1]),
        )

    exact = [[6, 7, 10, 11], [11, 10, 7, 6], [8.5], [1, 2, 5, 6], [2, 3, 6, 7, 10, 11]]
    for one, true in zip(execute({"x": SIXTEEN}, body, "iOS16"), exact):
        np.testing.assert_allclose(one.reshape(-1), true, atol=1e-5)


def test_boxes_beyond_the_image(execute, mil):
    boxes = np.float32([[0.1, 0.3, 1.3, 1.0], [0.5, 1.8, 1.0, 0.3], [0.0, 0.4, 0.6, 0.7]])

    def body(x):
        return mil.mb.crop_resize(
            x=x, boxes=boxes, box_indices=np.int32([0, 0, 0]), target_width=2, target_height=2,
            normalized_coordinates=True, sampling_mode="ALIGN_CORNERS", pad_value=np.float32(-1),
        )  # fmt: skip

    exact = [3.1, 5.2, -1, -1, -1, 7.9, -1, 13.9, 2.2, 3.1, 9.4, 10.3]
    np.testing.assert_allclose(execute({"x": SIXTEEN}, body)[0].reshape(-1), exact, atol=1e-4)


@pytest.mark.parametrize("order", ["CORNERS_WIDTH_FIRST", "CENTER_SIZE_HEIGHT_FIRST", "CENTER_SIZE_WIDTH_FIRST"])
def test_orders_of_a_box(execute, mil, order):
    top, left, bottom, right = 0.5, 1.0, 2.5, 2.0
    given = {
        "CORNERS_WIDTH_FIRST": [left, top, right, bottom],
        "CENTER_SIZE_HEIGHT_FIRST": [1.5, 1.5, 2, 1],
        "CENTER_SIZE_WIDTH_FIRST": [1.5, 1.5, 1, 2],
    }[order]

    def body(x):
        how = {"x": x, "box_indices": np.int32([0]), "target_height": 2, "target_width": 2}
        how["sampling_mode"] = "STRICT_ALIGN_CORNERS"
        plain = mil.mb.crop_resize(**how, boxes=np.float32([[top, left, bottom, right]]))
        return plain, mil.mb.crop_resize(**how, boxes=np.float32([given]), box_coordinate_mode=order)

    plain, other = execute({"x": SIXTEEN}, body)
    np.testing.assert_allclose(plain.reshape(-1), [4, 5, 12, 13], atol=1e-5)
    np.testing.assert_allclose(other, plain, atol=1e-5)


PADDINGS = {"constant": "zeros", "border": "border", "reflection": "reflection", "symmetric": "reflection"}


def test_resample_as_torch(execute, mil):
    """torch reflects at the outer pixels' centres with aligned corners (reflection), at their edges without (symmetric)."""
    x = RNG.standard_normal((2, 3, 5, 4)).astype(np.float32)
    at = RNG.uniform(-2.3, 2.3, (2, 6, 7, 2)).astype(np.float32)
    cases = [
        case
        for case in itertools.product(["bilinear", "nearest"], PADDINGS, [True, False])
        if case[1:] not in (("reflection", False), ("symmetric", True))
    ]

    def body(x, at):
        how = {"x": x, "coordinates": at, "padding_value": np.float32(0)}
        how["coordinates_mode"] = "normalized_minus_one_to_one"
        return tuple(
            mil.mb.resample(**how, sampling_mode=kind, padding_mode=padding, align_corners=corners)
            for kind, padding, corners in cases
        )

    for (kind, padding, corners), found in zip(cases, execute({"x": x, "at": at}, body)):
        exact = F.grid_sample(torch.from_numpy(x), torch.from_numpy(at), kind, PADDINGS[padding], corners)
        np.testing.assert_allclose(found, exact, atol=2e-5, err_msg=f"{kind} {padding} {corners}")


def test_resample_in_other_coordinates(execute, mil):
    x = RNG.standard_normal((1, 2, 5, 4)).astype(np.float32)
    at = RNG.uniform(-0.5, 4.5, (1, 6, 7, 2)).astype(np.float32)

    def body(x, at):
        how = {"x": x, "sampling_mode": "bilinear", "padding_mode": "constant", "padding_value": np.float32(3)}
        size = mil.mb.const(val=np.float32([3, 4]))
        shares = mil.mb.real_div(x=at, y=size)
        pixels = mil.mb.resample(**how, coordinates=at, coordinates_mode="unnormalized", align_corners=True)
        same = mil.mb.resample(**how, coordinates=shares, coordinates_mode="normalized_zero_to_one", align_corners=True)
        return pixels, same

    pixels, same = execute({"x": x, "at": at}, body)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 2), (1, 2)), constant_values=3)
    scaled = (at + 1) / np.float32([6, 7]) * 2 - 1
    exact = F.grid_sample(torch.from_numpy(padded), torch.from_numpy(scaled), align_corners=True)
    np.testing.assert_allclose(pixels, exact, atol=1e-4)
    np.testing.assert_allclose(same, pixels, atol=1e-4)


def test_affine_as_torch(execute, mil):
    x = RNG.standard_normal((2, 3, 5, 4)).astype(np.float32)
    matrix = RNG.standard_normal((2, 6)).astype(np.float32)

    def body(x, m):
        return mil.mb.affine(
            x=x, transform_matrix=m, output_height=6, output_width=3, sampling_mode="bilinear",
            padding_mode="constant", padding_value=np.float32(0), coordinates_mode="normalized_minus_one_to_one",
            align_corners=True,
        )  # fmt: skip

    grid = F.affine_grid(torch.from_numpy(matrix).reshape(2, 2, 3), [2, 3, 6, 3], align_corners=True)
    exact = F.grid_sample(torch.from_numpy(x), grid, align_corners=True)
    np.testing.assert_allclose(execute({"x": x, "m": matrix}, body)[0], exact, atol=1e-5)
