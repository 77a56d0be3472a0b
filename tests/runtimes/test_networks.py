"""Every family's network: fp32 programs compute what torch does, fp16 programs are no worse than torch's own half precision
would be with fp32 sums. Slow: two conversions a family; CI runs those marked so."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ane_sweep.bridge.kinds import KINDS
from tests.bench import families
from tests.bench._side import inputs_for

TINY = {option["name"]: option for option in families.tiny_options()}
CASES = [
    pytest.param(name, marks=[pytest.mark.slow, *([pytest.mark.ci] if name in ("tiny-gpt2", "tiny-bert") else [])])
    for name in TINY
]
PEAK_SHARE = 1e-4  # of an fp32 program's error
NOISE = 1.15  # two ways to order the same roundings differ by so much in their rms error


class HalfStorage(TorchDispatchMode):
    """Every op computes in fp32 and stores in half: what half precision with fp32 accumulation is, on any CPU."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        is_view = any(result.alias_info for result in function._schema.returns)
        return made if is_view else tree_map(self.rounded, made)

    @staticmethod
    def rounded(value):
        is_float = isinstance(value, torch.Tensor) and value.dtype == torch.float32
        return torch.ops.aten._to_copy(value.half(), dtype=torch.float32) if is_float else value


def module_of_torch(params, storage=None):
    """feeds -> outputs, by torch in fp32 or with half storage."""
    from ane_sweep.worker import models
    from ane_sweep.worker.models import weights

    family = models.get(params["model"]["family"])
    state = weights.make_random_state(params["model"], 0)
    if storage is not None:
        state = {name: storage.rounded(value) for name, value in state.items()}
    module = family.VARIANTS["original"](params["model"], state, params["seq_len"])
    ports = family.ports(params["model"], params["seq_len"])

    def run(feeds):
        values = [torch.from_numpy(feeds[port.name]) for port in ports.inputs]
        with torch.inference_mode(), storage or torch.no_grad():
            made = module(*values)
        return {port.name: value.float().numpy() for port, value in zip(ports.outputs, made)}

    return run


def program_of(params, compute, folder):
    """feeds -> outputs, by the converted program in the reference runtime."""
    from ane_sweep.worker.runtimes import reference
    from ane_sweep.worker.stages import convert

    folder.mkdir()
    convert.run({**params, "compute": compute, "target": "iOS18"}, {}, folder)
    return reference.load({}, {"program": folder}).predict


def errors(run, exact, inputs):
    """Largest and root mean square error over all inputs and outputs, each as a share of its output's peak."""
    off = []
    for feeds, true in zip(inputs, exact):
        found = run(feeds)
        off += [
            ((np.asarray(found[name], np.float64) - value) / np.abs(value).max()).reshape(-1)
            for name, value in true.items()
        ]
    every = np.concatenate(off)
    return float(np.abs(every).max()), float(np.sqrt((every**2).mean()))


@pytest.mark.parametrize("name", CASES)
def test_a_network_is_as_exact_as_torch(name, tmp_path):
    option = TINY[name]
    params = {
        "model": {key: option[key] for key in ("family", "task", "arch")},
        "weights": {"kind": "random", "digest": "random:0", "seed": 0},
        "seq_len": families.SEQ_LEN,
        "variant": "original",
    }
    count = (
        32 if option["task"] == "classifier" or KINDS[option["task"]].length == "architecture" else 1
    )  # two logits alone say little
    inputs = [inputs_for(params, seed) for seed in range(count)]
    torch_fp32 = module_of_torch(params)
    exact = [torch_fp32(feeds) for feeds in inputs]
    most, _ = errors(program_of(params, "fp32", tmp_path / "fp32"), exact, inputs)
    assert most <= PEAK_SHARE
    _, ours = errors(program_of(params, "fp16", tmp_path / "fp16"), exact, inputs)
    _, theirs = errors(module_of_torch(params, HalfStorage()), exact, inputs)
    print(f"{name}: fp32 {most:.1e} of the peak; fp16 rms {ours:.2e}, torch in half {theirs:.2e}")
    assert theirs > 1e-6, "half precision loses something, or it was not what ran"
    assert ours <= NOISE * theirs


def test_half_storage_rounds_after_each_op_and_sums_in_fp32():
    with HalfStorage():
        row = torch.ones(4096)
        row[0] = 2048
        assert float(row.sum()) == 6144  # 6143 rounded once; 2048 if the sum itself were in half
        assert float(torch.tensor(2048.0) + torch.tensor(1.0)) == 2048
