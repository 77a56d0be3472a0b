"""What an estimate counts, what it takes of a chip, and when there is none."""

import statistics
from dataclasses import replace

import pytest

from ane_sweep.errors import ConfigError
from ane_sweep.machine import calibrated
from ane_sweep.placement import chips, choice, latency, work
from ane_sweep.placement.sites import Site, Tensor
from tests.proof.placement import choices, nets, terms

ENCODER = "transformer tokens=128 width=768 layers=6 heads=12 mask=input"
DECODER = "transformer tokens=512 width=768 layers=12 heads=12 mask=const vocab=50257"


@pytest.fixture(autouse=True)
def nothing_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("ANE_SWEEP_STAND_IN", raising=False)


def load(spec: str, unit: str = "ane", cache: float = 2.3e6) -> work.Load:
    sites = nets.sites(spec)
    return getattr(work.count_work(sites, [unit] * len(sites), cache), unit)


def asked(spec: str, unit: str, chip: str) -> str | None:
    sites = nets.sites(spec)
    return latency.missing([work.work_of(sites, [unit] * len(sites), 0, 2.3e6)], chips.get(chip))


def why(spec: str, chip: str) -> str | None:
    sites = nets.sites(spec)
    return latency.explain_withholding(sites, ["ane"] * len(sites), chips.get(chip))


def weight(*shape: int, **packed: object) -> Tensor:
    return Tensor("fp16", shape, const=True, **packed)  # type: ignore[arg-type]


def test_a_weight_falls_into_the_notch_where_one_core_reads_about_a_mebibyte():
    """2048 x 4096 hits it exactly; the published rule, of one author."""
    assert (
        work.in_notch(weight(2048, 4096))
        and work.in_notch(weight(4096, 2048, 1, 1))
        and work.in_notch(weight(2048, 4100))
    )
    assert not work.in_notch(weight(2048, 4200)) and not work.in_notch(weight(768, 768))
    assert not work.in_notch(weight(2048, 4096, stored_bytes=2**22)), "what is compressed is read as it is stored"
    assert load("mlp tokens=1 width=4096 hidden=2048 layers=1").notched == 2 * 2048 * 4096 * 2
    ane = latency.of_chip(chips.get("m1"))["ane"]
    inside, beside = (latency.ane_ms(work.Load(weights=1e9, notched=share), ane) for share in (1e9, 0.0))
    assert 17 < 1e9 / ((inside - ane["dispatch_ms"]) * 1e6) < 25 and beside < inside


def test_heads_at_once_and_head_by_head_are_told_apart_and_have_the_same_products():
    at_once, by_head = load(ENCODER), load(f"{ENCODER} form=split_einsum")
    assert at_once.flop == by_head.flop and at_once.weights == by_head.weights
    assert at_once.heads > 0 == at_once.head_flop and by_head.head_flop > 0 == by_head.heads
    long = "transformer tokens=1500 width=768 layers=2 heads=12"
    assert load(long).spilled > load(f"{long} form=split_einsum").spilled > load(f"{long} form=split_einsum_v2").spilled


def test_an_einsum_counts_as_the_product_that_it_is():
    equation = Tensor("string", (), const=True, value="bchq,bkhc->bkhq")
    values = [Tensor("fp16", (1, 64, 1, 128)), Tensor("fp16", (1, 256, 1, 64))]
    site = Site("einsum", {"values": values, "equation": [equation]}, [Tensor("fp16", (1, 256, 1, 128))])
    found = work.count_work([site], ["ane"], 1e9).ane
    assert found.flop == found.head_flop == 2 * 64 * 128 * 256 and found.heads == 0
    many = [Tensor("fp16", (1, 64, 12, 128)), Tensor("fp16", (1, 256, 12, 64))]
    together = Site("einsum", {"values": many, "equation": [equation]}, [Tensor("fp16", (1, 256, 12, 128))])
    assert work.count_work([together], ["ane"], 1e9).ane.heads > 0
    odd = Site("einsum", {"values": values[:1], "equation": [equation]}, [])
    assert work.count_work([odd], ["ane"], 1e9).ane.flop == 0


def test_only_fp32_that_comes_in_or_goes_out_is_converted():
    cached = "transformer tokens=1 width=64 layers=2 heads=2 cached=32"
    assert load(cached).wide_io == 0
    assert load(f"{cached} io=fp32").wide_io == 2 * 2 * 2 * 32 * 64 * 4  # layers, keys and values, in and out


