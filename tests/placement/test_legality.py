"""Rules: causes, not names; each refuses what it is for and leaves its neighbour alone."""

import re

import pytest

from ane_sweep.errors import ConfigError
from ane_sweep.placement import chips, legality
from ane_sweep.placement.sites import Site, Tensor

M4, M1 = chips.get("m4"), chips.get("m1")
IMAGE = Tensor("fp16", (1, 64, 32, 32))
INTS = Tensor("int32", (1, 64))


def const(value, dtype="int32"):
    return Tensor(dtype, (len(value),) if isinstance(value, tuple) else (), const=True, value=value)


def conv(kernel, **more):
    weight = Tensor("fp16", (64, 64, *kernel), const=True)
    return Site("conv", {"x": [IMAGE], "weight": [weight], **more}, [IMAGE])


def unary(kind, tensor=IMAGE, out=None):
    return Site(kind, {"x": [tensor]}, [out or tensor])


def rule(site, chip=M4):
    return legality.judge(site, chip).rule


@pytest.mark.parametrize(
    ("site", "expected"),
    [
        (unary("relu"), None),
        (unary("tan"), "no_kernel_trig"),
        (unary("add", INTS), "int32_input"),
        (unary("cast", IMAGE, Tensor("int32", IMAGE.shape)), "int32_output"),
        (unary("cast", IMAGE, Tensor("fp32", IMAGE.shape)), None),
        (unary("relu", Tensor("fp32", (1, 8))), "fp32"),
        (unary("reduce_argmax", IMAGE, Tensor("int32", (1, 32))), "int32_output"),
        (unary("relu", Tensor("fp16", (1, None, 4))), "dynamic_shape"),
        (unary("relu", Tensor("fp16", (1, 1, 1, 65536))), None),
        (unary("relu", Tensor("fp16", (1, 1, 1, 65537))), "axis_limit"),
        (unary("relu", Tensor("fp16", (1, 1, 1, 1, 1, 4))), "rank"),
        (unary("non_zero", IMAGE, Tensor("int32", (None, 4))), "cpu_only"),
        (unary("an_op_of_the_future"), None),
    ],
    ids=str,
)
def test_types_and_shapes_decide(site, expected):
    assert rule(site) == expected


@pytest.mark.parametrize(
    ("kernel", "taken"),
    [
        ((14, 14), True), ((1, 15), True), ((1, 16), False), ((1, 17), False),
        ((16, 16), True), ((17, 17), False), ((31, 1), True), ((32, 1), False),
    ],
)  # fmt: skip
def test_convolution_kernels_as_the_study_found_them(kernel, taken):
    assert ("ane" in legality.judge(conv(kernel), M4).supported) is taken


def test_older_families_take_narrower_kernels_and_shorter_axes():
    assert rule(conv((1, 14))) is None
    assert rule(conv((1, 14)), M1) == "conv_kernel_width_old"
    wide = unary("relu", Tensor("fp16", (1, 1, 1, 16385)))
    assert (rule(wide), rule(wide, M1)) == (None, "axis_limit")
    assert rule(unary("relu", Tensor("fp16", (1, 50257, 1, 512))), M1) is None, "channels take 65,536 on every family"


@pytest.mark.parametrize(("chip", "taken"), [("m1", False), ("m2", False), ("a16", True), ("m4", True)])
def test_sine_begins_with_a16(chip, taken):
    assert ("ane" in legality.judge(unary("sin"), chips.get(chip)).supported) is taken


def test_a_lookup_is_refused_by_its_indices():
    table = Tensor("fp16", (1000, 256))
    for indices, expected in ((Tensor("int16", (1, 64)), "gather_index"), (const((1, 2)), None)):
        site = Site("gather", {"x": [table], "indices": [indices]}, [Tensor("fp16", (1, 64, 256))])
        assert rule(site) == expected


def test_constants_never_count_as_integers_that_are_read():
    begin = {"x": [IMAGE], "begin": [const((0, 0, 0, 0))]}
    assert rule(Site("slice_by_size", begin, [IMAGE])) is None
    assert rule(Site("slice_by_size", {**begin, "begin": [Tensor("int32", (4,))]}, [IMAGE])) == "int32_input"


def test_windows_pads_and_inner_sizes():
    assert rule(Site("max_pool", {"x": [IMAGE], "kernel_sizes": [const((9, 1))]}, [IMAGE])) is None
    assert rule(Site("max_pool", {"x": [IMAGE], "kernel_sizes": [const((1, 9))]}, [IMAGE])) == "max_pool_width"
    assert rule(Site("avg_pool", {"x": [IMAGE], "kernel_sizes": [const((14, 14))]}, [IMAGE])) is None
    pad = {"x": [IMAGE], "mode": [const("constant", "string")]}
    assert rule(Site("pad", {**pad, "constant_val": [const(0.0, "fp16")]}, [IMAGE])) is None
    assert rule(Site("pad", {**pad, "constant_val": [const(1.0, "fp16")]}, [IMAGE])) == "pad_value"
    for inner, expected in ((32768, None), (40000, "matmul_inner")):
        x, y = Tensor("fp16", (1, 16, inner)), Tensor("fp16", (1, inner, 16))
        assert rule(Site("matmul", {"x": [x], "y": [y]}, [Tensor("fp16", (1, 16, 16))])) == expected


def test_four_bit_blocks_are_low_confidence():
    packed = Tensor("fp16", (64, 64, 1, 1), const=True, packing="constexpr_blockwise_shift_scale int4 32")
    verdict = legality.judge(Site("conv", {"x": [IMAGE], "weight": [packed]}, [IMAGE]), M4)
    assert (verdict.rule, verdict.confidence) == ("int4_blocks", "low")
    packed.packing = "constexpr_lut_to_dense"
    assert rule(Site("conv", {"x": [IMAGE], "weight": [packed]}, [IMAGE])) is None


def test_every_rule_has_words_a_source_and_a_test():
    rules = legality.content()["rules"]
    assert len({entry["id"] for entry in rules}) == len(rules)
    for entry in rules:
        assert entry["test"] in legality.TESTS
        assert entry["confidence"] in legality.TRUST
        assert entry["source"] and entry["reason"] and entry["advice"], entry["id"]
        assert not re.search(r"elements|megabyte|MB\b", entry["reason"]), "sizes are the cost model's business"
    used = {entry["test"] for entry in rules}
    assert used == set(legality.TESTS), "a test that no rule names is dead"


def test_confidence_is_lower_where_nobody_measured():
    relu = unary("relu")
    assert legality.judge(relu, M4).confidence == "high"
    assert legality.judge(relu, M1).confidence == "medium"
    assert legality.judge(unary("an_op_of_the_future"), M4).confidence == "low"


def test_chip_names_are_forgiving_and_unknown_ones_are_listed():
    assert chips.get("A17 Pro").chip == chips.get("a17-pro").chip == "a17_pro"
    with pytest.raises(ConfigError, match=r"chip=m9: unknown; known: .*m1_max.*ane-sweep devices"):
        chips.get("m9")


def test_the_chip_table_names_its_sources():
    wanted = {f"m{n}{kind}" for n in (1, 2, 3, 4, 5) for kind in ("", "_pro", "_max")} | {
        "m1_ultra",
        "m2_ultra",
        "m3_ultra",
    }
    wanted |= {"a12", "a13", "a14", "a15", "a16", "a17_pro", "a18", "a18_pro", "a19", "a19_pro"}
    assert wanted <= set(chips.table())
    for chip in chips.table().values():
        assert set(chip.sources) <= set(chips.sources()) and chip.sources and chip.basis
