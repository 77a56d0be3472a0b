"""Programs that take several shapes, cut: what crosses is declared as the inputs are, and computes the same bits at every shape."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placement.by_hand import Writer

from ane_sweep import reference
from ane_sweep.errors import AneSweepError, ChunkError
from ane_sweep.mil import chunker, package
from ane_sweep.mil.chunker import ChunkRequest
from ane_sweep.placement import flexible, programs

COUNT = 3


def cut(source, out, count=COUNT):
    facts = chunker.chunk(source, out, ChunkRequest(count, varying=flexible.varying))
    assert facts["chunks"] == count
    return package.program_paths(out)


def chain(paths, values):
    values = dict(values)
    for path in paths:
        model = reference.load(path)
        values |= model.predict({name: values[name] for name in model.inputs})
    return values


def check(source, out, inputs, count=COUNT):
    """The chunks of `source` give its bits on each of `inputs`."""
    chunks, whole = cut(source, out, count), reference.load(source)
    for values in inputs:
        found, expected = chain(chunks, values), whole.predict(values)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)
    return chunks


def flexible_input(writer, shapes=(), ranges=()):
    """The only input takes these."""
    array = writer.spec.description.input[0].type.multiArrayType
    array.ClearField("shapeRange")
    array.shape[:] = shapes[0] if shapes else [low for low, _ in ranges]
    for shape in shapes:
        array.enumeratedShapes.shapes.add().shape.extend(shape)
    for low, high in ranges:
        array.shapeRange.sizeRanges.add(lowerBound=low, upperBound=high)
    return writer


def weight(writer, shape):
    values = np.random.default_rng(writer.names).standard_normal(shape).astype(np.float32)
    return writer.op(
        "cast",
        ("fp16", shape),
        x=writer.const("fp32", shape, tuple(values.ravel())),
        dtype=writer.const("string", (), "fp16"),
    )


def picture():
    """Two convolutions of which the second halves the size, and a bool that crosses beside them."""
    writer, open_size = Writer(x=("fp16", (1, 3, None, None))), ("fp16", (1, 4, None, None))
    same, two = writer.const("string", (), "same"), writer.const("int32", (2,), (2, 2))
    first = writer.op("conv", open_size, x="x", weight=weight(writer, (4, 3, 3, 3)), pad_type=same, strides=two)
    flag = writer.op("greater", ("bool", open_size[1]), x=first, y=writer.op("square", open_size, x=first))
    second = writer.op("conv", open_size, x=first, weight=weight(writer, (4, 4, 3, 3)), pad_type=same)
    third = writer.op("conv", open_size, x=second, weight=weight(writer, (4, 4, 3, 3)), pad_type=same)
    return writer.runs(writer.op("select", open_size, cond=flag, a=third, b=first))


def rows(low=1, high=-1):
    """Linear layers over any number of rows, which a reshape through the program's own sizes turns and turns back."""
    writer, of_8 = Writer(x=("fp16", (None, 8))), ("fp16", (None, 8))
    value = "x"
    for _ in range(3):
        value = writer.op("linear", of_8, x=value, weight=weight(writer, (8, 8)))
        sizes = writer.op("shape", ("int32", (2,)), x=value)
        count = writer.op(
            "gather",
            ("int32", (1,)),
            x=sizes,
            indices=writer.const("int32", (1,), (0,)),
            axis=writer.const("int32", (), (0,)),
        )
        parts = [count, writer.const("int32", (1,), (2,)), writer.const("int32", (1,), (4,))]
        wanted = writer.op(
            "concat",
            ("int32", (3,)),
            values=parts,
            axis=writer.const("int32", (), (0,)),
            interleave=writer.const("bool", (), (False,)),
        )
        split = writer.op(
            "relu", ("fp16", (None, 2, 4)), x=writer.op("reshape", ("fp16", (None, 2, 4)), x=value, shape=wanted)
        )
        value = writer.op("reshape", of_8, x=split, shape=writer.const("int32", (2,), (-1, 8)))
    return flexible_input(writer.runs(value), ranges=((low, high), (8, 8)))


def drawn(*shapes):
    generator = np.random.default_rng(0)
    return [{"x": generator.standard_normal(shape).astype(np.float16)} for shape in shapes]


def test_enumerated_shapes_are_enumerated_where_they_cross_and_others_stay_refused(tmp_path):
    shapes = [(1, 3, 8, 8), (1, 3, 16, 8), (1, 3, 32, 32)]
    source = flexible_input(picture(), shapes=shapes).save(tmp_path / "m.mlpackage")
    first, *_ = check(source, tmp_path / "cut", drawn(*shapes))
    handed = [feature.type.multiArrayType for feature in package.read(first).spec.description.output]
    assert [[tuple(one.shape) for one in array.enumeratedShapes.shapes] for array in handed] == [
        [(1, 4, 4, 4), (1, 4, 8, 4), (1, 4, 16, 16)]
    ] * len(handed)
    with pytest.raises(AneSweepError, match="enumerated"):
        chain([first], drawn((1, 3, 24, 24))[0])


def test_a_range_crosses_as_the_range_that_follows_from_it(tmp_path):
    source = flexible_input(picture(), ranges=((1, 1), (3, 3), (8, 64), (8, -1))).save(tmp_path / "m.mlpackage")
    chunks = check(source, tmp_path / "cut", drawn((1, 3, 8, 8), (1, 3, 33, 9), (1, 3, 64, 100)))
    array = package.read(chunks[1]).spec.description.input[0].type.multiArrayType
    assert [(one.lowerBound, one.upperBound) for one in array.shapeRange.sizeRanges] == [
        (1, 1),
        (4, 4),
        (4, 32),
        (4, -1),
    ]
    assert programs.load(chunks[1]).is_ranged, "and lint judges the chunk at its default"


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    low=st.integers(1, 4),
    more=st.one_of(st.none(), st.integers(0, 9)),
    count=st.integers(2, 6),
    seed=st.integers(0, 99),
)
def test_any_batch_is_cut_at_any_of_its_places(low, more, count, seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    source = rows(low, -1 if more is None else low + more).save(folder / "m.mlpackage")
    sizes = np.random.default_rng(seed).integers(low, low + (20 if more is None else more) + 1, 3)
    check(source, folder / "cut", drawn(*((int(size), 8) for size in sizes)), count)


def test_what_follows_from_data_does_not_cross_and_the_reason_says_so(tmp_path):
    writer = Writer(x=("fp16", (None, 8)))
    found = writer.op("non_zero", ("int32", (None, 2)), x="x")
    for _ in range(3):
        found = writer.op("add", ("int32", (None, 2)), x=found, y=found)
    source = flexible_input(writer.runs(found), ranges=((1, 9), (8, 8))).save(tmp_path / "m.mlpackage")
    with pytest.raises(
        ChunkError, match="at 3 places a value crosses whose size does not follow from the shapes of the inputs"
    ):
        cut(source, tmp_path / "cut")