def test_more_of_anything_never_takes_less():
    ane = latency.of_chip(chips.get("m1"))["ane"]
    before = latency.ane_ms(work.Load(1e9, 1e8, 0, 0, 1e7, 1e7, 0, 1e6, 10, 10, 1e7), ane)
    for name in ("flop", "weights", "notched", "spilled", "heads", "wide_io", "tasks", "moved"):
        more = work.Load(1e9, 1e8, 0, 0, 1e7, 1e7, 0, 1e6, 10, 10, 1e7)
        setattr(more, name, getattr(more, name) + 1e8)
        assert latency.ane_ms(more, ane) > before or name == "flop", name  # products are hidden behind the weights here


@pytest.mark.parametrize("chip", ["a12", "a13", "a18", "a18_pro", "a19", "a19_pro"])
def test_a_chip_of_whose_neural_engine_nothing_was_published_has_no_estimate(chip):
    assert f"{chip}: nobody has published" in (asked(f"{ENCODER} form=split_einsum", "ane", chip) or "")


def test_each_unit_needs_figures_of_the_chip_s_own():
    assert asked(ENCODER, "gpu", "m2") is None and asked(ENCODER, "cpu", "m1_max") is None
    assert "of GPUs only m1_max, m2, m4_pro, m5_max have figures" in (asked(ENCODER, "gpu", "m1") or "")
    assert "of CPUs only m1_max, m4 have figures" in (asked(ENCODER, "cpu", "m1") or "")


def test_chunks_that_are_all_on_the_cpu_pay_no_hand_over():
    """An M1 said "not estimated" of one chunk on the CPU, and 1.65 ms of two."""
    sites = nets.sites("mlp tokens=1 width=16 hidden=16 layers=1")
    chunk = work.work_of(sites, ["cpu"] * len(sites), 0, 2.3e6)
    for count in (1, 2, 5):
        assert "100% of its time would be on the CPU" in (latency.missing([chunk] * count, chips.get("m1")) or "")
    one, two = (latency.estimate([chunk] * count, chips.get("m4")).ms for count in (1, 2))
    assert two == pytest.approx(2 * one)


@pytest.mark.parametrize(
    ("spec", "chip", "reason"),
    [
        (ENCODER, "m1", "whose mask is computed from an input"), (ENCODER, "a14", "whose mask is computed"), (ENCODER, "m4", None),
        (f"{ENCODER} form=split_einsum", "m1", None), (f"{DECODER} head=last", "m1", None),
        (f"{DECODER} head=all form=split_einsum", "m1_max", "more than 16,384 channels for many tokens"),
        (f"{DECODER} head=last form=split_einsum", "m1_max", None), (f"{DECODER} head=all form=split_einsum", "m4", None),
        (f"{DECODER} head=all form=split_einsum pieces=7", "m1_max", None),
    ],
)  # fmt: skip
def test_forms_whose_published_figures_contradict_the_terms_get_none(spec, chip, reason):
    found = why(spec, chip)
    assert found is None if reason is None else (reason in found and found.startswith(f"{chip}: "))


def known(chip: str) -> chips.Chip:
    """The chip with what this machine measured."""
    return chips.get(chip, calibrated.find_measurements)


def row(quantity: str, value: float, units: str = "cpu_and_ne", chip: str = "m1") -> calibrated.Row:
    return calibrated.Row(
        chip, units, quantity, value, "ms", "measured", calibrated.SOURCE, "probe", "25G1", "2026-11-22"
    )


def test_what_this_machine_measured_feeds_the_estimates_of_its_chip_alone():
    net = nets.sites(f"{ENCODER} form=split_einsum bits=4")
    units = {unit: [work.work_of(net, [unit] * len(net), 0, 2.3e6)] for unit in ("ane", "gpu", "cpu")}
    before = latency.estimate(units["ane"] * 2, known("m1")).ms
    assert latency.missing(units["gpu"], known("m1")) and latency.missing(units["cpu"], known("m1"))
    calibrated.keep([row("chunk_ms", 0.6)])
    assert latency.estimate(units["ane"] * 2, known("m1")).ms == pytest.approx(before - 1.0)
    calibrated.keep([row("fp16_tflops", 2.0, "cpu_and_gpu"), row("fp16_tflops", 1.0, "cpu_only")])
    assert latency.missing(units["gpu"], known("m1")) and latency.missing(units["cpu"], known("m1")), (
        "what a call costs belongs to it"
    )
    calibrated.keep([row("dispatch_ms", 0.5, "cpu_and_gpu"), row("dispatch_ms", 0.1, "cpu_only")])
    gpu, cpu = (latency.estimate(units[unit], known("m1")) for unit in ("gpu", "cpu"))
    assert gpu.ms > 0.5 + 11.1 / 2 and "measured here" in gpu.anchor and cpu.ms == pytest.approx(0.1 + 11.17, rel=0.01)
    assert latency.missing(units["gpu"], known("m3")), "and of no other chip's"


