"""What Apple's tools print, read from samples; each says where it is from, or that it was constructed."""

import json
from pathlib import Path

import pytest

from ane_sweep.machine import apple, services, stand_in, usb
from ane_sweep.mil import analytics
from ane_sweep.worker.programs.mlprogram import place as planner
from ane_sweep.worker.stages import place

RECORDED = Path(__file__).parent / "recorded"


def test_analytics_of_a_real_compilation():
    """recorded/README.md says where from: an embedding with two linear layers on an M4."""
    rows = analytics.read(RECORDED / "analytics_embedding.mil")
    assert len(rows) == 13
    by_name = {row["name"]: row for row in rows}
    gather = by_name["gather_0_cast_uint16_cast_uint16"]
    assert (gather["op_type"], gather["backend"], gather["unit"]) == ("gather", "bnns", "cpu")
    assert gather["why_not_ane"] == "Unsupported gather index type"
    assert gather["supported"] == ["bnns", "classic_cpu"]
    assert gather["estimated_ms"] == {"bnns": 0.71221833887329444, "classic_cpu": 0.81920670000000007}
    linear = by_name["wrap_out_0_lin"]
    assert (linear["unit"], linear["why_not_ane"]) == ("ane", None)
    assert linear["estimated_ms"]["ane"] == 0.014452336171894743
    assert by_name["greater_equal_0"]["why_not_ane"] == 'Unable to resolve operation input "y".'
    assert rows[-2]["name"] == "wrap_out_1_relu", "the compiler's own copy carries the name that the program gave"


def test_analytics_of_other_forms():
    """Constructed: what the published files hold in other places (several outputs, hexadecimal numbers)."""
    (row,) = analytics.parse(
        [
            "    tensor<fp16, [16, 1, 64]> lstm_0_0, tensor<fp16, [1, 64]> lstm_0_1 = lstm(x = a)"
            '[BackendSupport = list<string, 2>(["unsupported", "bnns"]), EstimatedRuntime = dict<string, fp64>'
            '({{"bnns", 0x1p-3}}), SelectedBackend = string("bnns"), ValidationMessage = dict<string, string>'
            '({{"ane", "Unsupported MIL operation \\"lstm\\"."}}), milId = uint64(5), name = string("lstm_0")];'
        ]
    )
    assert (row["name"], row["op_type"], row["estimated_ms"]) == ("lstm_0_0", "lstm", {"bnns": 0.125})
    assert row["why_not_ane"] == 'Unsupported MIL operation "lstm".'
    assert analytics.parse(['int32 x = const()[name = string("x")];', "}", "garbage = ("]) == []


def test_analytics_that_cannot_be_read_are_no_analytics(tmp_path):
    assert analytics.read(tmp_path / "none.mil") == [] and analytics.find_files(tmp_path) == []


def test_rows_of_a_plan_get_the_compilers_reason():
    noted = analytics.read(RECORDED / "analytics_embedding.mil")
    row = {
        "chunk": None,
        "function": "main",
        "preferred": "cpu",
        "supported": ["cpu"],
        "cost": 0.9,
        "op_type": "gather",
    }
    (found,) = planner.add_notes([{**row, "name": "gather_0_cast_uint16_cast_uint16"}], noted)
    assert found["why_not_ane"] == "Unsupported gather index type" and found["backend"] == "bnns"
    (entry,) = place.group_reasons([found])
    assert (entry.reason, entry.source) == ("Unsupported gather index type", "analytics.mil")
    (other,) = planner.add_notes([{**row, "name": "gather_1"}], noted)
    assert "why_not_ane" not in other


def test_the_neural_engine_in_the_registry():
    """Keys and values: an M4 as published (ioreg -c ANEHWDevice: H11ANE, 16 cores, h16g); the form is ioreg's own."""
    listed = (
        "+-o H11ANE  <class H11ANEIn, id 0x1000003f0, registered, matched, active, busy 0 (0 ms), retain 31>\n    {\n"
        '      "FirmwareLoaded" = Yes\n      "DeviceProperties" = {"ANEDevicePropertyNumANECores"=16,'
        '"ANEDevicePropertyANEVersion"=192,"ANEDevicePropertyTypeANEArchitectureTypeStr"="h16g"}\n    }\n'
    )
    assert apple.engine(listed) == {"cores": 16, "architecture": "h16g"}
    assert apple.engine(listed * 2)["cores"] == 32, "an M6 shows two engines of 16 cores"
    assert apple.engine("") == {"cores": None, "architecture": None}


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ('    "vm-size" = <000000e0>', 0xE0000000),  # iPhone 12 Pro: more-ane-transformers notes, 5 Apr 2023
        ('    "vm-size" = <0000ffff07000000>', 0x7FFFF0000),  # M2 Air, the same notes
        ('    "vm-base" = <00000000>', None),  # constructed
        ('    "vm-size" = <000>', None),  # constructed: cut short
    ],
)
def test_the_address_space_of_the_neural_engine(said, size):
    assert apple.vm_size(said) == size


