"""Writes into a part of a tensor: what is converted computes what torch does, and what cannot be is refused with its line."""

import numpy as np
import pytest
import torch
from nets import computed, output

from ane_sweep.errors import StageError

X = torch.randn((2, 6, 16), generator=torch.Generator().manual_seed(0))
SQUARE = X[0, :, :6].contiguous()


def every_other(y, x):
    y[..., 0::2] = x[..., 1::2]


def rotary(y, x):
    y[..., 0::2], y[..., 1::2] = x[..., 1::2], -x[..., ::2]


def last_axis(y, x):
    y[..., 0] = x[..., 1]


def an_axis_between(y, x):
    y[0, ..., 2] = x[1, ..., 3]


def three_axes(y, x):
    y[:, 2:4, 1::3] = x[:, 0:2, 0:5]


def broadcast(y, x):
    y[:, 1:3] = x[0, 0]
    y[:, -2:] = x[:, :1]
    y[0, 1, 2] = 3
    y[1, 1] = x.sum()


def in_place(y, x):
    y[...] = x * 2
    y[:, :2].zero_()
    y[1].mul_(2)
    y[0, :, 3:5] = 7
    y[:, :, 0::2] += 1
    y[0].masked_fill_(y[0] > 0, 0.5)


def a_slice_of_a_slice(y, x):
    y[1:][::2] = 5
    y[:, 2][:, 3:5] = x[:, 0, :2]
    y[:, 1:][:, 1:, 4:][:, ::2] = -1


def listed(y, x):
    y[[0, 1], [2, 3]] = x[0, :2]
    y[0, [0, 2]] = x[1, :2]
    y[x > 1] = 0


def a_view_taken_before(y, x):
    view, half = y[0], y.chunk(2, 1)[1]
    y[:, 3:] = 1.0
    y += view.sum() + half.sum()


def a_view_written_to(y, x):
    view = y[0]
    view[:, 1] = 4
    part = view[2:]
    part[...] = x[0, 2:]
    part += 1
    y.mul_(part.sum())


WRITES = (
    every_other, rotary, last_axis, an_axis_between, three_axes, broadcast, in_place, a_slice_of_a_slice, listed, a_view_taken_before,
    a_view_written_to,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("target", ["iOS16", "iOS18"])
@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_is_what_torch_writes(tmp_path, write, target):
    def forward(x):
        y = x * 1.5
        write(y, x)
        return y + 1

    assert np.allclose(output(tmp_path, forward, X, target), forward(X).numpy(), atol=1e-6)


def test_an_axis_is_not_taken_for_another_of_its_size(tmp_path):
    """coremltools 9.0 wrote into rows here and said nothing."""

    def forward(x):
        y = x.clone()
        last_axis(y, x)
        return y

    assert np.allclose(output(tmp_path, forward, SQUARE), forward(SQUARE).numpy())


def transposed(y, x):
    y.transpose(1, 2)[:, 0] = 1


def flattened(y, x):
    y.reshape(2, -1)[:, 0] = 1


def halved(y, x):
    half, _ = y.split(3, 1)
    half.add_(1)


@pytest.mark.parametrize("write", [transposed, flattened, halved])
def test_a_write_through_another_view_is_refused_with_its_line(tmp_path, write):
    def forward(x):
        y = x.clone()
        write(y, x)
        return y

    line = rf"\(test_assignments.py line \d+, in {write.__name__}\)"
    with pytest.raises(
        StageError, match=rf"{line} writes into a view of a tensor that is used again; write to a slice"
    ):
        computed(tmp_path, forward, X)


def test_such_a_view_may_be_written_to_where_it_alone_is_used(tmp_path):
    def forward(x):
        y = x.clone().transpose(1, 2)
        y[:, 0] = 1
        z = (x * 2).transpose(1, 2).reshape(2, -1)  # a copy, as it must be
        z[:, 0] = 1
        return y.flatten(1) + z

    assert np.allclose(output(tmp_path, forward, X), forward(X).numpy(), atol=1e-6)


def test_a_list_beside_a_whole_axis_is_refused_with_its_line_and_a_way(tmp_path):
    def forward(x):
        y = x.clone()
        y[:, [0, 2]] = x[:, [1, 3]]
        return y

    with pytest.raises(
        StageError, match=r"'index_put_' \(test_assignments.py line \d+, in forward\).*write a slice at a time"
    ):
        computed(tmp_path, forward, X)
