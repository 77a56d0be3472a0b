"""What single authors published of sizes and weights: what the prediction makes of each (data/claims.csv)."""

import csv
from pathlib import Path

import pytest
from placement.by_hand import Writer

from ane_sweep.placement import chips, costs, gates, judge, legality, path
from ane_sweep.placement.sites import Site, Tensor
from tests.proof.placement.compiler_forms import Net

M4 = chips.get("m4")
CLAIMS = Path(legality.__file__).parent / "data" / "claims.csv"


def placed(sites):
    pairs = [
        (costs.estimate_ms(s, "cpu"), costs.estimate_ms(s, "ane") if "ane" in legality.judge(s, M4).supported else None)
        for s in sites
    ]
    return path.choose(pairs)[0]


def const(value):
    return Tensor("bool" if isinstance(value, bool) else "int32", (), const=True, value=value)


def encoder(layers, width, heads, tokens=64):
    """Of channels first and 1x1 convolutions, as the author's recipe asks; 24,576 results of 384 channels are 64 tokens."""
    net = Net()
    x = Tensor("fp16", (1, width, 1, tokens))

    def conv(x, channels):
        held = Tensor("fp16", (channels, x.shape[1], 1, 1), const=True)
        return net.op("conv", (1, channels, 1, tokens), x=x, weight=held)

    scores = (1, heads, tokens, tokens)
    for _ in range(layers):
        y = net.op("layer_norm", x.shape, x=x)
        q, k, v = (conv(y, width) for _ in range(3))
        y = net.op("softmax", scores, x=net.op("matmul", scores, x=q, y=k, transpose_x=const(True)), axis=const(-1))
        x = net.op("add", x.shape, x=x, y=conv(net.op("matmul", x.shape, x=v, y=y), width))
        y = net.op("gelu", (1, 4 * width, 1, tokens), x=conv(net.op("layer_norm", x.shape, x=x), 4 * width))
        x = net.op("add", x.shape, x=x, y=conv(y, width))
    return net.sites


def test_a_small_encoder_stays_on_the_cpu_though_every_op_may_go_and_a_larger_one_goes_whole():
    tiny, realistic = encoder(2, 128, 4), encoder(6, 384, 6)
    assert all("ane" in legality.judge(site, M4).supported for site in tiny)
    assert set(placed(tiny)) == {"cpu"} and set(placed(realistic)) == {"ane"}


def test_one_row_by_k_by_k_goes_to_the_ane_from_4992_on():
    def unit(k):
        held = Tensor("fp16", (k, k), const=True)
        return placed([Site("linear", {"x": [Tensor("fp16", (1, k))], "weight": [held]}, [Tensor("fp16", (1, k))])])[0]

    assert (unit(4864), unit(4992), unit(16384)) == ("cpu", "ane", "ane")


@pytest.mark.parametrize(
    ("kind", "shape", "more", "payload", "hit"),
    [
        ("linear", (2048, 4096), {}, 1 << 20, True),
        ("matmul", (4096, 2048), {}, 1 << 20, True),
        ("matmul", (2048, 4096), {"transpose_y": [const(True)]}, 1 << 20, True),
        ("conv", (2048, 4096, 1, 1), {}, 1 << 20, True),
        ("conv", (512, 4096, 2, 2), {}, 1 << 20, True),
        ("linear", (2048, 4160), {}, (1 << 20) + 16384, True),
        ("linear", (2048, 4168), {}, (1 << 20) + 18432, False),
        ("linear", (4096, 2048), {}, 1 << 20, True),
        ("linear", (768, 3072), {}, 294912, False),
        ("linear", (16, 8), {}, 16, False),
    ],
)
def test_the_notch_is_within_16_kib_of_a_multiple_of_a_mebibyte_a_core(kind, shape, more, payload, hit):
    name = {"conv": "weight", "linear": "weight", "matmul": "y"}[kind]
    site = Site(kind, {name: [Tensor("fp16", shape, const=True)], **more}, [])
    assert (gates.payload_bytes(site), gates.is_hit(payload)) == (payload, hit)


def package(tmp_path, width):
    writer = Writer(x=("fp16", (1, 4096)))
    writer.op("linear", ("fp16", (1, width)), x="x", weight=writer.const("fp16", (width, 4096)))
    return writer.save(tmp_path / f"{width}.mlpackage")


def test_lint_names_the_notch_with_its_source_and_closes_nothing(tmp_path):
    hit, beside = judge.judge(package(tmp_path, 2048)), judge.judge(package(tmp_path, 1792))
    (gate,) = hit.prediction.chunks[0].gates
    assert (gate.gate, gate.effect, gate.confidence) == ("dma_notch", "slow", "low") and "#110" in gate.source
    assert "1048576 bytes of weights a core" in str(hit) and "17 to 19 GB/s" in str(hit)
    assert beside.prediction.chunks[0].gates == []
    assert hit.ops[0].preferred == beside.ops[0].preferred


def test_two_sources_on_integer_weights_stand_as_two_rows_and_the_verdict_names_both(tmp_path, monkeypatch):
    with open(CLAIMS, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    about = [row for row in rows if row["topic"] == "integer_weights"]
    assert len(about) == 2 and {row["confidence"] for row in about} == {"low"} and all(row["source"] for row in rows)
    held = Tensor("fp16", (8, 8), const=True, packing="constexpr_blockwise_shift_scale int8 8")
    plain = Tensor("fp16", (8, 8), const=True)
    x = Tensor("fp16", (1, 8))
    verdicts = [legality.judge(Site("linear", {"x": [x], "weight": [weight]}, [x]), M4) for weight in (held, plain)]
    assert ["ane" in verdict.supported for verdict in verdicts] == [True, True]
    assert (verdicts[0].confidence, verdicts[1].confidence) == ("low", "high")
    monkeypatch.setattr(legality, "disputed", lambda site: True)
    writer = Writer(x=("fp16", (64, 4096)))
    writer.op("linear", ("fp16", (64, 4096)), x="x", weight=writer.const("fp16", (4096, 4096)))
    said = str(judge.judge(writer.save(tmp_path / "m.mlpackage")))
    assert (
        "note  1 op on the ANE read integer weights" in said and "ane-book" in said and "stablehlo-coreml#110" in said
    )
