"""PyTorch on the Mac's GPU, as far as Linux can tell: when it is refused, and that no model keeps a tensor behind on the CPU."""

import sys

import pytest

from ane_sweep.bridge.runtimes import cannot
from ane_sweep.errors import StageError, Unavailable
from ane_sweep.planner.options import names, shipped
from ane_sweep.planner.paths import conf_dir
from ane_sweep.worker import runtimes

TINY = [name for name in names([conf_dir()], "model") if name.startswith("tiny-")]
mps = runtimes.get("torch_mps")


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has it")
def test_it_needs_a_mac():
    assert cannot("torch_mps") == "needs a Mac with Apple silicon"
    with pytest.raises(Unavailable, match="this PyTorch has no MPS device"):
        mps.load({}, {})


def test_a_silent_fall_to_the_cpu_is_refused(monkeypatch):
    import torch

    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    with pytest.raises(StageError, match="ops may run on the CPU without a word; unset it"):
        mps.load({}, {})


def built(name: str, variant: str, device: str):
    from ane_sweep.bridge import building
    from ane_sweep.worker import models
    from ane_sweep.worker.models import weights

    option = shipped("model", name)
    family, model = models.get(option["family"]), {key: option[key] for key in ("family", "task", "arch")}
    state = weights.load_state({"kind": "random", "digest": "x", "allow_pickle": False, "seed": 0}, None, model)
    options = building.options({})
    return family.VARIANTS[variant](model, state, 16, options).to(device), family.ports(model, 16, options)


def whole_graph_moves(name: str, variant: str) -> None:
    """On the meta device every op checks that its tensors are there too: one left on the CPU raises, as on a GPU."""
    import torch

    module, ports = built(name, variant, "meta")
    with torch.inference_mode():
        made = module(*[torch.zeros(p.shape, dtype=getattr(torch, p.dtype), device="meta") for p in ports.inputs])
    assert [tuple(value.shape) for value in made] == [tuple(port.shape) for port in ports.outputs]
    assert {value.device.type for value in made} == {"meta"}


@pytest.mark.parametrize("variant", ["original", "split_einsum"])
@pytest.mark.parametrize("name", ["tiny-bloom", "tiny-distilbert"])
def test_models_go_to_another_device_as_a_whole(name, variant):
    whole_graph_moves(name, variant)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["original", "split_einsum"])
@pytest.mark.parametrize("name", [name for name in TINY if name not in ("tiny-bloom", "tiny-distilbert")])
def test_every_family_goes_to_another_device_as_a_whole(name, variant):
    whole_graph_moves(name, variant)


def test_the_same_module_answers_under_either_name():
    import numpy as np

    from ane_sweep.worker.runtimes import torch_eager

    runtime = torch_eager.TorchRuntime(*built("tiny-distilbert", "original", "cpu"), name="torch_mps", device="cpu")
    assert runtime.realised["runtime"] == "torch_mps"
    feeds = {"input_ids": np.ones((1, 16), np.int32), "attention_mask": np.ones((1, 16), np.float32)}
    assert runtime.predict(feeds)["logits"].shape == (1, 2)
