"""Compressed weights of all schemes against coremltools' own `decompress`."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

RNG = np.random.default_rng(5)


@pytest.fixture(scope="module")
def ops(mil):
    from coremltools.converters.mil.mil.ops.defs import iOS16, iOS18

    return iOS16, iOS18


@pytest.fixture(scope="module")
def sub_byte(mil):
    """sub_byte(values, bits, signed=False): an array of MIL's type of so many bits."""
    from coremltools.converters.mil.mil import types

    def make(values, bits, signed=False):
        name = f"{'' if signed else 'u'}int{bits}"
        return np.asarray(values).astype(types.nptype_from_builtin(types.string_to_builtin(name)))

    return make


def weights_of(mil, tmp_path, bodies, target):
    """What weights are, each made by body(mb), by a program that only shows them (made visible by adding a zero)."""
    from ane_sweep import reference

    x = np.zeros((1,), np.float32)

    def whole(x):
        mb = mil.mb
        zero = mb.mul(x=x, y=np.float32(0))
        return tuple(mb.add(x=mb.cast(x=body(mb), dtype="fp32"), y=zero) for body in bodies)

    path = mil.write(tmp_path / "m.mlpackage", {"x": x}, whole, target)
    return list(reference.load(path).predict({"x": x}).values())


def test_affine(mil, ops, tmp_path):
    cases = []
    for signed, vector, dtype in itertools.product([0, 1], [0, 1], [np.float16, np.float32]):
        data = RNG.integers(0, 128, (4, 6)).astype(np.uint8 if not signed else np.int8) * (-1 if signed else 1)
        scale = RNG.random(6).astype(dtype) if vector else dtype(0.37)
        zero = RNG.integers(0, 9, 6).astype(data.dtype) if vector else data.dtype.type(3)
        cases.append({"quantized_data": data, "zero_point": zero, "scale": scale, "axis": 1})
    bodies = [lambda mb, case=case: mb.constexpr_affine_dequantize(**case) for case in cases]
    for case, found in zip(cases, weights_of(mil, tmp_path, bodies, "iOS16")):
        exact = ops[0].constexpr_affine_dequantize.decompress(*case.values())
        np.testing.assert_allclose(found, exact.astype(np.float32), rtol=1e-3 if exact.dtype == np.float16 else 1e-6)


