"""Rules about loading and compression: each on a program that has the cause, and on a neighbour that has not."""

import numpy as np
import pytest
from placement.by_hand import Writer, _typed, conv_chain

from ane_sweep.errors import PackageError
from ane_sweep.hazards.rule import RULES
from ane_sweep.hazards.search import search
from ane_sweep.mil.proto import Model_pb2
from ane_sweep.placement import judge


def find_named(path, chip="m4", units="cpu_and_ne"):
    found = search(judge.judge(path, chip=chip, compute_units=units).prediction)
    return {one.rule.partition("/")[2]: one for one in found}


def one_op(path, kind, shape, data=None, **constants):
    """A package of one op with these constants (values, or a shape of fp16 weights)."""
    writer = Writer(x=("fp16", data or shape))
    given = {}
    for name, value in constants.items():
        if isinstance(value, str):
            given[name] = writer.const("string", (), value)
        elif isinstance(value, list):
            given[name] = writer.const("fp16", tuple(value))
        else:
            values = tuple(np.atleast_1d(value).tolist())
            given[name] = writer.const("int32", np.shape(value), values)
    writer.op(kind, ("fp16", shape), x="x", **given)
    return writer.save(path)


def test_an_axis_above_the_chips_limit(tmp_path):
    path = one_op(tmp_path / "long.mlpackage", "conv", (1, 48, 479014), weight=[48, 48, 3])
    assert "479,014" in find_named(path)["long_axis"].what and "466" in find_named(path)["long_axis"].source
    assert "long_axis" not in find_named(path, units="cpu_and_gpu")
    path = one_op(tmp_path / "fits.mlpackage", "conv", (1, 48, 20000), weight=[48, 48, 3])
    assert "long_axis" in find_named(path, "m1") and "long_axis" not in find_named(path, "m4")
    path = one_op(tmp_path / "plane.mlpackage", "conv", (1, 3, 5568, 5568), weight=[3, 3, 3, 3])
    assert "5,568 x 5,568" in find_named(path)["long_axis"].what


def test_many_ops_and_large_weights(tmp_path):
    assert "many_ops" not in find_named(conv_chain(tmp_path / "few.mlpackage", 8))
    found = find_named(conv_chain(tmp_path / "large.mlpackage", 8, weight_bytes=700_000_000))
    assert "700 MB" in found["many_ops"].what and found["many_ops"].severity == "note"
    found = find_named(conv_chain(tmp_path / "long.mlpackage", 1000))
    assert "2,000 ops" in found["many_ops"].what


@pytest.mark.parametrize(("count", "is_found"), [(6_000_000, True), (1000, False)])
def test_weights_inside_the_program(tmp_path, count, is_found):
    writer = Writer(x=("fp32", (count,)))
    writer.op("add", ("fp32", (count,)), x="x", y=writer.const("fp32", (count,), tuple([0.5] * count)))
    assert ("inlined_weights" in find_named(writer.save(tmp_path / "m.mlpackage"))) == is_found


def stateful(tmp_path, *widths):
    writer = Writer(x=("fp16", (1, 8)))
    for number, width in enumerate(widths):
        value = writer.function.inputs.add(name=f"state_{number}")
        inner = Model_pb2.Model().mlProgram.functions["f"].inputs.add(name="x")
        _typed(inner.type, "fp16", (1, 4, width))
        value.type.stateType.wrappedType.CopyFrom(inner.type)
    return find_named(conv_like(writer).save(tmp_path / f"{widths}.mlpackage"))


def conv_like(writer):
    writer.op("relu", ("fp16", (1, 8)), x="x")
    return writer


def test_states(tmp_path):
    found = stateful(tmp_path, 270)
    assert "last dimension of 270" in found["state_width"].what and "2631" in found["state_width"].source
    assert "many_states" not in found
    found = stateful(tmp_path, 256, 64, 32)
    assert "state_width" not in found and found["many_states"].what.startswith("3 states")


def test_shapes_of_inputs(tmp_path):
    writer = Writer(x=("fp16", (1, None)))
    writer.op("relu", ("fp16", (1, None)), x="x")
    assert "range of shapes for x" in find_named(writer.save(tmp_path / "m.mlpackage"))["flexible_shapes"].what
    assert "flexible_shapes" not in find_named(conv_chain(tmp_path / "fixed.mlpackage", 2))


