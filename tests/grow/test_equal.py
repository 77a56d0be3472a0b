"""What is grown is, file for file and byte for byte, what converting all blocks writes. Some seconds a case."""

import pytest

from tests.bench import growing
from tests.bench.growing import Case

ALL = list(growing.cases())
CI = [Case("tiny-gpt2", "split_einsum", 11, {}, always=False)]
STATEFUL = Case("tiny-gpt2", "original", 4, {"cache": "stateful"})


def said(case: Case) -> str:
    return f"{case.model}-{case.variant}-{case.count}-{'-'.join(map(str, case.more.values()))}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [pytest.param(one, marks=[pytest.mark.ci] if one in CI else [], id=said(one)) for one in [*ALL, STATEFUL]]
)
def test_a_grown_package_is_the_package_of_all_blocks(case):
    found = growing.compare(case)
    assert found.equal
    assert found.grown or case.count < 4 or found.why


def test_the_cases_are_of_every_family_variant_depth_and_option():
    assert all(one in ALL for one in CI)
    kinds = {(one.model, one.variant) for one in ALL}
    assert {model for model, _ in kinds} == set(growing.options())
    for depth in growing.SMALL:
        assert {(one.model, one.variant) for one in ALL if one.count == depth and not one.more} >= {
            kind for kind in kinds if kind[0] != "tiny-gpt-neo" or depth % 2 == 0
        }
    asked = {name for one in ALL for name in one.more}
    assert asked >= {name for one in growing.OPTIONS for name in one}
