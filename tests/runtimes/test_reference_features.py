"""Values at the border: what is cast, what is refused, and scalars."""

import numpy as np
import pytest

from ane_sweep import reference
from ane_sweep.errors import PackageError
from ane_sweep.reference.features import Feature


def test_as_core_ml_casts(mil, tmp_path):
    """strict=False is for the drop-in: Core ML takes fp32 for integers and cuts the fraction off."""
    ids = np.zeros((1, 3), np.int32)
    path = mil.write(tmp_path / "m.mlpackage", {"ids": ids}, lambda ids: mil.mb.add(x=ids, y=np.int32(1), name="y"))
    given = np.float32([[1.9, -1.9, 3]])
    assert reference.load(path, strict=False).predict({"ids": given})["y"].tolist() == [[2, 0, 4]]
    assert reference.load(path, strict=False).predict({"ids": given.tolist()})["y"].tolist() == [[2, 0, 4]]
    with pytest.raises(PackageError, match="'ids' is float32, which is not int32"):
        reference.load(path).predict({"ids": given})
    with pytest.raises(PackageError, match="'ids' is <U1, which is not int32"):
        reference.load(path, strict=False).predict({"ids": np.array([["a", "b", "c"]])})


def test_scalars_are_arrays_of_one(mil, tmp_path):
    x = np.float32([[1, 2], [3, 4]])
    path = mil.write(
        tmp_path / "m.mlpackage", {"x": x}, lambda x: mil.mb.reduce_sum(x=x, axes=[0, 1], keep_dims=False, name="y")
    )
    found = reference.load(path).predict({"x": x})["y"]
    assert found.shape == (1,) and found.tolist() == [10]


def test_shapes_that_do_not_fit():
    plain = Feature("x", "array", np.dtype(np.float32), (2, 3))
    assert plain.misfit((2, 3)) is None and plain.misfit((3, 2)) == "has shape [3, 2], not [2, 3]"
    open_ended = Feature("x", "array", np.dtype(np.float32), (2, 3), ranges=((1, None), (3, 3)))
    assert open_ended.misfit((999, 3)) is None
    assert open_ended.misfit((0, 3)) == "Size (0) of dimension (0) is not in allowed range (1..)"
    assert open_ended.misfit((1, 3, 1)) == "has 3 dimensions, not 2"
    some = Feature("x", "array", np.dtype(np.float32), (2, 3), enumerated=((2, 3), (4, 3)))
    assert some.misfit((4, 3)) is None and "(2 x 4) was not in enumerated set" in some.misfit((2, 4))


def test_what_is_not_given_has_its_default(mil, tmp_path):
    """An optional input: its default value stands in."""
    from ane_sweep.mil import package

    x = np.float32([1, 2])
    path = mil.write(tmp_path / "m.mlpackage", {"x": x, "z": x}, lambda x, z: mil.mb.add(x=x, y=z, name="y"))
    spec = package.read(path).spec
    feature = next(item for item in spec.description.input if item.name == "z")
    feature.type.isOptional, feature.type.multiArrayType.floatDefaultValue = True, 5.0
    (path / "Data" / "com.apple.CoreML" / "model.mlmodel").write_bytes(spec.SerializeToString())
    model = reference.load(path)
    assert model.inputs["z"].is_optional and model.predict({"x": x})["y"].tolist() == [6, 7]
    assert model.predict({"x": x, "z": x})["y"].tolist() == [2, 4]