@pytest.mark.parametrize(("size", "grows", "is_found"), [(8, True, True), (4, True, False), (8, False, False)])
def test_a_large_pool_before_an_upsampling(tmp_path, size, grows, is_found):
    writer = Writer(x=("fp16", (1, 8, 64, 64)))
    small = 64 // size
    sizes = writer.const("int32", (2,), (size, size))
    value = writer.op("max_pool", ("fp16", (1, 8, small, small)), x="x", kernel_sizes=sizes, strides=sizes)
    if grows:
        writer.op("upsample_nearest_neighbor", ("fp16", (1, 8, 64, 64)), x=value)
    assert ("pool_and_upsample" in find_named(writer.save(tmp_path / "m.mlpackage"))) == is_found


def attentions(path, count, keys=16):
    writer, value = Writer(x=("fp16", (1, 4, 16, keys))), "x"
    for _ in range(count):
        value = writer.op("softmax", ("fp16", (1, 4, 16, keys)), x=value, axis=writer.const("int32", (), (-1,)))
    return writer.save(path)


def test_many_layers_on_a_phone_and_many_keys(tmp_path):
    many, few = attentions(tmp_path / "many.mlpackage", 25), attentions(tmp_path / "few.mlpackage", 24)
    assert "phone_layers" in find_named(many, "a17_pro")
    assert "phone_layers" not in find_named(many, "m4") and "phone_layers" not in find_named(few, "a17_pro")
    assert "32,768 keys" in find_named(attentions(tmp_path / "keys.mlpackage", 1, 32_768))["long_attention"].what
    assert "long_attention" not in find_named(attentions(tmp_path / "short.mlpackage", 1, 8192))


def packed(path, kind, dtype, scales, data_kind=None):
    """A convolution whose weight is compressed; `data_kind`: the op that makes the weight's data."""
    writer = Writer(x=("fp16", (1, 64, 8, 8)))
    data = writer.const(dtype, (64, 64, 1, 1))
    if data_kind:
        data = writer.op(data_kind, ("fp16", (64, 64, 1, 1)), indices=data)
    weight = writer.op(kind, ("fp16", (64, 64, 1, 1)), data=data, scale=writer.const("fp16", scales))
    writer.op("conv", ("fp16", (1, 64, 8, 8)), x="x", weight=weight)
    return writer.save(path)


def test_compression_that_an_os_refuses(tmp_path):
    kind = "constexpr_blockwise_shift_scale"
    found = find_named(packed(tmp_path / "a.mlpackage", kind, "int8", (64, 1, 1, 1)))["compression_forms"]
    assert found.severity == "note" and "iOS 18" in found.why
    path = packed(tmp_path / "b.mlpackage", kind, "uint8", (64, 1, 1, 1), "constexpr_lut_to_dense")
    assert (
        find_named(path)["compression_forms"].severity == "warning"
        and "2688" in find_named(path)["compression_forms"].source
    )
    assert "compression_forms" not in find_named(conv_chain(tmp_path / "c.mlpackage", 2))


def test_compression_that_a_chip_does_not_speed_up(tmp_path):
    blocks = packed(tmp_path / "a.mlpackage", "constexpr_blockwise_shift_scale", "int8", (64, 2, 1, 1))
    assert "compression_speed" in find_named(blocks, "m2") and "compression_speed" not in find_named(blocks, "m4")
    writer = Writer(x=("fp16", (1, 64)))
    writer.op("quantize", ("int8", (1, 64)), x="x")
    path = writer.save(tmp_path / "b.mlpackage")
    assert "quantised" in find_named(path, "m3")["compression_speed"].what
    assert "compression_speed" not in find_named(path, "m4")


@pytest.mark.parametrize("name", RULES)
def test_a_rule_says_where_it_comes_from(name):
    rule = RULES[name]
    assert rule.source and rule.effect and rule.condition and (rule.mends or rule.do)
    from ane_sweep.fix.rewrite import REWRITES

    assert set(rule.mends) <= set(REWRITES)


def test_an_op_that_a_rule_cannot_read_is_damage(tmp_path):
    path = one_op(tmp_path / "m.mlpackage", "gather", (1, 8), data=(4096, 8), axis=7, indices=np.array([1]))
    with pytest.raises(PackageError, match=r"rule narrow_ids cannot read an op .*damaged"):
        find_named(path)
