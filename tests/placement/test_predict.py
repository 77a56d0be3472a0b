"""Packages in, predictions out."""

import pytest
from placement.by_hand import Writer, conv_chain

from ane_sweep.errors import ConfigError, PackageError
from ane_sweep.placement import chips, gates, predict, programs
from ane_sweep.placement import rows as table
from ane_sweep.placement.types import Ops

M4 = chips.get("m4")
IMAGE = ("fp16", (1, 64, 32, 32))


def predicted(*paths, chip="m4", units="cpu_and_ne"):
    return predict.predict_chain([programs.load(path) for path in paths], chips.get(chip), units)


def test_a_long_chain_is_on_the_ane_and_a_short_one_is_not(tmp_path):
    long, short = conv_chain(tmp_path / "long.mlpackage", 8), conv_chain(tmp_path / "short.mlpackage", 1)
    summary = predicted(long).summary()
    assert summary.ops == Ops(cpu=0, gpu=0, ane=16, total=16)
    assert (summary.segments, summary.transitions, summary.reasons) == (1, 0, [])
    summary = predicted(short).summary()
    assert summary.ops.cpu == 2 and summary.kind == "predicted"
    assert "would save 0.095 ms on these 2 ops; going there costs 0.250 ms" in summary.reasons[0].reason
    assert summary.advice == [
        "nothing is refused, the program is too small for the ANE to pay: batch the inputs, or leave it on the CPU"
    ]
    assert predicted(short, units="cpu_only").summary().advice == [], "the ANE was not asked"


def test_a_refused_op_in_the_middle_says_why(tmp_path):
    writer = Writer(x=IMAGE)
    value = "x"
    for _ in range(8):
        value = writer.op("conv", IMAGE, x=value, weight=writer.const("fp16", (64, 64, 3, 3)))
    value = writer.op("tan", IMAGE, x=value)
    for _ in range(8):
        value = writer.op("conv", IMAGE, x=value, weight=writer.const("fp16", (64, 64, 3, 3)))
    found = predicted(writer.save(tmp_path / "m.mlpackage"))
    assert [row["preferred"] for row in found.table()] == ["ane"] * 8 + ["cpu"] + ["ane"] * 8
    row = found.table()[8]
    assert (
        row["supported"] == ["cpu", "gpu"] and "tan has no ANE kernel" in row["reason"] and row["confidence"] == "high"
    )
    assert found.summary().transitions == 2
    assert sum(entry["cost_share"] for entry in found.table()) == pytest.approx(1, abs=1e-4)


def test_units_asked_for_bound_the_answer(tmp_path):
    path = conv_chain(tmp_path / "m.mlpackage", 16)
    assert {row["preferred"] for row in predicted(path, units="cpu_only").table()} == {"cpu"}
    gpu = predicted(path, units="cpu_and_gpu")
    assert {row["preferred"] for row in gpu.table()} == {"gpu"} and gpu.summary().confidence == "low"
    assert {row["confidence"] for row in predicted(path, units="all").table()} == {"low"}
    assert all(row["supported"] == ["cpu", "gpu", "ane"] for row in gpu.table())
    with pytest.raises(ConfigError, match="compute_units=npu: unknown"):
        predicted(path, units="npu")


def test_no_estimate_is_given_under_the_name_of_a_chip_without_figures(tmp_path):
    """Of these chips only the M4's CPU has figures, and none of their GPUs."""
    path = conv_chain(tmp_path / "m.mlpackage", 16)
    for chip in ("m1", "m4", "a17_pro"):
        assert predicted(path, chip=chip).estimate.ms > 0
        for units in ("cpu_only", "cpu_and_gpu"):
            found = predicted(path, chip=chip, units=units)
            if (chip, units) == ("m4", "cpu_only"):
                continue
            assert found.estimate is None and found.not_estimated.startswith(f"{chip}: ")
            assert found.summary().not_estimated == found.not_estimated
            assert found.estimate_entry() == {"kind": "estimated", "latency_ms": None, "reason": found.not_estimated}
    small = conv_chain(tmp_path / "small.mlpackage", 1)
    assert predicted(small).summary().ops.ane == 0 and predicted(small).estimate is not None
    assert "100% of its time would be on the CPU" in predicted(small, chip="a17_pro").not_estimated


