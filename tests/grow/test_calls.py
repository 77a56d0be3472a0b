"""Which lists of blocks repeat, by what a run without numbers calls: nets of strangers, and such as only look alike."""

import pytest

torch = pytest.importorskip("torch")

from ane_sweep.worker.grow import calls  # noqa: E402
from ane_sweep.worker.grow.repeats import GrowthTrial  # noqa: E402
from ane_sweep.worker.grow.sequence import Unlike  # noqa: E402
from tests.grow import strangers  # noqa: E402

BY_WEIGHTS = {
    "two_are_equal",
    "one_is_zero",
    "near_one",
    "norm_is_other",
    *strangers.READ,
}  # call the same; only their numbers differ (test_strangers.py)


def found(net):
    return calls.find_repeats(net, lambda: (torch.zeros(net.shape),), GrowthTrial())


def made(name: str):
    class Given(torch.nn.Module):
        def forward(self, x):
            return self.inner(x)

    net = Given()
    net.inner, net.shape = strangers.made(name), strangers.shape(name)
    return net.eval()


@pytest.mark.parametrize("name", strangers.GROWN)
def test_the_blocks_of_a_strangers_net_repeat(name):
    (one,) = found(made(name))
    assert one.period == {"turns": 2, "windowed": 2}.get(name, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in strangers.LIES if name not in BY_WEIGHTS])
def test_blocks_that_only_look_alike_are_told_apart(name):
    with pytest.raises(Unlike):
        found(made(name))


@pytest.mark.parametrize("name", sorted(BY_WEIGHTS))
def test_what_blocks_hold_is_no_call(name):
    assert found(made(name))


@pytest.mark.parametrize(
    ("name", "why"),
    [("writes", "changes inner.seen"), ("asks", "asks for the numbers"), ("by_number", "with fewer of them it cannot be run"),
     ("one_is_other", "blocks are not alike|relu"), ("scale", "the blocks of inner.blocks are not alike")],
)  # fmt: skip
def test_the_reason_says_what_is_in_the_way(name, why):
    with pytest.raises(Unlike, match=why):
        found(made(name))


def test_a_net_is_left_as_it_was():
    net = made("mlp")
    before = [id(one) for one in net.parameters()]
    found(net)
    assert [id(one) for one in net.parameters()] == before and len(net.inner.blocks) == strangers.DEPTH