def test_the_layout_measured_here_makes_the_probe_s_ratio_and_lifts_what_was_withheld():
    calibrated.keep([row("original_over_split_einsum", 6.0)])
    ane = latency.of_chip(known("m1"))["ane"]
    slow, fast = (work.load_of(latency.fitted()["probes"][form]) for form in ("original", "split_einsum"))
    assert latency.ane_ms(slow, ane) == pytest.approx(6 * latency.ane_ms(fast, ane)) and ane["layout_here"]
    sites = nets.sites(ENCODER)
    assert latency.explain_withholding(sites, ["ane"] * len(sites), known("m1"), has_layout=True) is None


def test_palettes_are_read_at_the_rate_measured_here():
    palette = weight(1024, 1024, stored_bytes=2**19 + 32, packing="constexpr_lut_to_dense")
    site = Site("linear", {"x": [Tensor("fp16", (1, 1024))], "weight": [palette]}, [Tensor("fp16", (1, 1024))])
    found = work.count_work([site], ["ane"], 1e9).ane
    assert found.palettes == found.weights == 2**19 + 32
    as_stored = latency.ane_ms(found, latency.of_chip(known("m1"))["ane"])
    calibrated.keep([row("palette4_gbs", 60.9)])  # as fast as fp16 of the same shape: they are expanded
    assert latency.ane_ms(found, latency.of_chip(known("m1"))["ane"]) - as_stored == pytest.approx(
        3 * found.weights / 60.9e6
    )


def test_the_unit_follows_from_the_ratio_of_two_estimates_and_is_not_predicted_without_them():
    resnet = nets.sites("resnet50 batch=16")
    assert choice.main(resnet, known("m5_max")).unit == "gpu" and choice.main(resnet, known("m4_pro")).unit == "ane"
    found = choice.main(resnet, known("m4"))
    assert found.unit is None and found.reason.startswith(
        "we cannot tell whether Core ML would choose the GPU: nobody has published figures of the m4's GPU"
    )
    calibrated.keep([row("fp16_tflops", 40.0, "cpu_and_gpu", "m4"), row("dispatch_ms", 0.2, "cpu_and_gpu", "m4")])
    assert choice.main(resnet, known("m4")).unit == "gpu"


def test_the_choice_is_scored_beside_trivial_answers_and_ships_what_was_fitted():
    found = choices.score()
    assert (found.rows, found.not_predicted, found.always_ane, found.majority) == (12, 1, 6, 6)
    assert min(found.left_out, found.chip_left_out) > found.always_ane and found.right >= 10
    assert latency.fitted()["choice"] == {"ratio": round(found.ratio, 2), "rows": found.rows, "right": found.right}


def test_turning_points_lie_between_rows():
    rows = choices.asked()
    one, other = replace(rows[0], ratio=1.5, shares=(0, 0, 1)), replace(rows[0], ratio=6.0, shares=(0, 1, 0))
    assert 1.5 < choices.turn([one, other]) < 6.0 and choices.turn([]) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("form", ["original", "split_einsum"])
def test_a_net_written_by_hand_asks_what_its_conversion_asks(tmp_path, form):
    from tiny import option

    from ane_sweep.placement import programs
    from ane_sweep.worker.stages import convert

    model = {key: option("tiny-distilbert")[key] for key in ("family", "task", "arch")}
    weights = {"kind": "random", "digest": "random:0", "seed": 0}
    task = {"model": model, "weights": weights, "seq_len": 128, "variant": form, "target": "iOS18", "compute": "fp16"}
    convert.run({**task, "options": {}}, {}, tmp_path)
    real = programs.load(tmp_path / "model.mlpackage").sites
    arch = model["arch"]
    ours = load(
        f"transformer form={form} tokens=128 width={arch['dim']} layers={arch['n_layers']} heads={arch['n_heads']} "
        f"ffn={arch['hidden_dim']} mask=input vocab={arch['vocab_size']}",
        cache=1e4,
    )
    found = work.count_work(real, ["ane"] * len(real), 1e4).ane
    found.weights -= (
        2 * arch["dim"] * (128 + arch["dim"])
    )  # positions and the classifier, which the net by hand leaves out
    for name in ("flop", "weights", "spilled", "heads", "head_flop"):
        assert getattr(ours, name) == pytest.approx(getattr(found, name), rel=0.15), name
    assert ours.ops == pytest.approx(found.ops, abs=8)