def test_an_estimate_rests_on_the_units_that_it_is_about(tmp_path):
    long, short = conv_chain(tmp_path / "long.mlpackage", 8), conv_chain(tmp_path / "short.mlpackage", 1)
    assert "TFLOP/s" in predicted(long).estimate.anchor and "CPU" not in predicted(long).estimate.anchor
    cpu = predicted(short).estimate
    assert cpu.anchor.startswith("m4: ") and "on the CPU" in cpu.anchor and "TFLOP/s" not in cpu.anchor
    ane = predicted(long).estimate
    assert cpu.high_ms / cpu.ms > ane.high_ms / ane.ms, "the band is of figures from the ANE"


def test_constants_are_no_ops_and_compressed_ones_keep_their_size(tmp_path):
    writer = Writer(x=IMAGE)
    indices = writer.const("uint8", (64 * 64,))
    lut = writer.const("fp16", (16,))
    weight = writer.op("constexpr_lut_to_dense", ("fp16", (64, 64, 1, 1)), indices=indices, lut=lut)
    writer.op("conv", IMAGE, x="x", weight=weight)
    (site,) = programs.load(writer.save(tmp_path / "m.mlpackage")).sites
    found = site.tensor("weight")
    assert (found.const, found.stored_bytes, found.packing) == (True, 64 * 64 + 32, "constexpr_lut_to_dense")


def test_every_function_and_nested_block_in_file_order(tmp_path):
    writer = Writer(x=IMAGE)
    flag = writer.op("greater", ("bool", ()), x="x", y=writer.const("fp32", (), (0.0,)))
    writer.op("cond", IMAGE, pred=flag)
    inner = writer.last.blocks.add()
    writer.op("relu", IMAGE, block=inner, x="x")
    writer.op("abs", IMAGE, x="x")
    writer.start("second", {"x": IMAGE})
    writer.op("sqrt", IMAGE, x="x")
    rows = predicted(writer.save(tmp_path / "m.mlpackage")).table()
    assert [(row["function"], row["op_type"]) for row in rows] == [
        ("main", "greater"), ("main", "cond"), ("main", "relu"), ("main", "abs"), ("second", "sqrt"),
    ]  # fmt: skip
    assert rows[1]["supported"] == ["cpu", "gpu"] and rows[2]["preferred"] == "cpu"


def test_a_loop_has_no_estimate_as_nobody_knows_how_often_it_turns(tmp_path):
    """nn.GRU of 8 and of 2000 steps is one program but for a number."""
    writer = Writer(x=IMAGE)
    flag = writer.op("greater", ("bool", ()), x="x", y=writer.const("fp32", (), (0.0,)))
    writer.op("while_loop", IMAGE, loop_vars=flag)
    writer.op("relu", IMAGE, block=writer.last.blocks.add(), x="x")
    found = predicted(writer.save(tmp_path / "m.mlpackage"))
    assert found.estimate is None and found.summary().confidence == "low"
    assert found.not_estimated == (
        "m4: it has a loop or branch (while_loop), and how often the ops in it run is not known"
    )
    assert found.estimate_entry()["reason"] == found.not_estimated


def test_chunks_are_planned_on_their_own(tmp_path):
    first, second = conv_chain(tmp_path / "chunk_01.mlpackage", 8), conv_chain(tmp_path / "chunk_02.mlpackage", 1)
    found = predicted(first, second)
    summary = found.summary()
    assert [chunk.ops.ane for chunk in summary.chunks] == [16, 0]
    assert {row["chunk"] for row in found.table()} == {"chunk_01", "chunk_02"}
    assert {row["chunk"] for row in predicted(first).table()} == {None}
    alone = predicted(first).estimate.ms
    assert alone + 1.6 < found.estimate.ms < alone + 1.8
    assert predicted(first, first).estimate.ms == pytest.approx(2 * alone + 1.6)
    assert predicted(second, second, chip="m1").not_estimated and predicted(second, chip="m1").not_estimated


@pytest.mark.parametrize(
    ("size", "chip", "name"),
    [
        (2_147_483_649, "m4", "weight_file"), (2_147_483_648, "m4", None),
        (1_000_000_001, "a17_pro", "ios_size"), (1_000_000_001, "m4", None),
    ],
)  # fmt: skip
def test_size_gates(tmp_path, size, chip, name):
    path = conv_chain(tmp_path / "m.mlpackage", 8, weight_bytes=size)
    found = predicted(path, chip=chip)
    assert [gate.gate for gate in found.chunks[0].gates] == ([name] if name else [])
    assert found.summary().ops.ane == (0 if name else 16)
    if name:
        assert all(row["reason"] == found.chunks[0].gates[0].reason for row in found.table())
        assert found.table()[0]["supported"] == ["cpu", "gpu", "ane"], "legality is about the op"


