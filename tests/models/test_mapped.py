"""Tensors in mapped files are those in memory, number by number and stride by stride."""

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ane_sweep.worker.models import _mapped
from ane_sweep.worker.models._mapped import TensorFiles
from ane_sweep.worker.stages import convert
from tests.bench import growing


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(7, 5),
        torch.randn(7, 5).t(),
        torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        torch.randn(9, 3).half(),
        torch.arange(12).reshape(3, 4),
        torch.tensor([float("nan"), -0.0, float("inf")]),
        torch.tensor(2.5),
    ],
    ids=lambda tensor: f"{list(tensor.shape)} {tensor.dtype}".replace("torch.", ""),
)
def test_a_tensor_in_a_file_has_its_bits_and_strides(tmp_path, monkeypatch, tensor):
    monkeypatch.setattr(_mapped, "LARGE", 0)
    kept = TensorFiles(tmp_path).keep(tensor)
    assert kept.data_ptr() != tensor.data_ptr()
    assert (kept.shape, kept.stride(), kept.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
    assert kept.numpy().tobytes() == tensor.numpy().tobytes()
    assert not list(tmp_path.iterdir())  # the file has no name: nothing is left if the process is killed


def test_the_first_ones_gaps_repeats_and_empty_ones_stay_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(_mapped, "LARGE", 100)
    files = TensorFiles(tmp_path)
    first, gaps, repeats, empty = torch.ones(25), torch.ones(10, 4)[:, :2], torch.ones(1).expand(9), torch.ones(0, 3)
    assert files.keep(first) is first
    assert files.keep(gaps) is gaps and files.keep(repeats) is repeats and files.keep(empty) is empty


@given(st.lists(st.integers(0, 4), max_size=4), st.randoms(use_true_random=False))
def test_any_layout_keeps_its_numbers(shape, draw):
    """Permuted, cut, expanded, empty and scalar tensors, in a file or not."""
    tensor = torch.randn(*shape).permute(*draw.sample(range(len(shape)), len(shape))) if shape else torch.randn(())
    if tensor.ndim and draw.random() < 0.5:
        tensor = tensor[draw.randint(0, tensor.shape[0]) :: draw.randint(1, 2)]
    if draw.random() < 0.3:
        tensor = tensor.expand(2, *tensor.shape)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_mapped, "LARGE", 0)
        kept = TensorFiles(Path(folder)).keep(tensor)
    assert kept.stride() == tensor.stride() and torch.equal(kept, tensor)


def test_on_a_full_disk_a_tensor_stays_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(_mapped, "LARGE", 0)
    tensor = torch.ones(5)
    assert TensorFiles(tmp_path / "no folder").keep(tensor) is tensor


@pytest.mark.slow
def test_a_package_of_tensors_in_files_is_that_of_tensors_in_memory(monkeypatch, tmp_path):
    params = growing.params(growing.Case("tiny-gpt2", "split_einsum", 11, {}))
    for large in (_mapped.LARGE, 0):
        monkeypatch.setattr(_mapped, "LARGE", large)
        (tmp_path / str(large)).mkdir()
        assert convert.run(params, {}, tmp_path / str(large)).facts["grown_blocks"]
    assert growing.same(*tmp_path.iterdir())
