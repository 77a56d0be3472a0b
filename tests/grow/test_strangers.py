"""Modules of a user's own, converted as `model=module` converts them: grown where their blocks repeat, the same bytes always."""

import pytest

pytest.importorskip("torch")

from tests.bench import growing
from tests.grow import strangers
from tests.grow.given import asked, nets  # noqa: F401  a fixture


@pytest.fixture
def both(nets):  # noqa: F811
    nets(strangers.__file__)

    def ways(name: str, compute: str = "fp16") -> growing.Found:
        params, inputs = asked({"name": name}, strangers.shape(name), compute)
        return growing.both_ways(params, inputs, always=False, again=True)

    return ways


@pytest.mark.slow
@pytest.mark.parametrize("compute", ["fp16", "fp32"])
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.ci] if one in ("convs", "turns") else []) for one in strangers.GROWN]
)
def test_a_strangers_net_is_grown_and_nothing_changes(both, name, compute):
    found = both(name, compute)
    assert found.equal and found.grown, found.why


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(one, marks=[pytest.mark.ci] if one in ("near_one", "one_is_zero", "norm_is_other") else [])
        for one in strangers.LIES
        if one != "counts"  # gives something else each time that it runs, grown or not
    ],
)
def test_a_net_whose_blocks_only_look_alike_is_converted_whole_and_says_why(both, name):
    found = both(name)
    assert found.equal and not found.grown and found.why
