"""Nets of the model surgeon's tips: what each pair computes."""

import numpy as np
import pytest
import torch

from ane_sweep.planner import config
from ane_sweep.worker import models
from ane_sweep.worker.models import weights

LENGTH = 32


def net(tip, followed):
    (cell,) = config.load(
        [f"model=surgery-{tip}", f"model.arch.followed={followed}", "model.arch.width=8", "weights=random"]
    ).cells
    option = cell.model_options
    family = models.get("surgery")
    made = family.VARIANTS["original"](option, weights.make_random_state(option, 0), LENGTH)
    return made, family.ports(option, LENGTH)


@pytest.fixture
def x():
    return torch.randn(1, 8, 1, LENGTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("count", [1, 7, LENGTH])
def test_padding_computes_what_cutting_off_does(x, count):
    cut, ports = net("padding", False)
    padded, padded_ports = net("padding", True)
    assert [port.dtype for port in ports.inputs] == ["float32", "int32"]
    assert [port.dtype for port in padded_ports.inputs] == ["float32", "float32"]
    with torch.no_grad():
        (a,), (b,) = cut(x, torch.tensor([count], dtype=torch.int32)), padded(x, torch.tensor([float(count)]))
    assert a.shape == ports.outputs[0].shape
    torch.testing.assert_close(a, b)


def test_only_the_followed_epsilon_is_a_number_in_fp16(x):
    assert np.float16(1e-12) == 0 and np.float16(1e-5) > 0
    with torch.no_grad():
        (small,), (held,) = net("epsilon", False)[0](x), net("epsilon", True)[0](x)
    assert torch.isfinite(small).all() and (small - held).abs().max() > 0.1


def test_argsort_puts_the_positions_in_the_order_of_the_first_channel(x):
    made, _ = net("argsort", False)
    with torch.no_grad():
        assert (made._tip(x, None)[0, 0, 0].diff() >= 0).all()
        assert torch.equal(net("argsort", True)[0]._tip(x, None), x.flip(3))
