"""The evidence pass with every source present, missing, refused, flooding or silent; nothing of that fails it. Constructed."""

import json
import plistlib
from types import SimpleNamespace

import numpy as np
import pytest

from ane_sweep.errors import StageError, Unavailable
from ane_sweep.machine import stand_in, thermal
from ane_sweep.worker import runtimes
from ane_sweep.worker.stages import evidence

PLIST = plistlib.dumps(
    {"elapsed_ns": 10**8, "processor": {"cpu_energy": 30, "gpu_energy": 2, "ane_energy": 0}}
).decode()
BUSY = PLIST.replace("<integer>30</integer>", "<integer>80</integer>").replace(
    "<key>ane_energy</key>\n\t\t<integer>0</integer>", "<key>ane_energy</key>\n\t\t<integer>146</integer>"
)
LOG = {"on": "command", "argv": ["log", "stream"], "stdout": "Filtering the log data using ...\n", "forever": True}
SUDO = ["sudo", "-n", "powermetrics"]
POWER = [
    {
        "on": "command",
        "argv": SUDO,
        "stdout": BUSY,
        "repeat": 5,
        "from_call": 7,
    },  # 1 and 2 a look, 3 the log, 4 and 5 a look, 6 at rest
    {"on": "command", "argv": SUDO, "stdout": PLIST, "repeat": 5},
]
HEAT = {"on": "command", "argv": ["notifyutil"], "stdout": "com.apple.system.thermalpressurelevel 1\n"}
DIE = {"on": "command", "argv": thermal.SENSORS, "stdout": '{"PMU tdie1": 48.5}'}


def said(message: str, pid: int) -> str:
    return json.dumps({"eventMessage": message, "processID": pid, "processImagePath": "/usr/libexec/aned"}) + "\n"


class Loaded(runtimes.Runtime):
    def __init__(self, error: Exception | None = None):
        self.error, self.calls = error, 0

    def predict(self, values):
        self.calls += 1
        if self.error:
            raise self.error
        return values


@pytest.fixture
def pass_(tmp_path, monkeypatch):
    """Runs the stage over a program that costs nothing, on a Mac that answers as given."""
    np.savez(tmp_path / "inputs.npz", input_ids=np.zeros((2, 1, 4), np.int32), valid=np.ones((2, 4), bool))
    monkeypatch.setattr(evidence, "LISTEN_S", 0.02)
    monkeypatch.setattr(evidence, "_ATTACH_S", 5.0)

    def run(*answers, loaded=None, available=None):
        path = tmp_path / f"script-{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps({"name": "mac", "source": "constructed", "answers": answers}))
        monkeypatch.setenv(stand_in.VARIABLE, str(path))
        fake = SimpleNamespace(available=lambda: available, load=lambda params, inputs: loaded or Loaded())
        monkeypatch.setattr(runtimes, "get", lambda name: fake)
        out = tmp_path / path.stem
        out.mkdir()
        return evidence.run({"runtime": "coreml"}, {"reference": tmp_path}, out)

    return run


def figures(result) -> dict:
    return {m.name: m.value for m in result.metrics}


def test_everything_there(pass_):
    result = pass_(LOG, *POWER, HEAT, DIE)
    told, found = result.realised["evidence"], figures(result)
    assert told["log"] == "measured" and told["thermal_pressure"] == "moderate"
    assert told["power"] == "measured" and told["predictions"] > 0
    assert found["power_ane_mw"] == pytest.approx(1460) and found["power_cpu_mw"] == pytest.approx(500)
    assert 0 < found["energy_ane_mj"] < 1460 and found["die_celsius"] == 48.5
    assert all(m.kind == "measured" for m in result.metrics)
    assert result.facts["evidence"]["missing"] == []
    assert result.facts["evidence"]["power"]["ane"]["median"] == pytest.approx(1460)


def test_nothing_there_is_no_failure(pass_):
    result = pass_()
    told = result.realised["evidence"]
    assert told["log"].startswith("log cannot be run: not in the stand-in's script")
    assert told["power"].startswith("sudo cannot be run")
    assert told["thermal_pressure"] == "notifyutil does not tell the thermal pressure level here"
    assert [text.split(":")[0] for text in result.facts["evidence"]["missing"]] == ["power", "log"]
    assert "energy_ane_mj" not in figures(result)


def test_powermetrics_tells_the_pressure_first(pass_):
    hot = [{**answer, "stdout": answer["stdout"].replace("<dict>", "<dict><key>thermal_pressure</key><string>Heavy</string>", 1)}
           for answer in POWER]  # fmt: skip
    assert pass_(LOG, *hot, HEAT).realised["evidence"]["thermal_pressure"] == "heavy"


def test_sudo_refuses(pass_):
    result = pass_(LOG, HEAT, {"on": "command", "argv": SUDO, "stderr": "sudo: a password is required\n", "code": 1})
    assert "sudo visudo -f /etc/sudoers.d/powermetrics" in result.realised["evidence"]["power"]
    assert result.realised["evidence"]["log"] == "measured", "one source that is missing costs no other"


def test_power_stops_half_way(pass_):
    late = {"on": "command", "argv": SUDO, "stderr": "powermetrics: killed\n", "code": 9, "from_call": 7}
    told = pass_(LOG, late, POWER[1]).realised["evidence"]
    assert told["power"] == "powermetrics ended with 9: powermetrics: killed"