def test_later_chunks_run_out_of_mapped_memory_on_m1(tmp_path):
    paths = [conv_chain(tmp_path / f"chunk_0{n}.mlpackage", 8, weight_bytes=1_800_000_000) for n in (1, 2, 3)]
    assert [[gate.gate for gate in chunk.gates] for chunk in predicted(*paths, chip="m1").chunks] == [
        [],
        [],
        ["mapped_memory"],
    ]
    assert not [gate for chunk in predicted(*paths, chip="m2").chunks for gate in chunk.gates]


def test_depth_counts_layers_on_one_chain(tmp_path):
    deep = predicted(conv_chain(tmp_path / "deep.mlpackage", 384, channels=8, size=8)).chunks[0]
    assert [gate.gate for gate in deep.gates] == ["depth"]
    assert gates.longest_chain(programs.load(conv_chain(tmp_path / "m.mlpackage", 5)).sites) == 5


def test_shapes_that_may_fail_the_compile_are_risks_not_verdicts(tmp_path):
    wide = ("fp16", (1, 8, 1, 20000))
    writer = Writer(x=wide)
    writer.op("conv", wide, x="x", weight=writer.const("fp16", (8, 8, 1, 1)))
    path = writer.save(tmp_path / "m.mlpackage")
    (gate,) = predicted(path, chip="m1").chunks[0].gates
    assert (gate.gate, gate.effect) == ("axis", "risk")
    assert predicted(path).chunks[0].gates == []


def test_advice_names_the_head_and_leaves_index_arithmetic_to_the_lookup(tmp_path):
    writer = Writer(ids=("int32", (1, 64)))
    short = writer.op("cast", ("int16", (1, 64)), x="ids", dtype=writer.const("string", (), "int16"))
    table = writer.const("fp16", (50257, 256))
    rows = writer.op("gather", ("fp16", (1, 64, 256)), x=table, indices=short)
    writer.op("linear", ("fp16", (1, 64, 50257)), x=rows, weight=writer.const("fp16", (50257, 256)))
    words = predicted(writer.save(tmp_path / "m.mlpackage")).summary().advice
    assert words[0].startswith("do the lookup outside") and not [word for word in words if "position ids" in word]
    assert any(word.startswith("select the last token before the vocabulary projection") for word in words)


def wide(tmp_path, kind, shape, made=None, **more):
    """A program of some such ops."""
    writer = Writer(x=("fp16", shape))
    value = "x"
    for _ in range(4):
        weights = {name: writer.const("fp16", size) for name, size in more.items()}
        value = writer.op(kind, ("fp16", made or shape), x=value, **weights)
    return predicted(writer.save(tmp_path / f"{kind}.mlpackage"), chip="m1").summary().advice


def test_only_a_projection_is_told_of_a_vocabulary(tmp_path):
    plain = wide(tmp_path, "relu", (1, 4, 1, 70000))
    assert any("split the axis" in text for text in plain) and not [text for text in plain if "vocabulary" in text]
    sound = wide(tmp_path, "conv", (1, 64, 1, 20000), weight=(64, 64, 1, 3))
    assert not [text for text in sound if "select the last token before" in text]
    head = wide(tmp_path, "linear", (1, 64, 256), (1, 64, 50257), weight=(50257, 256))
    assert any(text.startswith("select the last token before the vocabulary projection") for text in head)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (100, "a last axis of 100 takes 256 bytes for 200"),
        (16, "a last axis of 16 takes 64 bytes for 32"),
        (128, ""),
        (96, ""),
    ],
)
def test_a_last_axis_that_does_not_fill_its_rows_is_to_be_padded(tmp_path, last, said):
    image = ("fp16", (1, 256, 64, last))
    writer = Writer(x=image)
    value = "x"
    for _ in range(8):
        value = writer.op("conv", image, x=value, weight=writer.const("fp16", (256, 256, 3, 3)))
    advice = predicted(writer.save(tmp_path / "m.mlpackage")).summary().advice
    padding = [text for text in advice if "make the last axis a multiple of 32 fp16 values (64 bytes)" in text]
    assert (said in padding[0]) if said else not padding


