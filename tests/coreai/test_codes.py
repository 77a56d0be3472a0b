"""Weights compressed by coreai-opt in torch: both toolchains hold the same codes. Needs the extra `coreai`."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from ane_sweep.__main__ import main
from ane_sweep.bridge import building, recipes, record
from ane_sweep.errors import StageError
from ane_sweep.machine import coreai
from ane_sweep.stats import psnr
from ane_sweep.worker.compress import torch_weights
from ane_sweep.worker.models._ports import Port, Ports
from ane_sweep.worker.params import ConvertParams, Model
from ane_sweep.worker.programs import ConversionJob, part
from ane_sweep.worker.runtimes import reference

if reason := coreai.find_missing(("coreai", "coreai_opt", "coreai_torch")):
    pytest.skip(reason, allow_module_level=True)

IDS = np.array([[3, 1, 4, 1]], np.int32)
PORTS = Ports((Port("ids", (1, 4), "int32"),), (Port("scores", (1, 4, 96), "float32"),))
FLOATS = 1e-5  # fp32's rounding over sums of 128 terms


class Tied(nn.Module):
    """A lookup whose weight is the head's too, GPT-2's Conv1D, a convolution, and a weight under min_elements."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.table, self.head = nn.Embedding(96, 64), nn.Linear(64, 96, bias=False)
        self.head.weight = self.table.weight
        self.wide, self.conv, self.small = Conv1D(128, 64), nn.Conv1d(128, 64, 1), nn.Linear(4, 4)

    def forward(self, ids):
        x = self.wide(self.table(ids)).relu()
        x = self.conv(x.transpose(1, 2)).transpose(1, 2)
        return (self.head(x + self.small(x[..., :4]).mean()),)


def compress(kind, weights):
    return torch_weights.compress(Tied().eval(), PORTS, recipes.canonical(weights), kind)


def run(folder, kind, weights, compute="fp32"):
    """Return (what torch computes with the codes, what the program computes)."""
    done = compress(kind, weights)
    with torch.no_grad():
        fake = done.module(torch.from_numpy(IDS))[0].numpy()
    settings = ConvertParams(
        model=Model(task="tensors"), target="iOS18", compute=compute, recipe=recipes.canonical(weights)
    )
    job = ConversionJob(done.module, PORTS, {}, settings, building.Options())
    name = "model.mlpackage" if kind == "mlprogram" else "model.aimodel"
    part(kind, "convert").convert({"main": job}, folder / name)
    if kind == "coreai":
        runtime = part(kind, "run").load({}, {"program": folder})
    else:
        runtime = reference.load({"runtime": "reference", "numerics": compute}, {"program": folder})
    return fake, runtime.predict({"ids": IDS})["scores"]


RECIPES = [
    {"kind": "linear", "bits": 8},
    {"kind": "linear", "bits": 8, "granularity": "per_tensor"},
    {"kind": "linear", "bits": 8, "mode": "asymmetric"},
    {"kind": "linear", "bits": 4, "granularity": "per_block"},
    {"kind": "palettized", "bits": 4},
    {"kind": "palettized", "bits": 6, "granularity": "per_grouped_channel", "group_size": 16},
    {"kind": "palettized", "bits": 2, "per_channel_scale": True},
    {"kind": "sparse", "sparsity": 0.5},
]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("weights", RECIPES, ids=lambda w: "-".join(str(v) for v in w.values()))
def test_both_toolchains_compute_with_the_same_codes(tmp_path, weights):
    made: dict[str, np.ndarray] = {}
    for kind in ("mlprogram", "coreai"):
        (folder := tmp_path / kind).mkdir()
        fake, made[kind] = run(folder, kind, weights)
        assert np.abs(made[kind] - fake).max() < FLOATS * np.abs(fake).max()
    np.testing.assert_allclose(made["mlprogram"], made["coreai"], atol=2 * FLOATS * np.abs(fake).max())
    with torch.no_grad():
        dense = Tied().eval()(torch.from_numpy(IDS))[0].numpy()
    assert 5 < psnr.psnr_db(reference=dense, candidate=made["coreai"]) < 80, "the weights are those of the recipe"


def test_narrow_floats_reach_an_asset_in_fp16_as_codes(tmp_path):
    fake, made = run(tmp_path, "coreai", {"kind": "float", "bits": 8}, compute="fp16")
    assert psnr.psnr_db(reference=fake, candidate=made) > 45
    size = part("coreai", "size").measure_bytes(tmp_path / "model.aimodel")
    assert size < 96 * 64 * 2 + 2 * 64 * 128 * 2, "smaller than its weights in fp16"


def test_a_tied_weight_is_one_weight_and_what_is_small_stays():
    done = compress("mlprogram", {"kind": "linear", "bits": 8})
    numbers = 96 * 64 + 64 * 128 + 128 + 64 * 128 + 64 + 16 + 4
    assert (done.weights, done.numbers, done.doubts) == (3, numbers, [])
    assert done.module.head.weight is done.module.table.weight
    codes = {name for name in done.module.state_dict() if "_COREML_/weight/quantization_n_bits" in name}
    assert {name.partition(".")[0] for name in codes} == {"table", "head", "wide", "conv"}


def test_what_stays_uncompressed_is_told():
    module = nn.Sequential(nn.Embedding(96, 64), nn.Linear(64, 96, bias=False)).eval()
    done = torch_weights.compress(
        module,
        PORTS,
        recipes.canonical({"kind": "palettized", "granularity": "per_grouped_channel", "group_size": 7}),
        "coreai",
    )
    (doubt,) = done.doubts
    assert "compresses 0 of the 12,288 numbers" in doubt


def test_a_refusal_is_told_in_its_own_words():
    with pytest.raises(StageError, match="coreai-opt does not compress it: ValueError: FP4 quantization requires"):
        compress("coreai", {"kind": "float", "bits": 4, "granularity": "per_tensor"})


@pytest.mark.slow
def test_a_module_of_ones_own_is_compressed_without_a_false_doubt_and_takes_one_shape(tmp_path, monkeypatch, capsys):
    """The digest of its weights is taken before coreai-opt replaces them: narrow floats have none, and codes another."""
    (tmp_path / "net.py").write_text(
        "import torch\ntorch.manual_seed(0)\n\nclass Net(torch.nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(torch.nn.Conv2d(64, 64, 3), torch.nn.Flatten(), torch.nn.Linear(64, 64))\n"
    )
    monkeypatch.chdir(tmp_path)
    words = [
        "model=module",
        "model.path=net.py:Net",
        "toolchain=coreai",
        "latency=off",
        "tracking.enabled=false",
        "out=o",
    ]
    code = main(["-m", *words, "model.inputs={x: [1,64,3,3]}", "precision=int8_channel,fp8,fp4"])
    said = capsys.readouterr()
    assert "other weights in each process" not in said.out, said.out
    records = record.read_records(next((tmp_path / "o" / "runs").iterdir()))
    assert [one.status for one in records] == ["ok", "ok", "degraded"] and code == 3, said.out + said.err
    assert "not for fp4" in records[2].reason, "convolutions stay, and most of this net is one"
    assert main(["plan", *words, 'model.inputs={x: [1,64,"3..5",3]}']) == 2
    assert "is made for inputs of one shape" in capsys.readouterr().out
