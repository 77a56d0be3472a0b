"""model=package under Core ML's stand-in: a compiled model, a pipeline that ends in suppression, an image."""

import numpy as np
import pytest
from PIL import Image
from placement.by_hand import conv_chain
from verbs.test_packages_of_others import compiled, detector

from ane_sweep.worker.runtimes import coreml
from ane_sweep.worker.runtimes._chain import to_picture

from .test_stages import took
from .test_sweep_on_a_stand_in import sweep

ANSWERS = [{"on": "predict", "units": "cpu_and_ne", "ms": 2, "native_ms": 1.5}]
ASKED = ["model=package", "weights=pretrained", "model.texts.count=2", "compute_units=cpu_and_ne", "evidence=off"]


def statuses(cell):
    return {stage.stage: stage.status.value for stage in cell.stages}


@pytest.mark.slow
def test_a_pipeline_and_a_compiled_model_are_loaded_placed_scored_and_timed_as_they_are(tmp_path):
    detector(tmp_path / "yolo.mlpackage")
    compiled(conv_chain(tmp_path / "net.mlpackage", 3, channels=8, size=8), tmp_path / "net.mlmodelc")
    found, _, _ = sweep(
        tmp_path, ANSWERS, *ASKED, "model.path=yolo.mlpackage,net.mlmodelc", "chunks=1,2", "precision=fp16,p4"
    )
    whole = [cell for cell in found if cell.cell["chunks"] == 1 and cell.cell["precision"] == "fp16"]
    assert len(found) == 8 and len(whole) == 2
    for cell in whole:
        assert cell.status.value in ("ok", "degraded"), cell.reason
        assert {statuses(cell)[name] for name in ("compile", "load", "place", "score")} == {"ok"}, statuses(cell)
        assert took(cell.value("latency_median_ms"), 2) and cell.value("psnr_db") > 40
    for cell in found:
        if cell not in whole:
            assert cell.status.value == "refused", cell.reason
            way = (
                "or give the .mlpackage that it was compiled from"
                if "net" in str(cell.cell)
                else "`ane-sweep chunk yolo"
            )
            assert way in cell.reason


@pytest.mark.parametrize(("layout", "channels"), [("RGB", 3), ("L", 1), ("F", 1)])
def test_an_image_input_goes_into_core_ml_as_the_picture_that_coremltools_takes(layout, channels):
    levels = np.arange(channels * 2 * 3, dtype=np.int32).reshape(1, channels, 2, 3)
    made = to_picture(levels, layout)
    assert (made.mode, made.size) == (layout, (3, 2))
    np.testing.assert_array_equal(np.asarray(made).reshape(2, 3, channels), levels[0].transpose(1, 2, 0))


def test_the_runtime_hands_over_pictures_and_arrays_each_as_it_is_described(tmp_path, scripted):
    scripted()
    (tmp_path / "program").mkdir()
    detector(tmp_path / "program" / "model.mlpackage")
    runtime = coreml.load({"compute_units": "all"}, {"program": tmp_path / "program"})
    given = runtime.prepare({"image": np.zeros((1, 3, 8, 8), np.int32), "raw": np.zeros((6, 7), np.float32)})
    assert isinstance(given["image"], Image.Image) and given["image"].mode == "RGB"
    assert given["raw"].dtype == np.float32 and set(runtime.predict(given)) == {"coordinates", "confidence"}