def test_an_op_that_cannot_be_judged_is_a_damaged_file(tmp_path):
    writer = Writer(x=("fp16", ()))
    writer.op("linear", ("fp16", (8,)), x="x", weight=writer.const("fp16", ()))
    with pytest.raises(PackageError, match="an op has inputs or sizes that it cannot have"):
        predicted(writer.save(tmp_path / "m.mlpackage"))


def test_unreadable_packages_are_package_errors(tmp_path):
    with pytest.raises(PackageError, match="no such model"):
        programs.load(tmp_path / "none.mlpackage")
    (tmp_path / "x.mlmodel").write_bytes(b"no protobuf at all")
    with pytest.raises(PackageError):
        programs.load(tmp_path / "x.mlmodel")


def test_agreement_is_of_like_with_like():
    rows = [{"op_type": "conv", "preferred": "ane"}, {"op_type": "relu", "preferred": "cpu"}]
    assert table.plan_agreement(rows, rows) == 1
    assert table.plan_agreement(rows, [rows[0], {"op_type": "relu", "preferred": "ane"}]) == 0.5
    assert table.plan_agreement(rows, rows[:1]) is None


def convolutions_around(writer, value, kind, count=8):
    """An op that the ANE refuses (tan) or not, after `count` convolutions."""
    for _ in range(count):
        value = writer.op("conv", IMAGE, x=value, weight=writer.const("fp16", (64, 64, 3, 3)))
    return writer.op(kind, IMAGE, x=value)


def test_advice_says_what_it_saves_of_the_estimate_and_what_saves_most_comes_first(tmp_path):
    writer = Writer(x=IMAGE)
    value = "x"
    for _ in range(3):
        value = convolutions_around(writer, value, "tan")
    value = convolutions_around(writer, value, "cumsum")
    value = convolutions_around(writer, value, "relu")
    found = predicted(writer.save(tmp_path / "m.mlpackage"))
    advice = found.summary().advice
    assert [text.partition(" ms")[0].rpartition("; ")[2] for text in advice] == [
        f"saves about {ms} of {found.estimate.ms:.3g}" for ms in (found_ms(found, "tan"), found_ms(found, "cumsum"))
    ]
    assert "(3 ops: tan;" in advice[0] and "(1 op: cumsum;" in advice[1]
    alone = predicted(without(tmp_path, "tan", writer), chip="m4")
    assert found.saving([row for row in found.rows if row.site.type == "tan"]).ms == pytest.approx(
        found.estimate.ms - alone.estimate.ms, rel=0.05
    ), "as much as with an op in their place that the ANE takes"


def found_ms(found, kind):
    return f"{found.saving([row for row in found.rows if row.site.type == kind]).ms:.2g}"


def without(tmp_path, kind, writer):
    for proto in writer.block.operations:
        if proto.type == kind:
            proto.type = "sin"
    return writer.save(tmp_path / "without.mlpackage")


def test_the_ops_and_milliseconds_beside_a_reason_are_those_of_that_reason(tmp_path):
    """529 ops stood beside "would save 0.001 ms on these 3 ops"."""
    writer = Writer(x=IMAGE)
    value = "x"
    for count in (1, 2, 3):
        value = writer.op("tan", IMAGE, x=value)
        for _ in range(count):
            value = writer.op("relu", IMAGE, x=value)
    reasons = predicted(writer.save(tmp_path / "m.mlpackage")).summary().reasons
    stay = next(reason for reason in reasons if reason.rule == "path")
    assert stay.ops == 6 and "on these 6 ops in 3 places; going there costs 1.125 ms" in stay.reason
    assert sum(reason.ops for reason in reasons) == 9


def test_the_estimate_is_of_the_default_function_alone(tmp_path):
    """A call runs one function; ops are counted in all."""

    def convolve(writer, count):
        value = "x"
        for _ in range(count):
            value = writer.op("relu", IMAGE, x=value)
        writer.block.outputs.append(value)

    alone, both = Writer(x=IMAGE), Writer(x=IMAGE)
    convolve(alone, 3)
    convolve(both, 3)
    both.start("second", {"x": IMAGE})
    convolve(both, 40)
    both.spec.description.defaultFunctionName = "main"
    one, two = (predicted(made.save(tmp_path / f"{name}.mlpackage")) for name, made in (("a", alone), ("b", both)))
    assert len(one.rows) == 3 and len(two.rows) == 43
    assert two.estimate == one.estimate
    both.spec.description.defaultFunctionName = "second"
    assert predicted(both.save(tmp_path / "c.mlpackage")).estimate.ms > one.estimate.ms
