"""What is quicker gives the same bits."""

import numpy as np
import pytest
import torch

from ane_sweep.mil.weights import ALIGNMENT, BlobFile, BlobWriter
from ane_sweep.worker.grow import recipes
from ane_sweep.worker.models import _lazy

LARGE = (260, 258)  # more numbers than recipes._LARGE


@pytest.mark.parametrize("turned", [False, True])
def test_a_large_tensor_is_narrowed_as_numpy_narrows_it(turned):
    bits = np.random.default_rng(0).integers(0, 2**32, LARGE, dtype=np.uint32)  # of every size, beyond fp16's range too
    value = bits.view(np.float32)
    value[np.isnan(value)] = 65519.0
    value = value.T if turned else value
    with np.errstate(over="ignore"):
        wanted = value.astype(np.float16)
    narrow = recipes.narrow_to_half(value)
    assert narrow.strides == wanted.strides
    assert np.array_equal(narrow.view(np.uint16), wanted.view(np.uint16))
    assert recipes.make_contiguous(narrow).flags.c_contiguous
    assert np.array_equal(recipes.make_contiguous(narrow).view(np.uint16), wanted.view(np.uint16))


def test_records_filled_out_of_order_are_the_file_written_in_order(tmp_path):
    payloads = [bytes([i]) * size for i, size in enumerate((2, 64, 130), 1)]
    with BlobWriter(tmp_path / "a.bin") as writer:
        for one in payloads:
            writer.add_pieces(3, len(one), 0, iter([one]))
    with BlobWriter(tmp_path / "b.bin") as writer:
        offsets = [writer.reserve(3, len(one), 0) for one in payloads]
        for offset, one in reversed(list(zip(offsets, payloads))):
            writer.fill(offset, [one[:1], one[1:]])
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes()
    assert bytes(BlobFile(tmp_path / "b.bin").payload(offsets[1])) == payloads[1]
    assert offsets[0] == ALIGNMENT


def test_a_source_keeps_few_tensors_and_reads_each_once_while_it_has_it(monkeypatch):
    read: list[str] = []
    monkeypatch.setattr(_lazy, "_BYTES", 8)

    def reading(name: str) -> torch.Tensor:
        read.append(name)
        return torch.ones(2)

    state = _lazy.make_lazy_state({"a": (2,), "b": (2,)}, reading)
    for name in "aabba":
        assert _lazy.materialise(state[name]).sum() == 2
    assert read == ["a", "b", "a"]  # two of them are more than may be kept
