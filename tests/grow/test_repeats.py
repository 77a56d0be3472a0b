"""Which lists of blocks repeat, by what a run without numbers calls."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from ane_sweep.worker.grow import repeats  # noqa: E402
from ane_sweep.worker.grow.sequence import Unlike  # noqa: E402

EXAMPLE = (torch.zeros(1, 4),)


class Block(nn.Module):
    def __init__(self, scale: float = 1.0, shift: float = 0.0):
        super().__init__()
        self.inner, self.scale = nn.Linear(4, 4), scale
        self.register_buffer("shift", torch.full((4,), shift))

    def forward(self, x):
        return x + self.inner(x) * self.scale + self.shift


class Net(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks, self.seen = nn.ModuleList(blocks), {}
        self.mask = None

    def forward(self, x):
        if self.mask is None:
            self.mask = torch.ones(4)
        self.seen["last"] = x
        first = x
        for block in self.blocks:
            x = block(x) * first
        return x * self.mask


def found(*blocks):
    return repeats.found(Net(blocks), EXAMPLE)


def test_equal_blocks_repeat():
    assert found(*(Block() for _ in range(9))) == [repeats.Repeat("blocks", 9, 1)]


def test_the_first_and_the_last_may_be_others():
    assert found(Block(3.0), *(Block() for _ in range(7)), Block(2.0))[0].period == 1


def test_blocks_may_come_in_turns():
    assert found(*(Block(1.0 + i % 2) for i in range(12)))[0].period == 2


@pytest.mark.parametrize("odd", [Block(scale=2.0), Block(shift=1.0)])
def test_one_block_that_counts_otherwise_is_seen(odd):
    blocks = [Block() for _ in range(12)]
    blocks[7] = odd
    with pytest.raises(Unlike, match="not alike"):
        found(*blocks)


def test_blocks_that_share_a_part_are_told_apart():
    blocks = [Block() for _ in range(9)]
    for block in blocks:
        block.act = nn.Identity() if block is blocks[0] else blocks[0].act
    assert found(*blocks)[0].count == 9


def test_a_block_that_is_used_again_and_a_net_that_asks_for_numbers_are_refused():
    one = Block()
    with pytest.raises(Unlike):
        found(*[one] * 9)

    class Asks(Net):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else x

    with pytest.raises(Unlike, match="without numbers"):
        repeats.found(Asks([Block() for _ in range(9)]), EXAMPLE)


def test_a_net_is_left_as_it_was():
    net = Net(Block() for _ in range(9))
    weights = [id(one) for one in net.parameters()]
    repeats.found(net, EXAMPLE)
    assert net.mask is None and net.seen == {} and [id(one) for one in net.parameters()] == weights
    assert not net.blocks[0].inner._forward_pre_hooks
    with repeats.shortened(net, {"blocks": [0, 1, 8]}):
        assert len(net.blocks) == 3 and "blocks.2.inner.weight" in dict(net.named_parameters())
    assert len(net.blocks) == 9


@pytest.mark.parametrize(("count", "period"), [(9, 1), (48, 1), (24, 2), (25, 2), (40, 3)])
def test_what_is_kept_and_what_is_put_in_make_all_blocks(count, period):
    one = repeats.Repeat("h", count, period)
    few, more = one.kept(0), one.kept(2)
    assert few[-1] == more[-1] == count - 1 and few[:-1] == list(range(len(few) - 1))
    assert len(more) - len(few) == 2 * period and len(few) + one.copies() * period == count


def test_short_lists_are_not_worth_it():
    with pytest.raises(Unlike, match="short"):
        repeats.worthwhile([repeats.Repeat("h", 8, 1)])
    both = [repeats.Repeat("e", 48, 1), repeats.Repeat("d", 9, 1)]
    assert repeats.worthwhile(both) == both
    assert repeats.worthwhile([repeats.Repeat("e", 12, 1), repeats.Repeat("d", 6, 1)]) == [repeats.Repeat("e", 12, 1)]
