"""Weights that are there layer by layer change no bit of what a module says."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

from ane_sweep.worker.feeds import seeds
from ane_sweep.worker.models import _build, _lazy, _turns
from tests.bench import families

TINY = {option["name"]: option for option in families.tiny_options()}


def built(option: dict, lazy: bool):
    model = {key: option[key] for key in ("family", "task", "arch")}
    params = {"model": model, "weights": {"kind": "random", "seed": 5}, "seq_len": 16, "options": {}}
    module, ports = _build.build(params, {}, "original", lazy=lazy)
    draws = [np.random.default_rng(seed) for seed in range(5)]
    return module, [tuple(feed(port, draw) for port in ports().inputs) for draw in draws]


def feed(port, draw) -> torch.Tensor:
    ids = draw.integers(2, 50, port.shape) if port.dtype == "int32" else np.ones(port.shape)
    return torch.from_numpy((seeds.draw_values(port, draw) if port.seeded else ids).astype(port.dtype))


def alive() -> int:
    return sum(isinstance(one, _turns._Pass) for one in threading.enumerate())


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", TINY)
def test_every_family_says_the_same_bits_layer_by_layer(name):
    module, feeds = built(TINY[name], lazy=False)
    with torch.inference_mode():
        whole = [module(*feed) for feed in feeds]
    module, _ = built(TINY[name], lazy=True)
    for one, other in zip(whole, _turns.run_in_turns(module, feeds, large=0), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert all(isinstance(weight, _lazy.Lazy) for weight in module.parameters()), "all were made at once"
    assert alive() == 0


class Net(nn.Module):
    """Two layers of lazy weights, called in one way or another."""

    def __init__(self, how: str):
        super().__init__()
        self.how, self.most = how, 0
        state = _lazy.make_lazy_state(
            {"one.weight": (3, 3), "two.weight": (3, 3)}, lambda name: torch.eye(3) * len(name)
        )
        self.one, self.two = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.load_state_dict(state, assign=True)

    def forward(self, x):
        there = [not isinstance(layer.weight, _lazy.Lazy) for layer in (self.one, self.two)]
        if self.how == "fails":
            raise ValueError("this net cannot")
        if self.how == "forks" and x.sum() > 0:
            return (self.two(self.one(x)),)
        if self.how == "reaches in":
            return (x @ self.one.weight @ self.two.weight,)
        self.most = max(self.most, sum(there))
        return (self.one(self.two(x)),)


FEEDS = [(torch.full((1, 3), value),) for value in (-1.0, 2.0, 3.0)]


@pytest.mark.parametrize("how", ["plainly", "forks", "reaches in"])
def test_a_module_whose_layers_cannot_take_turns_has_all_its_weights(how):
    said = list(_turns.run_in_turns(Net(how), FEEDS, large=0))
    assert [one[0][0, 0].item() for one in said] == [-100.0, 200.0, 300.0]
    assert alive() == 0


def test_what_fails_says_its_own_error():
    with pytest.raises(ValueError, match="this net cannot"):
        list(_turns.run_in_turns(Net("fails"), FEEDS, large=0))
    assert alive() == 0


def test_small_weights_are_made_once_and_stay():
    net = Net("plainly")
    list(_turns.run_in_turns(net, FEEDS))
    assert net.most == 2 and not isinstance(net.one.weight, _lazy.Lazy)


def test_large_ones_are_never_there_before_their_layer_and_can_be_asked_for_again():
    net = Net("plainly")
    list(_turns.run_in_turns(net, FEEDS, large=0))
    assert net.most == 0 and isinstance(net.one.weight, _lazy.Lazy)
    assert next(iter(_turns.run_in_turns(net, FEEDS[:1], large=0)))[0][0, 0].item() == -100.0