def test_tables_packed_in_bytes(mil, ops, tmp_path):
    shape, cases = np.uint32((3, 5, 7)), []
    for bits in (1, 2, 4, 6, 8):
        packed = RNG.integers(0, 256, -(-bits * 105 // 8)).astype(np.uint8)
        cases.append({"lut": RNG.standard_normal(1 << bits).astype(np.float16), "indices": packed, "shape": shape})
    bodies = [lambda mb, case=case: mb.constexpr_lut_to_dense(**case) for case in cases]
    for case, found in zip(cases, weights_of(mil, tmp_path, bodies, "iOS16")):
        np.testing.assert_array_equal(found, ops[0].constexpr_lut_to_dense.decompress(*case.values()))


def test_sparse_packed_in_bytes(mil, ops, tmp_path):
    mask = RNG.random(35) < 0.4
    values = RNG.standard_normal(int(mask.sum())).astype(np.float16)
    case = {"nonzero_data": values, "mask": np.packbits(mask, bitorder="little"), "shape": np.uint32((5, 7))}
    (found,) = weights_of(mil, tmp_path, [lambda mb: mb.constexpr_sparse_to_dense(**case)], "iOS17")
    dense = np.zeros(35, np.float16)
    dense[mask] = values
    np.testing.assert_array_equal(found, dense.reshape(5, 7))


def test_tables(mil, ops, sub_byte, tmp_path):
    """All widths, with one table, tables by row, by row and column, and with vectors."""
    layouts = [((1, 1), 1), ((2, 1), 1), ((2, 3), 1), ((1, 3), 4), ((2, 1), 2)]
    cases = []
    for bits, (groups, vector) in itertools.product([1, 2, 3, 4, 6, 8], layouts):
        case = {"indices": sub_byte(RNG.integers(0, 1 << bits, (4, 6)), bits)}
        case["lut"] = RNG.standard_normal((*groups, 1 << bits, vector)).astype(np.float16)
        cases.append(case | ({"vector_axis": np.int32(1)} if vector > 1 else {}))
    bodies = [lambda mb, case=case: mb.constexpr_lut_to_dense(**case) for case in cases]
    for case, found in zip(cases, weights_of(mil, tmp_path, bodies, "iOS18")):
        exact = ops[1].constexpr_lut_to_dense.decompress(case["indices"], case["lut"], case.get("vector_axis"))
        np.testing.assert_array_equal(found, exact)


def test_blocks(mil, ops, sub_byte, tmp_path):
    cases = []
    for bits, signed, with_offset in itertools.product([4, 8], [True, False], [True, False]):
        low = -(1 << (bits - 1)) if signed else 0
        case = {"data": sub_byte(RNG.integers(low, low + (1 << bits), (4, 8)), bits, signed)}
        case["scale"] = RNG.random((2, 4)).astype(np.float16)
        offset = sub_byte(RNG.integers(low, low + (1 << bits), (2, 4)), bits, signed)
        cases.append(case | ({"offset": offset} if with_offset else {}))
    bodies = [lambda mb, case=case: mb.constexpr_blockwise_shift_scale(**case) for case in cases]
    for case, found in zip(cases, weights_of(mil, tmp_path, bodies, "iOS18")):
        exact = ops[1].constexpr_blockwise_shift_scale.decompress(case["data"], case["scale"], case.get("offset"))
        np.testing.assert_array_equal(found, exact)


def test_joint_schemes(mil, ops, sub_byte, tmp_path):
    """Sparse indices into a table, sparse blocks, and scales out of a table: one op feeds the next."""
    mask = sub_byte(RNG.random((4, 6)) < 0.5, 1)
    count = int(np.count_nonzero(mask))
    indices = sub_byte(RNG.integers(0, 4, count), 2)
    lut = RNG.standard_normal((2, 1, 4, 1)).astype(np.float16)
    numbers = RNG.integers(-128, 128, count).astype(np.int8)
    scale = RNG.random((4, 1)).astype(np.float16)

    def from_table(mb):
        places, values = mb.constexpr_lut_to_sparse(indices_mask=mask, indices_nonzero_data=indices, lut=lut)
        return mb.constexpr_sparse_to_dense(nonzero_data=values, mask=places)

    def from_blocks(mb):
        places, values = mb.constexpr_sparse_blockwise_shift_scale(data_mask=mask, nonzero_data=numbers, scale=scale)
        return mb.constexpr_sparse_to_dense(nonzero_data=values, mask=places)

    def chained(mb):
        table = mb.constexpr_lut_to_dense(indices=sub_byte(np.ones((4, 6)), 2), lut=np.int8([[[[1], [2], [3], [4]]]]))
        return mb.constexpr_blockwise_shift_scale(data=table, scale=scale)

    iOS18 = ops[1]
    places, values = iOS18.constexpr_lut_to_sparse.decompress(mask, indices, lut, None)
    exact = iOS18.constexpr_sparse_to_dense.decompress(values, places)
    np.testing.assert_array_equal(weights_of(mil, tmp_path / "a", [from_table], "iOS18")[0], exact)
    places, values = iOS18.constexpr_sparse_blockwise_shift_scale.decompress(mask, numbers, scale, None)
    exact = iOS18.constexpr_sparse_to_dense.decompress(values, places)
    np.testing.assert_array_equal(weights_of(mil, tmp_path / "b", [from_blocks], "iOS18")[0], exact)
    (found,) = weights_of(mil, tmp_path / "c", [chained], "iOS18")
    np.testing.assert_array_equal(found, np.broadcast_to(2 * scale, (4, 6)))


def test_vectors_of_sparse_indices(mil, ops, sub_byte, tmp_path):
    mask = sub_byte(RNG.random((4, 3)) < 0.5, 1)
    indices = sub_byte(RNG.integers(0, 2, int(np.count_nonzero(mask))), 1)
    lut = RNG.standard_normal((1, 1, 2, 2)).astype(np.float16)

    def body(mb):
        places, values = mb.constexpr_lut_to_sparse(
            indices_mask=mask, indices_nonzero_data=indices, lut=lut, vector_axis=0
        )
        return mb.constexpr_sparse_to_dense(nonzero_data=values, mask=places)

    places, values = ops[1].constexpr_lut_to_sparse.decompress(mask, indices, lut, np.int32(0))
    exact = ops[1].constexpr_sparse_to_dense.decompress(values, places)
    np.testing.assert_array_equal(weights_of(mil, tmp_path, [body], "iOS18")[0], exact)


@pytest.mark.parametrize("target", ["iOS16", "iOS18"])
def test_cast(mil, tmp_path, target):
    value = RNG.standard_normal((3, 4)).astype(np.float16)
    bodies = [lambda mb: mb.constexpr_cast(source_val=value, output_dtype="fp32")]
    (found,) = weights_of(mil, tmp_path, bodies, target)
    np.testing.assert_array_equal(found, value.astype(np.float32))


@settings(max_examples=60, deadline=None)
@given(bits=st.sampled_from([1, 2, 3, 4, 6]), count=st.integers(0, 70), seed=st.integers(0, 99))
def test_packing_is_undone(bits, count, seed):
    from ane_sweep.mil.graph import unpack

    numbers = np.random.default_rng(seed).integers(0, 1 << bits, count)
    flat = ((numbers[:, None] >> np.arange(bits)) & 1).astype(np.uint8).reshape(-1)
    raw = np.packbits(flat, bitorder="little")
    np.testing.assert_array_equal(unpack(raw, f"uint{bits}", count), numbers)
    if bits == 4:
        np.testing.assert_array_equal(unpack(raw, "int4", count), np.where(numbers < 8, numbers, numbers - 16))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_quantised_activations(execute, mil, dtype):
    from coremltools.optimize import _utils

    x = RNG.standard_normal((3, 4)).astype(np.float32) * 5
    scale = (RNG.random(4) + 0.02).astype(np.float32)
    zero = RNG.integers(0, 9, 4).astype(dtype)

    def body(x):
        mb = mil.mb
        whole = mb.quantize(input=x, scale=scale, zero_point=zero, axis=1, output_dtype=np.dtype(dtype).name)
        plain = mb.quantize(input=x, scale=np.float32(0.5), output_dtype=np.dtype(dtype).name)
        back = mb.dequantize(input=whole, scale=scale, zero_point=zero, axis=1)
        return mb.cast(x=whole, dtype="int32"), mb.cast(x=plain, dtype="int32"), back

    limits = np.iinfo(dtype)
    whole = np.clip(np.round(x / scale) + zero, limits.min, limits.max)
    found = execute({"x": x}, body)
    np.testing.assert_array_equal(found[0], whole)
    np.testing.assert_array_equal(found[1], np.clip(np.round(x / np.float32(0.5)), limits.min, limits.max))
    exact = _utils.dequantize_by_scale_and_zp(whole.astype(dtype), scale[None], zero[None])
    np.testing.assert_allclose(found[2], exact, rtol=1e-6)
