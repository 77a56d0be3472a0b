import re
import socket
import subprocess
import sys

import pytest

from ane_sweep.machine import host, tools


def test_the_fingerprint_knows_this_machine():
    found = host.fingerprint()
    assert set(found) == {
        "system",
        "machine",
        "chip",
        "cores",
        "memory_bytes",
        "os_version",
        "os_build",
        "python",
        "power",
        "low_power",
        "thermal",
    }
    assert found["system"] in ("Linux", "Darwin")
    assert found["memory_bytes"] > 1 << 28
    assert 1 <= found["cores"]["usable"] <= found["cores"]["logical"]
    assert found["power"] in (None, "ac", "battery")
    assert found["chip"]


def test_no_name_of_this_machine_in_it():
    name = socket.gethostname()
    if len(name) < 4:
        pytest.skip("the host's name is too short to look for")
    assert name not in str({key: value for key, value in host.fingerprint().items() if key != "os_build"})


def test_the_digest_is_steady_and_ignores_power_and_heat(monkeypatch):
    first = host.digest()
    assert re.fullmatch("[0-9a-f]{64}", first)
    monkeypatch.setattr(host, "power", lambda: "battery")
    monkeypatch.setattr(host, "thermal", lambda: {"kind": "hottest_zone_celsius", "value": 99.0})
    assert host.digest() == first
    still = host._still()
    monkeypatch.setattr(host, "_still", lambda: {**still, "python": "3.99", "memory_bytes": still["memory_bytes"] + 1})
    assert host.digest() == first
    monkeypatch.setattr(host, "_still", lambda: {**still, "chip": "Apple M9"})
    assert host.digest() != first


def test_the_toolchain_is_read_without_importing_it():
    code = (
        "import sys; from ane_sweep.machine import host; t = host.toolchain(); host.fingerprint()\n"
        "heavy = {'torch', 'coremltools', 'transformers', 'numpy'}\n"
        "print(t['torch'], t['coremltools'], sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    torch, coremltools, imported = done.stdout.split(maxsplit=2)
    assert torch.startswith("2.") and coremltools[0].isdigit()
    assert imported.strip() == "[]"


def test_a_tool_that_is_absent_is_none(monkeypatch):
    monkeypatch.setattr(
        host.metadata, "version", lambda name: (_ for _ in ()).throw(host.metadata.PackageNotFoundError)
    )
    assert host.version_of("torch") is None


def test_system_tools_that_hang_fail_or_are_missing(monkeypatch):
    assert tools.text(sys.executable, "-S", "-c", "import time; time.sleep(9)", timeout_s=0.2) is None
    assert tools.text(sys.executable, "-S", "-c", "raise SystemExit(1)") is None
    assert tools.text("/nonesuch/tool") is None
    assert tools.text(sys.executable, "-S", "-c", "print(' 8 ')") == "8"


def test_macos_answers_are_read(monkeypatch):
    """The parsing only; the tools themselves are on macOS."""
    answers = {
        "machdep.cpu.brand_string": "Apple M4",
        "hw.perflevel0.physicalcpu": "4",
        "hw.perflevel1.physicalcpu": "6",
        "-productVersion": "26.1",
        "-buildVersion": "25B78",
        "batt": "Now drawing from 'AC Power'",
        "-g": " lowpowermode         1",
        "therm": "CPU_Speed_Limit \t= 80",
    }
    monkeypatch.setattr(host.sys, "platform", "darwin")
    monkeypatch.setattr(tools, "text", lambda *command, timeout_s=5: answers.get(command[-1]))
    host._read_still.cache_clear()
    try:
        found = host.fingerprint()
    finally:
        host._read_still.cache_clear()
    assert (found["chip"], found["os_version"], found["os_build"]) == ("Apple M4", "26.1", "25B78")
    assert (found["cores"]["performance"], found["cores"]["efficiency"]) == (4, 6)
    assert found["low_power"] is True
    assert (found["power"], found["thermal"]) == ("ac", {"kind": "cpu_speed_limit_percent", "value": 80})
