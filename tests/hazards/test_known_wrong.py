"""data/known_wrong.csv: every row can be checked or has a rule, and speaks of the ops that its thread is about alone."""

import pytest
from placement.by_hand import Writer

from ane_sweep.hazards import known_wrong
from ane_sweep.hazards.rule import RULES
from ane_sweep.hazards.search import search
from ane_sweep.placement import judge
from ane_sweep.placement.sites import Site, Tensor

ROWS = known_wrong.list_rows()


def find_texts(writer, tmp_path, units="all"):
    path = writer.save(tmp_path / "m.mlpackage")
    found = search(judge.judge(path, compute_units=units).prediction)
    return [one.source for one in found if one.rule == "numerics/known_wrong"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.op} {row.url.rpartition('/')[2]}")
def test_a_row_is_checked_or_has_a_rule(row):
    assert bool(row.when) != bool(row.rule), "either a condition or a rule of its own"
    assert row.rule in ("", *RULES) and row.unit in ("ane", "gpu", "any")
    assert row.url.startswith("https://github.com/") and row.fixed and row.os and row.effect
    for part in row.when.split(" and ") if row.when else ():
        assert known_wrong._FORM.fullmatch(part)[1] in known_wrong.FACTS


def test_an_unknown_fact_is_refused():
    row = known_wrong.KnownWrong("conv", "", "colour == 1", "", "any", "", "", "open", "")
    site = Site("conv", {"x": [Tensor("fp16", (1, 8))]}, [Tensor("fp16", (1, 8))])
    with pytest.raises(ValueError, match="colour == 1"):
        known_wrong.matches(row, site, ())


def conv(writer, kernel, stride, padding, channels=2):
    weight = writer.const("fp16", (channels, channels, *kernel))
    return writer.op(
        "conv", ("fp16", (1, channels, 4, 4)), x="x", weight=weight, strides=writer.const("int32", (2,), (stride, stride)),
        pad_type=writer.const("string", (), "custom"), pad=writer.const("int32", (4,), (padding,) * 4),
    )  # fmt: skip


def test_a_kernel_that_is_not_square(tmp_path):
    def texts(*how, **more):
        writer = Writer(x=("fp16", (1, more.get("channels", 2), 8, 8)))
        conv(writer, *how, **more)
        return find_texts(writer, tmp_path / str((how, more)))

    assert ["2515" in text for text in texts((3, 2), 2, 1)] == [True]
    assert not texts((3, 3), 2, 1) and not texts((3, 2), 1, 1) and not texts((3, 2), 2, 0)
    assert not texts((3, 2), 2, 1, channels=1) and not texts((1, 3), 2, 1)


def test_a_batch_of_ten_counts_where_the_gpu_may_be_used(tmp_path):
    def texts(batch, units):
        writer = Writer(x=("fp16", (batch, 4, 16, 16)))
        writer.op("softmax", ("fp16", (batch, 4, 16, 16)), x="x", axis=writer.const("int32", (), (-1,)))
        return find_texts(writer, tmp_path / f"{batch}{units}", units)

    assert texts(10, "all") and texts(12, "cpu_and_gpu")
    assert not texts(9, "all") and not texts(10, "cpu_and_ne")


def test_a_transposed_convolution_whose_result_is_cut(tmp_path):
    def texts(size):
        writer = Writer(x=("fp16", (1, 3, 4, 4)))
        shape = writer.const("int32", (4,), (1, 3, size, size))
        weight = writer.const("fp16", (3, 3, 3, 3))
        writer.op("conv_transpose", ("fp16", (1, 3, size, size)), x="x", weight=weight, output_shape=shape)
        return find_texts(writer, tmp_path / str(size))

    assert ["2281" in text for text in texts(4)] == [True] and not texts(6)


def test_a_computed_exponent_and_a_narrow_output(tmp_path):
    writer = Writer(x=("fp16", (8, 20)), y=("fp16", (8, 20)))
    made = writer.op("pow", ("fp16", (8, 20)), x="x", y="y")
    writer.runs(made)
    assert {text.rpartition("/")[2].partition(",")[0] for text in find_texts(writer, tmp_path / "a")} == {
        "2628",
        "1893",
    }
    writer = Writer(x=("fp16", (8, 32)))
    writer.runs(writer.op("pow", ("fp16", (8, 32)), x="x", y=writer.const("fp32", (), (2.0,))))
    assert not find_texts(writer, tmp_path / "b")
