"""Core AI's assets: converted, executed in its own CPU runtime, and what a cell of them becomes. Needs the extra `coreai`."""

import numpy as np
import pytest
import torch
from torch import nn

import ane_sweep
from ane_sweep.bridge import building
from ane_sweep.bridge.shapes import Input
from ane_sweep.errors import PackageError, StageError
from ane_sweep.machine import coreai
from ane_sweep.report import card, drift
from ane_sweep.stats import psnr
from ane_sweep.worker.models._ports import Port, Ports
from ane_sweep.worker.models.module import OwnModule
from ane_sweep.worker.params import ConvertParams, Model
from ane_sweep.worker.programs import ConversionJob, part

if reason := coreai.find_missing():
    pytest.skip(reason, allow_module_level=True)

QUIET = "weights=random seq_len=16 model.texts.count=2 latency=off tracking.enabled=false"


class Net(nn.Module):
    """A lookup, a norm and a linear layer, and a mask that is added."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.table, self.norm, self.head = nn.Embedding(50, 16), nn.LayerNorm(16), nn.Linear(16, 8)
        for value in self.norm.parameters():
            nn.init.normal_(value)

    def forward(self, ids, mask):
        return self.head(self.norm(self.table(ids))) + mask, ids * 2


PORTS = Ports(
    (Port("ids", (1, 4), "int32"), Port("mask", (1, 4, 8), "float32")),
    (Port("scores", (1, 4, 8), "float32"), Port("twice", (1, 4), "int32")),
)
VALUES = {"ids": np.array([[3, 1, 4, 1]], np.int32), "mask": np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 4, 8)}


def convert(folder, compute, module=None, ports=PORTS):
    settings = ConvertParams(model=Model(), target="iOS18", compute=compute)
    facts = part("coreai", "convert").convert(
        {"main": ConversionJob(module or Net().eval(), ports, {}, settings, building.Options())},
        folder / "model.aimodel",
    )
    return facts, part("coreai", "run").load({}, {"program": folder})


@pytest.mark.parametrize(("compute", "least"), [("fp32", 120), ("fp16", 45)])
def test_an_asset_computes_what_torch_computes(tmp_path, compute, least):
    facts, runtime = convert(tmp_path, compute)
    made = runtime.predict(VALUES)
    with torch.no_grad():
        scores, twice = Net().eval()(*(torch.from_numpy(value) for value in VALUES.values()))
    assert list(made) == ["scores", "twice"] and made["scores"].dtype == np.float32
    assert psnr.psnr_db(reference=scores.numpy(), candidate=made["scores"]) > least
    np.testing.assert_array_equal(made["twice"], twice.numpy())
    numbers = 50 * 16 + 2 * 16 + 16 * 8 + 8
    assert facts["numbers"] == numbers and facts["parameter_bytes"] == numbers * (2 if compute == "fp16" else 4)
    assert facts["ops"] > 3
    size = part("coreai", "size")
    asset = tmp_path / "model.aimodel"
    assert size.compute_bits_per_weight(asset, numbers) == 8 * size.measure_bytes(asset) / numbers


def test_wrong_inputs_are_told(tmp_path):
    _, runtime = convert(tmp_path, "fp32")
    with pytest.raises(PackageError, match="the asset takes ids, mask"):
        runtime.predict({"ids": VALUES["ids"]})
    with pytest.raises(StageError, match="Core AI's runtime: "):
        runtime.predict(VALUES | {"mask": np.zeros((1, 4, 7), np.float32)})


def test_what_cannot_be_exported_is_told_in_the_package_own_words(tmp_path):
    class Branch(nn.Module):
        def forward(self, x):
            return (x + 1 if x.sum() > 0 else x - 1,)

    port = (Port("x", (1, 4), "float32"),)
    with pytest.raises(StageError, match=r"coreai-torch does not convert it: \w+: .*(data-dependent|control flow)"):
        convert(tmp_path, "fp32", Branch(), Ports(port, port))
    assert not (tmp_path / "model.aimodel").exists()


def test_a_module_of_ones_own_in_fp16_is_fed_fp16(tmp_path):
    taken = (Input("x", "float32", None, ((1, 4),)),)
    module = OwnModule(nn.Linear(4, 3), taken, "net.py:Net").eval()
    ports = Ports((Port("x", (1, 4), "float32"),), (Port("output", (1, 3), "float32"),))
    x = np.ones((1, 4), np.float32)
    expected = module(torch.from_numpy(x))[0].detach().numpy()
    _, runtime = convert(tmp_path, "fp16", module, ports)
    np.testing.assert_allclose(runtime.predict({"x": x})["output"], expected, atol=5e-3)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return ane_sweep.sweep(f"model=tiny-gpt2 toolchain=coreml,coreai {QUIET} out={tmp_path_factory.mktemp('coreai')}")


@pytest.mark.slow
@pytest.mark.ci
def test_both_toolchains_are_cells_of_one_sweep(sweep):
    ours, theirs = sweep.records
    assert [one.status for one in (ours, theirs)] == ["ok", "ok"], theirs.reason
    assert theirs.realised["runtime"] == "coreai" and "coreai-torch 0.4.3" in theirs.realised["tools"]
    assert theirs.value("psnr_db") > 45 and ours.value("psnr_db") > 45
    assert not theirs.placement and ours.placement, "nothing predicts Core AI's placement"
    keys = {stage.stage: stage.key for stage in ours.stages}
    assert keys["reference"] == {stage.stage: stage.key for stage in theirs.stages}["reference"]
    assert keys["convert"] != {stage.stage: stage.key for stage in theirs.stages}["convert"]
    assert drift.worst_cell([theirs]) is None and drift.worst_cell([ours, theirs]) == 0
    text = card.to_markdown(card.describe_cell(theirs, ["model=tiny-gpt2", "toolchain=coreai"]))
    assert 'library_name: "coreai"' in text and "coreai-torch 0.4.3" in text and "iOS18" not in text


@pytest.mark.slow
@pytest.mark.ci
def test_an_asset_is_delivered_with_the_code_that_loads_it(sweep, tmp_path):
    (path,) = ane_sweep.get(f"{sweep.path.name}:toolchain=coreai", tmp_path / "asset", out=sweep.path.parent.parent)
    assert path.name == "model.aimodel" and (path / "main.mlirb").is_file()
    readme = (tmp_path / "asset" / "README.md").read_text()
    code = readme.partition("```python\n")[2].partition("```")[0].replace('"model.aimodel"', repr(str(path)))
    scope: dict[str, object] = {}
    exec(code, scope)
    runtime = part("coreai", "run").load({}, {"program": tmp_path / "asset"})
    values = {name: np.zeros((1, 16), np.int32) for name in runtime.inputs}
    made = scope["asyncio"].run(scope["predict"](values))
    assert made.keys() == runtime.predict(values).keys()
