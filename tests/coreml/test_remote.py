"""An iPhone on the USB port, played by the stand-in: coremltools' own remote code runs in both directions."""

import json

import numpy as np
import pytest

from ane_sweep.errors import StageError, Unavailable
from ane_sweep.machine import usb
from ane_sweep.worker.programs.mlprogram import place as planner
from ane_sweep.worker.programs.mlprogram import steps
from ane_sweep.worker.runtimes import _remote, coreml
from ane_sweep.worker.stages import compile, latency, place

from .conftest import X
from .test_stages import EXPECTED, PARAMS

# coremltools 9.0 sends its last unload through an executor that calls a coroutine function and drops what it returns
pytestmark = pytest.mark.filterwarnings("ignore:coroutine '_call' was never awaited:RuntimeWarning")
USB = {**PARAMS, "device": "usb", "chip": "iphone17,3"}


def phone(number=1):
    """Constructed: `xcrun devicectl list devices` as coremltools and we ask it."""
    listed = [
        {"identifier": f"I{n}", "connectionProperties": {"tunnelState": "connected"},
         "deviceProperties": {"name": f"Phone {n}", "osVersionNumber": "18.2", "osBuildUpdate": "22C152"},
         "hardwareProperties": {"deviceType": "iPhone", "productType": "iPhone17,3", "udid": f"U{n}"}}
        for n in range(number)
    ]  # fmt: skip
    said = json.dumps({"result": {"devices": listed}})
    return {"on": "command", "argv": ["xcrun", "devicectl", "list", "devices"], "stdout": said}


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("kind", ["single", "chain", "pipeline", "functions"])
def test_predict_on_the_phone(kind, inputs, scripted):
    scripted(
        phone(),
        {"on": "predict", "device": "usb", "ms": 4},
        {"on": "load", "device": "usb", "ms": 900},
        {"on": "load", "device": "local", "fail": "asked of the Mac"},
    )
    runtime = coreml.load(USB, inputs(kind))
    before = runtime.clock()
    made = runtime.predict(runtime.prepare({"x": X}))
    np.testing.assert_allclose(made["y"], EXPECTED[kind], rtol=2e-3, atol=2e-2)
    programs = 2 if kind == "chain" else 1
    assert runtime.last_native_ms == 4 * programs and runtime.load_ms == [900] * programs
    assert runtime.clock() - before == pytest.approx(0.004 * programs), "the way there is no part of a figure"
    assert runtime.realised["device"] == "usb: iphone, 18.2 (22C152)"


def test_latency_of_the_phone_is_its_own(inputs, scripted, tmp_path):
    scripted(phone(), {"on": "predict", "device": "usb", "ms": [9, 4]})
    policy = {"warmup": 1, "samples": 3, "max_seconds": 60, "idle_s": 0}
    found = latency.run({**USB, "policy": policy, "round": 1}, inputs("single"), tmp_path)
    figures = {entry.name: entry.value for entry in found.metrics}
    assert figures["latency_first_ms"] == pytest.approx(9) and figures["latency_median_ms"] == pytest.approx(4)


@pytest.mark.slow
@pytest.mark.ci
def test_the_plan_of_the_phone(inputs, scripted, tmp_path):
    """In a process of its own, as place always asks."""
    scripted(phone(), {"on": "plan", "device": "usb", "op": "relu", "preferred": "gpu", "supported": ["cpu", "gpu"]})
    found = inputs("single") | {"compiled": tmp_path / "compiled"}
    found["compiled"].mkdir()
    compile.run({"compiler": "coremltools"}, found, found["compiled"])
    made = place.run({**USB, "compute_units": "all"}, found, tmp_path)
    table = json.loads((tmp_path / "placement.planned.iphone17,3.json").read_text())["table"]
    assert [(row["op_type"], row["preferred"]) for row in table] == [("linear", table[0]["preferred"]), ("relu", "gpu")]
    assert table[1]["supported"] == ["cpu", "gpu"] and made.placement[0].chip == "iphone17,3"


@pytest.mark.slow
@pytest.mark.ci
def test_no_phone_and_two_phones(inputs, scripted):
    scripted(phone(0))
    assert usb.refusal().startswith("device=usb: no iPhone or iPad is connected: plug one in, unlock it")
    with pytest.raises(Unavailable, match="device=usb: no iPhone or iPad connected; one is needed"):
        _remote.prepare_device()
    with pytest.raises(Unavailable, match=r"^device=usb: no iPhone or iPad connected; one is needed$"):
        steps.run_step(
            planner.__name__, "plan_step", "place", params=USB, program="p", chunk=None, function=None, home="h"
        )
    scripted(phone(2))
    assert usb.refusal() == "device=usb: 2 devices are connected; unplug all but one"
    scripted()
    with pytest.raises(StageError, match="could not be prepared: The 'devicectl' command is required"):
        _remote.prepare_device()


def test_states_are_refused_on_the_phone(inputs, scripted):
    scripted(phone())
    with pytest.raises(StageError, match="remote devices keep no states"):
        coreml.load(USB, inputs("stateful"))