def test_power_that_hangs_is_not_waited_for(pass_, monkeypatch):
    monkeypatch.setattr(evidence, "_LOADED_S", 0.3)
    told = pass_(LOG, {"on": "command", "argv": SUDO, "forever": True}).realised["evidence"]
    assert told["power"] == "powermetrics gave nothing in 0 s"


def test_a_silent_channel_is_unavailable_and_the_others_count(pass_):
    """metaspartan/mactop#72: M5 reports 0 under load."""
    result = pass_(LOG, POWER[1])
    assert "the ane channel read 0 throughout" in result.realised["evidence"]["power"]
    assert "energy_ane_mj" not in figures(result) and "energy_cpu_mj" in figures(result)
    assert "ane" not in result.facts["evidence"]["power"]


def test_lines_of_the_log_are_explained(pass_, monkeypatch):
    monkeypatch.setattr(evidence.os, "getpid", lambda: 4242)
    text = said("ANECCompile() FAILED", 4242) + said("VM exhausted", 1) * 3
    result = pass_({**LOG, "stdout": LOG["stdout"] + text}, *POWER)
    found = result.facts["evidence"]["findings"]
    assert [(f["says"], f["ours"], f["count"]) for f in found] == [("ane_failed", True, 1), ("memory", False, 3)]
    assert result.realised["evidence"]["findings"] == found


def test_a_flood_is_bounded_and_said(pass_, monkeypatch, tmp_path):
    monkeypatch.setattr(evidence, "LOG_BYTES", 1 << 20)
    line = said("VM exhausted " + "x" * 500, 1)
    monkeypatch.setattr(evidence, "LISTEN_S", 1.0)
    result = pass_({**LOG, "stdout": line, "repeat": 20000}, *POWER)
    assert result.realised["evidence"]["log_note"] == "the log flooded: of 1 MiB on it was not read"
    (finding,) = result.facts["evidence"]["findings"]
    assert 1000 < finding["count"] < 3000 and len(finding["line"]) <= 400


def test_a_log_that_ends_by_itself(pass_):
    ended = {
        **LOG,
        "stdout": "",
        "stderr": "log: Must be admin to run 'stream' command\n",
        "code": 64,
        "forever": False,
    }
    told = pass_(ended, *POWER).realised["evidence"]
    assert told["log"] == "`log stream` ended early with 64: log: Must be admin to run 'stream' command"


def test_a_program_that_fails_says_what_the_log_said(pass_, monkeypatch):
    monkeypatch.setattr(evidence.os, "getpid", lambda: 4242)
    answer = {**LOG, "stdout": LOG["stdout"] + said("Error plan build: -1.", 4242)}
    with pytest.raises(
        StageError, match=r"RuntimeError: no\. The system log says: Core ML could not build its execution"
    ):
        pass_(answer, loaded=Loaded(RuntimeError("no")))


def test_off_a_mac_it_is_unavailable(pass_):
    with pytest.raises(Unavailable, match="runtime=coreml needs macOS"):
        pass_(available="needs macOS")


def ps(aned: str, compiler: str | None, from_call: int) -> dict:
    text = f"  311  51200   {aned} /usr/libexec/aned\n" + (
        f"  902 1048576 {compiler} /x/ANECompilerService\n" if compiler else ""
    )
    return {"on": "command", "argv": ["/bin/ps"], "stdout": text, "from_call": from_call}


def vm(free: int, swapped: int, from_call: int) -> dict:
    """As vm_stat(1) prints it, in a part."""
    lines = {"Pages free": free, "Pages wired down": 100, "Pages occupied by compressor": 7, "Swapouts": swapped}
    head = "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
    text = head + '"Translation faults":  12.\n' + "".join(f"{name}:  {n}.\n" for name, n in lines.items())
    return {"on": "command", "argv": ["/usr/bin/vm_stat"], "stdout": text, "from_call": from_call}


def test_the_services_time_memory_and_life_and_the_machines_memory(pass_):
    """The compiler starts while the program is loaded; 3 GB leave the free pages, 5 pages are swapped out."""
    looks = [ps("0:09.50", "1:40.00", 3), ps("0:08.25", None, 1), vm(1000, 15, 8), vm(201000, 10, 1)]
    result = pass_(LOG, *POWER, *looks)
    told, found = result.realised["evidence"], figures(result)
    assert told["services"] == [
        {"name": "ANECompilerService", "pid": 902, "cpu_s": 100.0, "resident_bytes": 1 << 30, "life": "started"},
        {"name": "aned", "pid": 311, "cpu_s": 1.25, "resident_bytes": 51200 << 10, "life": "stayed"},
    ]
    assert found["service_aned_cpu_s"] == 1.25 and found["service_ANECompilerService_bytes"] == 1 << 30
    assert told["vm_stat"] == "measured" and found["machine_free_bytes"] == -200000 * 16384
    assert found["machine_swapped_out_bytes"] == 5 * 16384 and found["machine_wired_bytes"] == 0


def test_services_that_nobody_sees_are_a_sentence(pass_):
    told = pass_(LOG, *POWER).realised["evidence"]
    assert (
        told["services"] == "none of Apple's services for the Neural Engine was seen"
        and told["vm_stat"] == "vm_stat gave nothing"
    )