IPHONE = """Devices:
Name   Hostname                                     Identifier                             State                Model
----   ------------------------------------------   ------------------------------------   ------------------   -----
MyPhone   00001234-000000001234CDEF.coredevice.local   AAAAAAAA-1111-2222-3333-BBBBBBBBBBBB   available (paired)   iPhone 16
{"info": {"outcome": "success", "version": "397.28"}, "result": {"devices": [
 {"identifier": "AAAAAAAA-1111-2222-3333-BBBBBBBBBBBB",
  "connectionProperties": {"pairingState": "paired", "transportType": "wired", "tunnelState": "connected"},
  "deviceProperties": {"developerModeStatus": "enabled", "name": "MyPhone", "osVersionNumber": "18.2",
                       "osBuildUpdate": "22C152"},
  "hardwareProperties": {"deviceType": "iPhone", "platform": "iOS", "productType": "iPhone17,3",
                         "udid": "00001234-000000001234CDEF"}},
 {"identifier": "W", "connectionProperties": {"tunnelState": "connected"}, "deviceProperties": {"name": "Watch"},
  "hardwareProperties": {"deviceType": "appleWatch", "udid": "w"}},
 {"identifier": "P", "connectionProperties": {"tunnelState": "unavailable"}, "deviceProperties": {"name": "Pad"},
  "hardwareProperties": {"deviceType": "iPad", "udid": "p"}}]}}"""


def test_connected_devices_and_nothing_that_names_them():
    """Constructed after the fields that coremltools 9.0 (remote_device.py) reads and Flutter's tools show."""
    (found,) = usb.parse(IPHONE)
    assert found.facts() == {"kind": "iphone", "model": "iPhone17,3", "os_version": "18.2", "os_build": "22C152"}
    assert "1234" not in repr(found) and "MyPhone" not in repr(found) and len(found.identity) == 16
    (newer,) = usb.parse(IPHONE.replace("22C152", "22D63"))
    assert newer.identity != found.identity, "another OS is another device to the cache"
    assert usb.parse("xcrun: error") == [] and usb.parse("{}") == []


def test_helpers_among_all_processes():
    """Constructed: `ps -axo pid=,rss=,time=,comm=`."""
    said = (
        "    1   14320   5:10.02 /sbin/launchd\n"
        "73666   20480   0:01.10 /usr/libexec/aned\n"
        "73677  151450  24:43.07 /System/Library/PrivateFrameworks/ANECompiler.framework/XPCServices/"
        "ANECompilerService.xpc/Contents/MacOS/ANECompilerService\n"
        "  900    1000   0:00.01 /usr/bin/an ed\n"
    )
    found = services.parse(said)
    assert [(row.name, row.pid) for row in found] == [("ANECompilerService", 73677), ("aned", 73666)]
    assert found[0].resident_bytes == 151450 * 1024 and services.parse("") == []


@pytest.mark.parametrize(
    ("machine", "arm64", "reason"),
    [("arm64", "1", None), ("x86_64", "1", "is refused under Rosetta"), ("x86_64", "0", None), ("x86_64", None, None)],
)
def test_rosetta_is_refused_and_an_intel_mac_is_not(machine, arm64, reason, monkeypatch, tmp_path):
    answers = [{"on": "command", "argv": ["*/sysctl", "-n", "hw.optional.arm64"], "stdout": arm64}] if arm64 else []
    path = tmp_path / "script.json"
    held = {"name": f"{machine} {arm64}", "source": "constructed", "host": {"machine": machine}, "answers": answers}
    path.write_text(json.dumps(held))
    monkeypatch.setenv(stand_in.VARIABLE, str(path))
    said = apple.no_coreml()
    assert said is None if reason is None else said.startswith(reason)


def test_what_a_mac_says_of_itself(monkeypatch, tmp_path):
    """Constructed: the whole of apple.facts, from a script."""
    commands = [
        (["*/ioreg", "-rlw0", "-d", "1", "-c", "H11ANEIn"], '"ANEDevicePropertyNumANECores"=16'),
        (["*/ioreg", "-rlw0", "-n", "dart-ane0"], '"vm-size" = <000000e0>'),
        (["*/xcodebuild", "-version"], "Xcode 16.3\nBuild version 16E140\n"),
    ]
    answers = [{"on": "command", "argv": argv, "stdout": said} for argv, said in commands]
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"name": "facts", "source": "constructed", "answers": answers}))
    monkeypatch.setenv(stand_in.VARIABLE, str(path))
    assert apple.facts() == {
        "ane": {"cores": 16, "architecture": None, "vm_size_bytes": 0xE0000000},
        "xcode": "16.3 (16E140)",
        "translated": False,
    }
    asked = stand_in.active().calls["command"]
    assert apple.xcode() == "16.3 (16E140)"
    assert stand_in.active().calls["command"] == asked, "planning asks for every cell, xcodebuild answers slowly"
