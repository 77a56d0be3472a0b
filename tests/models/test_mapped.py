"""Tensors in mapped files are those in memory, number by number and stride by stride."""

import copy
import itertools
import pickle
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

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


class _Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(7, 6), nn.Linear(6, 7)
        self.head.weight = self.table.weight
        whole = torch.randn(4, 6)
        self.first, self.last = nn.Parameter(whole[:2]), nn.Parameter(whole[2:])
        self.register_buffer("mask", torch.ones(6, 6).tril_())
        self.block = torch.jit.script(nn.Sequential(nn.Linear(6, 6), nn.Tanh()))
        nn.init.orthogonal_(self.block[0].weight)

    def forward(self, ids):
        return self.head(self.block(self.table(ids)) @ self.mask + self.first.sum() * self.last[0])


def _fill(layer):
    layer.weight.fill_(3)
    layer.bias.zero_()


_BUILDERS = {
    "tied": _Tied,
    "lstm": lambda: nn.LSTM(6, 5, num_layers=2, bidirectional=True),
    "transformer": lambda: nn.TransformerEncoderLayer(8, 2, 16),
    "parametrized": lambda: torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3)),
    "copied": lambda: nn.Sequential(*[copy.deepcopy(nn.Linear(5, 5)) for _ in range(3)]),
    "halved": lambda: nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)).to(memory_format=torch.channels_last).half(),
    "of meta": lambda: nn.Linear(5, 5, device="meta").to_empty(device="cpu").requires_grad_(False).apply(_fill),
}  # fmt: skip


@pytest.mark.parametrize("build", _BUILDERS.values(), ids=_BUILDERS)
def test_a_module_that_is_built_in_files_is_the_one_built_in_memory(monkeypatch, build):
    """Its numbers, strides, types and ties, and what the random numbers are afterwards."""

    def look():
        torch.manual_seed(3)
        module = build().float()
        state = dict(module.state_dict(keep_vars=True))
        places = sorted(state, key=lambda name: (state[name].data_ptr(), name))
        ties = [state[a].data_ptr() == state[b].data_ptr() for a, b in itertools.combinations(sorted(state), 2)]
        looks = {
            n: (v.detach().numpy().tobytes(), v.shape, v.stride(), v.requires_grad, type(v)) for n, v in state.items()
        }
        return looks, ties, torch.rand(1), [state[name].data_ptr() in _mapped._FILES for name in places], module

    plain, plain_ties, drawn, in_files, _ = look()
    assert not any(in_files)
    monkeypatch.setattr(_mapped, "LARGE", 0)
    monkeypatch.setattr(_mapped, "_PART", 1)
    with _mapped.BuildInFiles():
        made, ties, again, in_files, module = look()
    assert any(in_files)
    assert (made, ties, again) == (plain, plain_ties, drawn)
    pickle.dumps(copy.deepcopy(module.state_dict()))


def test_pages_are_given_back_after_each_layer_and_the_numbers_stay(monkeypatch):
    monkeypatch.setattr(_mapped, "LARGE", 0)
    monkeypatch.setattr(_mapped, "_PART", 1)
    with _mapped.BuildInFiles():
        module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    x, given = torch.randn(2, 64), []
    before = module(x)
    monkeypatch.setattr(_mapped, "release_pages", lambda *_: given.append(1))
    with _mapped.releasing_pages(module):
        assert torch.equal(module(x), before)
    module(x)
    assert len(given) == 4  # two weights, two biases
    monkeypatch.undo()
    _mapped.release_pages()
    assert torch.equal(module(x), before)


@pytest.mark.slow
def test_a_package_of_tensors_in_files_is_that_of_tensors_in_memory(monkeypatch, tmp_path):
    params = growing.params(growing.Case("tiny-gpt2", "split_einsum", 11, {}))
    for large in (_mapped.LARGE, 0):
        monkeypatch.setattr(_mapped, "LARGE", large)
        (tmp_path / str(large)).mkdir()
        assert convert.run(params, {}, tmp_path / str(large)).facts["grown_blocks"]
    assert growing.same(*tmp_path.iterdir())
