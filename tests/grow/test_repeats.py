"""Lists of blocks, and a module with fewer of them."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from ane_sweep.worker.grow import repeats  # noqa: E402
from ane_sweep.worker.grow.repeats import GrowthTrial, Repeat  # noqa: E402
from ane_sweep.worker.grow.sequence import Unlike  # noqa: E402


def lists(module: nn.Module) -> list[Repeat]:
    return list(repeats.find_lists(module, GrowthTrial()))


def linears(count: int, width: int = 4) -> list[nn.Module]:
    return [nn.Linear(width, width) for _ in range(count)]


def test_a_list_may_lie_among_other_layers():
    net = nn.Sequential(nn.Sequential(nn.Conv1d(1, 1, 1), *linears(9), nn.Flatten()))
    assert lists(net) == [Repeat("0", 9, 1, 1, 1)]
    with repeats.shorten_lists(net, lists(net), None):
        assert [type(one).__name__ for one in net[0]] == ["Conv1d", "Linear", "Linear", "Linear", "Flatten"]
    assert len(net[0]) == 11


def test_layers_may_come_in_turns():
    net = nn.Sequential(nn.Sequential(*(one for linear in linears(6) for one in (linear, nn.ReLU()))))
    assert lists(net) == [Repeat("0", 12)]


def test_blocks_of_other_shapes_are_no_list_and_neither_is_one_block_many_times():
    assert lists(nn.Sequential(nn.ModuleList([*linears(5), *linears(5, 8)]))) == []
    assert lists(nn.Sequential(nn.ModuleList(linears(1) * 9))) == []


def test_a_shortened_module_has_blocks_numbered_anew_and_is_left_as_it_was():
    class Block(nn.Linear):
        def __init__(self, number: int):
            super().__init__(4, 4)
            self.layer_idx = number

    net = nn.Module()
    net.blocks = nn.ModuleList(Block(number) for number in range(9))
    net.seen = {}
    (one,) = lists(net)
    with repeats.shorten_lists(net, [one], one):
        net.seen["once"] = 1
        assert [block.layer_idx for block in net.blocks] == [0, 1, 2, 3, 4]
        assert "blocks.4.weight" in dict(net.named_parameters())
        assert repeats.name_in_whole("blocks.4.weight", [one], one) == "blocks.8.weight"
    assert [block.layer_idx for block in net.blocks] == list(range(9)) and net.seen == {}


@pytest.mark.parametrize(("count", "period"), [(9, 1), (48, 1), (24, 2), (25, 2), (40, 3)])
def test_what_is_kept_and_what_is_put_in_make_all_blocks(count, period):
    one = Repeat("h", count, period)
    few, more = one.select_blocks(), one.select_blocks(True)
    assert few[-1] == more[-1] == count - 1 and few[:-1] == list(range(len(few) - 1))
    assert len(more) - len(few) == 2 * period and len(few) + one.count_copies() * period == count


def test_short_lists_are_not_worth_it():
    with pytest.raises(Unlike, match="short"):
        repeats.select_worthwhile([Repeat("h", 8)])
    both = [Repeat("e", 48), Repeat("d", 9)]
    assert repeats.select_worthwhile(both) == both
    assert repeats.select_worthwhile([Repeat("e", 12), Repeat("d", 6)]) == [Repeat("e", 12)]
