"""Models that are brought, from the command line to the record: a file of 20 lines, an LSTM stack, an AutoModel, shapes that vary."""

import importlib.util

import pytest
from tiny import ONCE, RAN

from ane_sweep.__main__ import main
from ane_sweep.bridge.record import Status, read_records
from ane_sweep.report import as_markdown

NETS = '''
import torch
from torch import nn
from width import WIDTH


class Small(nn.Module):
    """Twenty lines, with an import of a file beside it."""

    def __init__(self, depth=3):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3 if n == 0 else WIDTH, WIDTH, 3, padding=1) for n in range(depth))
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, image):
        for conv in self.convs:
            image = torch.relu(conv(image))
        logits = self.head(image.mean((2, 3)))
        return {"logits": logits, "best": logits.argmax(-1)}


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 32, 2, batch_first=True)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        steps, (hidden, _) = self.lstm(x)
        return self.head(steps), hidden


def electra():
    from transformers import AutoModel, ElectraConfig

    return AutoModel.from_config(
        ElectraConfig(
            vocab_size=90, embedding_size=16, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=32, max_position_embeddings=32, attn_implementation="eager",
        )
    )


def unseeded():
    import numpy

    net = nn.Linear(4, 4)
    net.weight.data = torch.from_numpy(numpy.random.default_rng().random((4, 4), numpy.float32))
    return net


class Two(nn.Module):
    """The second output is a small rest of large numbers, of which fp16 keeps little."""

    def forward(self, x):
        return {"large": 900 * torch.relu(x), "rest": (900 + x) - 900}


class Deep(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Lacks(nn.Module):
    def forward(self, x):
        return torch.lgamma(x)
'''
IDS = "model.inputs={input_ids: {shape: [1,16], dtype: int64, range: [0,90]}, attention_mask: {shape: [1,16], dtype: int64, range: [1,2]}}"
QUICK = [
    "latency.samples=3",
    "latency.warmup=1",
    ONCE,
    "gate.wait_s=0",
    "gate.busy=1",
    "tracking.enabled=false",
    "runtime=reference",
]


@pytest.fixture
def swept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NETS)
    (tmp_path / "width.py").write_text("WIDTH = 32\n")

    def sweep(*words: str):
        code = main(["-m", "model=module", *QUICK, *words, f"out={tmp_path / 'out'}"])
        (run,) = (tmp_path / "out" / "runs").iterdir()
        return code, read_records(run)

    return sweep


@pytest.mark.slow
@pytest.mark.ci
def test_a_file_of_twenty_lines_is_swept_over_precision_chunks_and_units(swept):
    code, records = swept(
        "model.path=nets.py:Small", "model.inputs={image: [[1,3,16,16],[1,3,24,24]]}", "precision=fp16,int8_channel",
        "chunks=1,2", "compute_units=all,cpu_only", "variant=original",
    )  # fmt: skip
    assert code in RAN and len(records) == 8
    for record in records:
        assert record.status in (Status.OK, Status.DEGRADED), record.reason
        assert record.weights.kind == "own" and record.realised["texts"] == "seeded inputs"
        assert record.realised["chunks"] == record.cell["chunks"]
        assert record.value("psnr_db") > 30 and record.value("latency_1x3x24x24_median_ms") > 0
        assert set(record.realised["outputs"]) == {"logits", "best"} and set(record.realised["shapes"]) == {
            "default",
            "1x3x24x24",
        }
    conversions = {stage.key for record in records for stage in record.stages if stage.stage == "convert"}
    assert len(conversions) == 1


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["reference", "torch_eager"])
def test_an_lstm_stack_is_cut_and_keeps_its_outputs(swept, runtime):
    code, records = swept(
        "model.path=nets.py:Stack",
        "model.inputs={x: [1,12,16]}",
        f"runtime={runtime}",
        "precision=fp16,fp32",
        "chunks=1,2",
    )
    assert code in RAN
    for record in records:
        exact = runtime == "torch_eager" or record.cell["precision"] == "fp32"
        assert record.value("psnr_db") > (100 if exact else 55), record.reason
        assert set(record.realised["outputs"]) == {"output_0", "output_1"}


@pytest.mark.slow
def test_a_gate_looks_at_the_worst_of_two_outputs(swept):
    _, (record,) = swept("model.path=nets.py:Two", "model.inputs={x: [1,64]}", "precision.min_psnr_db=40")
    outputs = {name: found["psnr_db"] for name, found in record.realised["outputs"].items()}
    assert record.value("psnr_worst_db") == outputs["rest"] < 40 < 60 < record.value("psnr_db") < outputs["large"] + 10
    assert record.status is Status.DEGRADED and "PSNR of the worst output" in record.reason
    assert "PSNR dB, worst output" in as_markdown([record], notes=False)


@pytest.mark.slow
def test_an_automodel_that_no_family_serves_comes_through_the_door(swept):
    code, (record,) = swept("model.path=nets.py:electra", IDS)
    assert code in RAN and record.value("psnr_db") > 50
    assert set(record.realised["outputs"]) == {"last_hidden_state"} and "transformers" in record.realised["packages"]


VISION = """
import torch

lib = torch.library.Library("torchvision", "DEF")  # torchvision's own build may be another one than torch's
lib.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
lib.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def mobilenet():
    import torchvision

    return torchvision.models.mobilenet_v3_small()


def convnext():
    import timm

    return timm.create_model("convnext_atto")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("package", "name"), [("torchvision", "mobilenet"), ("timm", "convnext")])
def test_a_net_of_a_collection_comes_through_the_door(swept, tmp_path, package, name):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'ane-sweep[vision]'")
    (tmp_path / "vision.py").write_text(VISION)
    code, (record,) = swept(f"model.path=vision.py:{name}", "model.inputs={x: [1,3,64,64]}", "weights=random")
    assert code in RAN and record.value("psnr_db") > 45, record.reason
    assert package in record.realised["packages"]


@pytest.mark.slow
def test_a_record_says_how_many_blocks_were_grown(swept):
    _, records = swept(
        "model.path=nets.py:Deep", "model.inputs={x: [1,32]}", "variant=original", "+model.kwargs.depth=12"
    )
    assert [record.realised["grown_blocks"] for record in records] == [9]
    assert records[0].status in (Status.OK, Status.DEGRADED), records[0].reason


@pytest.mark.slow
def test_a_range_is_timed_at_its_ends_and_in_between(swept):
    code, (record,) = swept("model.path=nets.py:Small", "model.inputs={image: [1,3,16,8..24]}")
    assert code in RAN
    assert set(record.realised["shapes"]) == {"default", "1x3x16x8", "1x3x16x16"}
    assert all(figures["psnr_db"] > 40 for figures in record.realised["shapes"].values())


@pytest.mark.slow
def test_weights_that_no_seed_reaches_are_a_doubt(swept):
    code, (record,) = swept("model.path=nets.py:unseeded", "model.inputs={input: [1,4]}")
    assert code == 3 and record.status == Status.DEGRADED
    assert "makes other weights in each process" in record.reason


@pytest.mark.slow
def test_what_cannot_be_converted_is_a_record_that_says_why_and_the_other_variant_is_refused(swept):
    code, records = swept(
        "model.path=nets.py:Lacks", "model.inputs={x: {shape: [1,4], range: [1,2]}}", "variant=original,split_einsum_v2"
    )
    failed, refused = records
    assert code == 1 and failed.status == Status.FAILED
    assert failed.reason.startswith(
        "convert: torch op 'lgamma' (nets.py line 54, in forward) has no conversion in coremltools"
    )
    assert refused.status == Status.REFUSED and "taken as it is: variant=original" in refused.reason
