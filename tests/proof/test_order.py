"""The cell that ranking names fastest, of nets that are converted here: some of `python -m tests.proof.order`."""

import pytest

pytest.importorskip("torch")

from tests.proof import order


@pytest.mark.slow
@pytest.mark.parametrize("net", ["tiny-bert", "turns", "wide_mlp"])
def test_the_cell_named_fastest_is_the_one_that_the_estimate_orders_first(net):
    found = order.find(net)
    assert found.is_right and found.named != found.by_cpu


def test_thirty_nets_and_more_are_to_be_ordered():
    assert len(order.nets()) == len(set(order.nets())) == 40
