"""Probes of this host's frameworks, run in a separate process: `python -m ane_sweep.worker.runtimes._probe
coreml|torch`.

It prints one JSON object. The caller reports all failures, crashes included.
"""

import contextlib
import importlib
import json
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

from ane_sweep.machine import stand_in
from ane_sweep.worker.runtimes._coremltools import import_coremltools


def probe_coreml() -> dict[str, object]:
    """Return {native, storage: bool, devices: {name: cores or null}, predict_ms or error}: a tiny program on the CPU."""
    if script := stand_in.active():
        script.install()
    ct = import_coremltools()
    found: dict[str, object] = {"native": ct.models.model._MLModelProxy is not None, "storage": False}
    with contextlib.suppress(ImportError):
        importlib.import_module("coremltools.libmilstoragepython")
        found["storage"] = True
    if found["native"]:
        devices = ct.models.compute_device.MLComputeDevice.get_all_compute_devices()
        found["devices"] = {_name_device(device): getattr(device, "total_core_count", None) for device in devices}
        try:
            found["predict_ms"] = _time_prediction(ct)
        except RuntimeError as error:
            found["error"] = str(error).splitlines()[0]
    return found


def _name_device(device: object) -> str:
    return {
        "MLCPUComputeDevice": "CPU",
        "MLGPUComputeDevice": "GPU",
        "MLNeuralEngineComputeDevice": "Neural Engine",
    }.get(type(device).__name__, type(device).__name__)


def _time_prediction(ct: ModuleType) -> float:
    """Return the milliseconds of the second prediction of y = relu(x), 4 values. Raises RuntimeError from Core ML."""
    import numpy as np
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.mil import Var

    def relu(x: Var) -> Var:
        return mb.relu(x=x, name="y")

    program = mb.program(input_specs=[mb.TensorSpec(shape=(1, 4))], opset_version=ct.target.iOS16)(relu)

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "probe.mlpackage")
        made = ct.convert(
            program, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS16, skip_model_load=True
        )
        made.save(path)
        model = ct.models.MLModel(path, compute_units=ct.ComputeUnit.CPU_ONLY)
        x = np.array([[-1, 0, 1, 2]], np.float32)
        for _ in range(2):
            began = time.perf_counter()
            y = model.predict({"x": x})["y"]
            spent = 1000 * (time.perf_counter() - began)
    if not np.allclose(y, [[0, 0, 1, 2]]):
        raise RuntimeError(f"relu of -1, 0, 1, 2 came out as {np.asarray(y).ravel().tolist()}")
    return spent


def probe_torch() -> dict[str, object]:
    """Return {version, mps: bool, cuda: bool, threads}."""
    import torch as framework

    devices = {"mps": framework.backends.mps.is_available(), "cuda": framework.cuda.is_available()}
    return {"version": framework.__version__, **devices, "threads": framework.get_num_threads()}


if __name__ == "__main__":
    print(json.dumps({"coreml": probe_coreml, "torch": probe_torch}[sys.argv[1]]()))