# What the papers say: millions of parameters, billions of multiply-adds
PAPERS = {
    "mobileone size=s0": (2.1, 0.275), "mobileone size=s1": (4.8, 0.825), "mobileone size=s2": (7.8, 1.299),
    "mobileone size=s3": (10.1, 1.896), "mobileone size=s4": (14.8, 2.978), "repvit size=m0.9": (5.1, 0.8),
    "repvit size=m1.0": (6.8, 1.1), "repvit size=m1.1": (8.2, 1.3), "repvit size=m1.5": (14.0, 2.3),
    "repvit size=m2.3": (22.9, 4.5), "fastvit size=t8": (3.6, 0.7), "fastvit size=t12": (6.8, 1.4),
    "fastvit size=s12": (8.8, 1.8), "fastvit size=sa12": (10.9, 1.9), "fastvit size=sa24": (20.6, 3.8),
    "fastvit size=sa36": (30.4, 5.6), "fastvit size=ma36": (42.7, 7.9), "efficientformer size=l1": (12.3, 1.3),
    "efficientformer size=l3": (31.3, 3.9), "efficientformer size=l7": (82.1, 10.2), "swiftformer size=s": (6.1, 1.0),
    "swiftformer size=l1": (12.1, 1.6), "swiftformer size=l3": (28.5, 4.0),
}  # fmt: skip


@pytest.mark.parametrize("net", PAPERS)
def test_nets_of_phones_have_the_weights_and_products_that_their_papers_say(net):
    """Parameters within 12 % (FastViT's code has a tenth more than its paper says), multiply-adds within 7 %."""
    parameters, products = PAPERS[net]
    found = load(net)
    assert found.weights / 2e6 == pytest.approx(parameters, rel=0.12)
    assert found.flop / 2e9 == pytest.approx(products, rel=0.07)


CONVOLUTIONAL = ("MobileOne README", "RepViT README", "FastViT README and model cards", "EfficientFormer README")


@pytest.mark.slow
def test_convolutional_nets_on_an_a14_are_estimated_without_a_bias_that_grows_with_size():
    """They were 1.2 to 1.9 times too high, rising with size: weights are read while products run. Each table by terms that it
    had no part in."""
    found = [(row, ms / row.ms) for row, ms in terms.held_out("ane").items() if row.table in CONVOLUTIONAL]
    ratios = {row.net: ratio for row, ratio in found if row.chip.chip == "a14"}
    assert len(ratios) == 20 and 0.9 < statistics.median(ratios.values()) < 1.1
    assert all(0.75 < ratio < 1.4 for ratio in ratios.values())
    sizes = {net: load(net).flop for net in ratios}
    large = [ratio for net, ratio in ratios.items() if sizes[net] > statistics.median(sizes.values())]
    small = [ratio for net, ratio in ratios.items() if sizes[net] <= statistics.median(sizes.values())]
    assert statistics.median(large) < 1.15 * statistics.median(small)


def test_the_longer_of_products_and_weights_counts():
    ane = latency.of_chip(chips.get("m1"))["ane"]
    both = latency.ane_ms(work.Load(flop=1e9, weights=1e8), ane)
    assert both == latency.ane_ms(work.Load(weights=1e8), ane) > latency.ane_ms(work.Load(flop=1e9), ane)
    assert latency.ane_ms(work.Load(flop=1e12, weights=1e8), ane) == latency.ane_ms(work.Load(flop=1e12), ane)


def test_devices_stand_for_chips_of_the_table_and_no_name_for_two():
    names = [*chips.published(), *(name for devices in chips.devices().values() for name in devices)]
    assert chips.devices().keys() == chips.published().keys(), "each chip is in some device"
    assert len({chips._plain(name) for name in names}) == len(names)
    assert chips.get("iPhone 15 Pro").chip == "a17_pro" and chips.get("ipad_air5").chip == "m1"
    with pytest.raises(ConfigError, match=r"did you mean 'iphone15_pro'"):
        chips.get("iphon15_pro")
