"""What is grown is, file for file and byte for byte, what converting all blocks writes. Some seconds a case."""

import pytest

from ane_sweep.bench import families, growing

TINY = {option["name"]: option for option in families.tiny_options()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variant"),
    [
        pytest.param(name, variant, marks=[pytest.mark.ci] if (name, variant) == ("tiny-gpt2", "split_einsum") else [])
        for name in TINY
        for variant in growing.known.variants(TINY[name]["family"])
    ],
)
def test_a_grown_package_is_the_package_of_all_blocks(name, variant, monkeypatch):
    monkeypatch.setenv("ANE_SWEEP_GROW", "1")
    same, grown, _ = growing.compare(TINY[name], variant, growing.depth(TINY[name]), {})
    assert same
    assert grown or (name, variant) == ("tiny-convnext", "split_einsum")  # its blocks lie in no list


@pytest.mark.slow
@pytest.mark.parametrize("count", range(2, 7))
def test_few_blocks_are_converted_as_they_are(count, monkeypatch):
    monkeypatch.setenv("ANE_SWEEP_GROW", "1")
    same, grown, _ = growing.compare(TINY["tiny-gpt2"], "original", count, {})
    assert same and not grown
