"""DistilBERT's split_einsum against Apple's own module, whose outputs on seeded weights lie beside this file."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ane_sweep.worker import models
from ane_sweep.worker.models import weights
from tests.proof.upstream import ane_transformers as apple

FIXTURE = Path(__file__).parent / "ane_transformers.npz"
# Apple's layer norm adds 1e-7 where the checkpoint's says 1e-12, for fp16's sake; the rest is fp32 in another order.
TOLERANCE = 1e-5


def ours(stored, variant: str) -> np.ndarray:
    state = {name.removeprefix("state/"): torch.from_numpy(stored[name]) for name in stored.files if "state/" in name}
    assert sorted(state) == sorted(weights.parameter_shapes(apple.model()))
    module = models.get("distilbert").VARIANTS[variant](apple.model(), state, apple.SEQ_LEN)
    pairs = zip(torch.from_numpy(stored["input_ids"]).int(), torch.from_numpy(stored["attention_mask"]), strict=True)
    with torch.no_grad():
        return np.concatenate([module(ids[None], mask[None])[0].numpy() for ids, mask in pairs])


@pytest.mark.parametrize("variant", ["original", "split_einsum"])
def test_ours_is_what_apples_module_computes(variant):
    with np.load(FIXTURE) as stored:
        expected = stored["logits"]
        assert expected.shape == (3, 3)
        assert np.abs(ours(stored, variant) - expected).max() < TOLERANCE * np.abs(expected).max()
        assert np.abs(np.diff(expected, axis=0)).max() > 0.1  # three different answers


def test_the_fixture_says_what_made_it():
    assert FIXTURE.stat().st_size < 1 << 20
    with np.load(FIXTURE) as stored:
        versions = json.loads(str(stored["versions"]))
        assert versions["ane_transformers"] == "0.1.3" and versions["transformers"] == "4.30.2" and versions["torch"]
        assert np.abs(stored["hugging_face"] - stored["logits"]).max() < TOLERANCE * np.abs(stored["logits"]).max()
        for name, array in apple.inputs().items():  # the seed gives these very weights still
            assert np.array_equal(stored[name], array), name


@pytest.mark.slow
def test_apples_module_gives_the_fixture_again(tmp_path):
    """Needs a package index: makes an environment of its own."""
    apple.make(tmp_path / "again.npz")
    with np.load(FIXTURE) as stored, np.load(tmp_path / "again.npz") as again:
        assert sorted(stored.files) == sorted(again.files)
        assert np.abs(stored["logits"] - again["logits"]).max() < TOLERANCE * np.abs(stored["logits"]).max()
