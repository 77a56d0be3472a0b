"""The reference runtime away from the CPU: on a pretended device, and on a GPU where there is one.

`ANE_SWEEP_TEST_DEVICE=cuda pytest tests/runtimes` runs this room's other tests on a GPU too (conftest.py).
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pretended import THERE, Far, Made, Pretended

from ane_sweep import reference
from ane_sweep.bridge.runtimes import cannot
from ane_sweep.errors import PackageError, Unavailable
from ane_sweep.machine import nvidia
from ane_sweep.reference import ane, cuda, numerics, sampling
from ane_sweep.reference.site import half_accumulates_wide
from ane_sweep.worker import runtimes
from ane_sweep.worker.runtimes.reference import ReferenceRuntime

X = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float16)
W = np.random.default_rng(1).standard_normal((48, 64)).astype(np.float16)
on_cuda = runtimes.get("reference_cuda")


@pytest.fixture
def away():
    with Pretended(), Made():
        yield


@pytest.fixture(scope="module")
def paths(mil, tmp_path_factory) -> list[Path]:
    """Two programs in a chain: products, a table, constants that are computed, a mask; then a state's worth of sums."""
    mb, folder = mil.mb, tmp_path_factory.mktemp("chain")

    def first(x):
        y = mb.gelu(x=mb.linear(x=x, weight=W), mode="EXACT")
        seen = mb.band_part(x=mb.fill(shape=(8, 8), value=np.float16(1)), lower=-1, upper=0)
        return mb.mul(
            x=mb.matmul(x=seen, y=y), y=mb.cast(x=mb.range_1d(start=0, end=48, step=1), dtype="fp16"), name="h"
        )

    def second(h):
        part = mb.gather(x=mb.softmax(x=h, axis=-1), indices=np.array([7, 0, 3], np.int32), axis=0)
        return mb.matmul(x=part, y=mb.transpose(x=h, perm=(1, 0)), name="y")

    return [
        mil.write(folder / "first.mlpackage", {"x": X}, first),
        mil.write(folder / "second.mlpackage", {"h": np.zeros((8, 48), np.float16)}, second),
    ]


def test_the_pretended_device_refuses_to_mix(away):
    there = torch.arange(3).to(THERE)
    assert isinstance(there, Far) and (there + 1).tolist() == [1, 2, 3]
    with pytest.raises(RuntimeError, match="on the device and on the CPU"):
        there + torch.arange(3)


@pytest.mark.parametrize("mode", ["fp16", "fp32", "ane"])
def test_a_chain_gives_the_same_bits_and_leaves_nothing_on_the_cpu(paths, mode, away):
    here, there = ReferenceRuntime(paths, mode), ReferenceRuntime(paths, mode, device="meta")
    assert "device" not in here.realised and there.realised["device"] == "meta"
    np.testing.assert_array_equal(there.predict({"x": X})["y"], here.predict({"x": X})["y"])
    first = there.models[0]
    values = [value for value in first.plan.start if value is not None]
    for made in first.plan.walk(first.prepare_inputs({"x": X}, None)):
        values += made.values.values()
    assert len(values) >= 6 and all(isinstance(value, Far) for value in values)


def test_it_does_not_matter_that_transformers_replaces_linspace_when_a_device_is_first_used(away, monkeypatch):
    known = torch.utils._device._device_constructors() - {torch.linspace}  # kept by torch from then on
    monkeypatch.setattr("torch.utils._device._device_constructors", lambda: known)
    x = torch.linspace(-5, 5, 20).reshape(1, 1, 4, 5)
    places = torch.tensor([[1.0, 0, 0, 0, 1, 0]])
    with cuda.use_device("meta"):
        table = ane.interpolate(x.to(THERE), "gelu", torch.nn.functional.gelu)
        sampled = sampling.affine(
            x.to(THERE), transform_matrix=places.to(THERE), output_height=4, output_width=5, dtype=torch.float32
        )
    assert isinstance(table, Far) and isinstance(sampled, Far)
    assert torch.equal(table.near, ane.interpolate(x, "gelu", torch.nn.functional.gelu))


def test_a_constant_that_stays_behind_is_found(paths, away, monkeypatch):
    monkeypatch.setattr(numerics.Mode, "constant", lambda self, tensor: tensor)
    with pytest.raises(PackageError, match="on the device and on the CPU"):
        reference.load(paths[0], device="meta").predict({"x": X})


@pytest.mark.slow
def test_every_op_runs_away_from_the_cpu():
    """This room's tests of ops, with everything on the pretended device."""
    files = sorted(set(Path(__file__).parent.glob("test_reference_*.py")) - {Path(__file__)})
    files = [str(file) for file in files if file.stem != "test_reference_graphs"]
    env = {**os.environ, "ANE_SWEEP_TEST_DEVICE": "meta"}
    done = subprocess.run([sys.executable, "-m", "pytest", *files], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_cuda_sums_in_fp32(monkeypatch):
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    narrow = ("allow_tf32", "allow_fp16_accumulation", "allow_fp16_reduced_precision_reduction")
    before = {name: getattr(matmul, name) for name in narrow}, cudnn.allow_tf32
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    try:
        for name in narrow:
            setattr(matmul, name, True)
        cuda.prepare()
        assert not any(getattr(matmul, name) for name in narrow) and not cudnn.allow_tf32
    finally:
        for name, value in before[0].items():
            setattr(matmul, name, value)
        cudnn.allow_tf32 = before[1]


def test_what_is_missing_is_said(monkeypatch, tmp_path):
    class Spec:
        origin = str(tmp_path / "torch" / "__init__.py")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: Spec)
    monkeypatch.setattr(nvidia, "gpus", lambda: ["NVIDIA H100"])
    assert cannot("reference_cuda") == "needs PyTorch's CUDA build, and the one installed has no CUDA"
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "lib" / "libtorch_cuda.so").touch()
    assert cannot("reference_cuda") is None
    monkeypatch.setattr(nvidia, "gpus", lambda: [])
    assert cannot("reference_cuda") == "needs an NVIDIA GPU, and nvidia-smi lists none"


def test_the_names_of_gpus_are_asked_of_the_driver(monkeypatch):
    monkeypatch.setattr("ane_sweep.machine.tools.text", lambda *command: "NVIDIA A\nNVIDIA B")
    assert nvidia.gpus.__wrapped__() == ["NVIDIA A", "NVIDIA B"]
    monkeypatch.setattr("ane_sweep.machine.tools.text", lambda *command: None)
    assert nvidia.gpus.__wrapped__() == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_without_a_gpu_loading_says_so(paths):
    with pytest.raises(Unavailable, match=r"finds no NVIDIA GPU .* `ane-sweep doctor` .* --device cpu"):
        reference.load(paths[0], device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("mode", ["fp16", "fp32", "ane"])
def test_a_gpu_agrees_with_the_cpu(paths, mode):
    here, there = ReferenceRuntime(paths, mode), ReferenceRuntime(paths, mode, device="cuda")
    assert half_accumulates_wide("cuda") and there.realised["device"] == torch.cuda.get_device_name()
    true, found = here.predict({"x": X})["y"], there.predict({"x": X})["y"]
    few_roundings = 8 * np.finfo(np.float32 if mode == "fp32" else np.float16).eps
    assert np.abs(true.astype(np.float64) - found).max() <= few_roundings * np.abs(true).max()
