"""What the tools of a Mac print, read without one. Every fixture is constructed from the source it names: none was recorded."""

import ctypes
import json
import plistlib
import subprocess
import sys

import pytest

from ane_sweep.machine import powermetrics, syslog, thermal
from ane_sweep.machine.listener import Listener
from ane_sweep.worker import memory


def plist(seconds=0.1, **processor) -> bytes:
    """Fields as asitop's parsers read them (tlkh/asitop parsers.py); energies in mJ."""
    return plistlib.dumps(
        {"elapsed_ns": int(seconds * 1e9), "processor": processor, "thermal_pressure": "Nominal", "hw_model": "Mac16,1"}
    )


def stream(*blocks: bytes) -> bytes:
    return b"\0".join(blocks)


IDLE = stream(*[plist(cpu_energy=30, gpu_energy=2, ane_energy=0)] * 5)
BUSY = stream(*[plist(cpu_energy=80, gpu_energy=2, ane_energy=146)] * 5)


def test_energy_is_mean_power_less_that_at_rest():
    idle, busy = powermetrics.parse(IDLE), powermetrics.parse(BUSY)
    assert len(idle) == 5 and idle[0].thermal_pressure == "Nominal"
    ane = powermetrics.excess("ane", idle, busy)
    assert (ane.milliwatts, ane.median, ane.idle_max, ane.samples) == pytest.approx((1460, 1460, 0, 5))
    assert powermetrics.excess("cpu", idle, busy).milliwatts == pytest.approx(500)
    assert powermetrics.excess("gpu", busy, idle).milliwatts == 0, "never below nothing"


def test_longer_samples_weigh_more():
    busy = powermetrics.parse(stream(plist(0.1, ane_energy=100), plist(0.3, ane_energy=60)))
    assert powermetrics.excess("ane", powermetrics.parse(IDLE), busy).milliwatts == pytest.approx(400)


def test_newer_builds_give_milliwatts_and_the_gpu_elsewhere():
    block = plistlib.dumps({"elapsed_ns": 10**8, "processor": {"ane_power": 900.0}, "gpu": {"gpu_energy": 5}})
    (sample,) = powermetrics.parse(block)
    assert sample.milliwatts == {"cpu": None, "gpu": pytest.approx(50), "ane": 900.0}


@pytest.mark.parametrize("glue", [b"\0", b"\n", b""])
def test_a_stream_may_be_torn_or_polluted(glue):
    text = glue.join([plist(ane_energy=1), plist(ane_energy=2), plist(ane_energy=3)[:80]])
    assert len(powermetrics.parse(text)) == 2
    with pytest.raises(ValueError, match="no readable sample in 14 bytes"):
        powermetrics.parse(b"not a plist \0 ")
    assert len(powermetrics.parse(b"junk</plist>" + plist(ane_energy=1))) == 1


def test_zero_is_unavailable_and_says_so():
    """metaspartan/mactop#72: on M5 the channels read 0 during sustained inference."""
    idle, busy = powermetrics.parse(IDLE), powermetrics.parse(stream(*[plist(cpu_energy=80, ane_energy=0)] * 3))
    assert "says neither yes nor no" in powermetrics.unreadable("ane", idle, busy)
    assert powermetrics.unreadable("cpu", idle, busy) is None
    nothing = powermetrics.parse(plist(cpu_energy=1))
    assert powermetrics.unreadable("ane", nothing, nothing) == "powermetrics has no ane channel here"


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        ("sudo: a password is required\n", "sudo visudo -f /etc/sudoers.d/powermetrics"),
        ("sudo: a terminal is required to read the password; either use ...", "would have to ask for a password"),
        ("eva is not in the sudoers file.", "this user may not use sudo"),
        ("sudo: powermetrics: command not found", "not installed; it is part of macOS"),
        (
            "powermetrics: unrecognized sampler: ane_power\n",
            "ended with 64: powermetrics: unrecognized sampler: ane_power",
        ),
        ("", "ended with 64: no message"),
    ],
)
def test_a_refusal_says_the_way_out(stderr, said):
    assert said in powermetrics.refusal(64, stderr)


def test_sudo_is_never_asked_to_ask():
    assert powermetrics.command(3)[:3] == ["sudo", "-n", "powermetrics"]


LINES = {
    "E5RT: MILCompilerForANE error: failed to compile ANE model using ANEF. Error=_ANECompiler : ANECCompile() FAILED (11)":
        "ane_failed",  # coremltools#2247
    "IODARTVMAllocatorGeneric::vmAlloc: VM exhausted": "memory",  # more-ane-transformers NOTES
    "IODARTMapper::iovmMapMemory: Map request failed (0xe00002bd)": "memory",  # more-ane-transformers NOTES
    "dimensions must lie in N[1-65536] D[1-16384] C[1-65536] H[1-16384] W[1-16384]": "limit",  # FluidAudio#121
    "Error=createProgramInstanceForModel:...: Program load failure (0x20004)": "ane_failed",  # ml-stable-diffusion#26
    "Failed to build the model execution plan using ... 'model.mil' with error code: 14.": "plan",  # swift-chat#31
    "Illegal offset = -2144766976": "limit",  # more-ane-transformers NOTES
    "Weight file size (2525476480 bytes) exceeds the maximum (2147483648 bytes)": "limit",  # coremltools#2593
    "ANEProgramProcessRequestDirect() Failed with status=0x16 : statusType=0x9: Program Inference error":
        "ane_failed",  # stable-diffusion-webui#13419
    "Error plan build: -1.": "plan",  # coremltools#1548
    "LLVM ERROR: IO failure on output stream: No space left on device": "disk",  # more-ane-transformers NOTES
}  # fmt: skip


@pytest.mark.parametrize(("line", "says"), LINES.items())
def test_known_lines_have_a_meaning(line, says):
    assert syslog.explain(line).says == says


def test_every_row_is_whole():
    import re

    for row in syslog.meanings():
        assert row.says in ("ane_failed", "memory", "limit", "op", "plan", "disk"), row
        assert row.explanation and not row.explanation.endswith(".") and row.source, row
        re.compile(row.pattern)
    assert syslog.explain("com.apple.coreml: model loaded") is None


def entry(message: str, pid: int = 7, process: str = "/usr/libexec/aned") -> str:
    """`log stream --style ndjson`: the fields that log(1) documents."""
    return json.dumps(
        {"eventMessage": message, "processID": pid, "processImagePath": process, "subsystem": "com.apple.ane"}
    )


def test_lines_are_counted_attributed_and_ranked():
    findings = syslog.Findings(pid=42)
    findings.add_stream('Filtering the log data using "processID == 42"')
    for _ in range(3):
        findings.add_stream(entry("VM exhausted"))
    findings.add_stream(entry("Error plan build: -1.", pid=42, process="/usr/bin/python3").encode())
    findings.add_stream(entry("nothing of note"))
    findings.add_stderr("hello\nANECCompile() FAILED\n")
    found = findings.rank()
    assert [(f["says"], f["process"], f["ours"], f["count"]) for f in found] == [
        ("ane_failed", "stderr", True, 1), ("plan", "python3", True, 1), ("memory", "aned", False, 3),
    ]  # fmt: skip
    assert (findings.lines, findings.unreadable) == (6, 1)


def test_a_flood_of_different_lines_is_bounded():
    findings = syslog.Findings(pid=1, limit=2)
    for number in range(50):
        findings.add_stream(entry("VM exhausted " + "x" * 1000, process=f"/p{number}"))
    assert len(findings.rank()) == 2 and findings.dropped == 48
    assert all(len(f["line"]) == syslog.LINE_CHARS for f in findings.rank())


def test_the_predicate_asks_for_our_process_and_the_daemons():
    predicate = syslog.command(42)[-1]
    assert "processID == 42 AND" in predicate and 'process == "ANECompilerService"' in predicate
    assert predicate.count("(") == predicate.count(")")


def test_footprint_reads_the_kernels_struct():
    """struct rusage_info_v4, XNU bsd/sys/resource.h: 296 bytes, footprint after seven 64-bit fields and the uuid."""
    assert ctypes.sizeof(memory.UsageV4) == 296
    assert memory.UsageV4.phys_footprint.offset == 16 + 7 * 8
    assert memory.UsageV4.lifetime_max_phys_footprint.offset == 240

    class Library:
        def proc_pid_rusage(self, pid, flavor, pointer):
            assert flavor == 4
            usage = ctypes.cast(pointer, ctypes.POINTER(memory.UsageV4)).contents
            usage.phys_footprint, usage.lifetime_max_phys_footprint = 100, 200
            return 0 if pid == 1 else -1

    assert memory.read_footprint(1, Library()) == memory.Footprint(now=100, peak=200)
    with pytest.raises(OSError, match="refused"):
        memory.read_footprint(2, Library())


def test_the_hottest_die_sensor():
    assert thermal.hottest({"PMU tdie1": 41.5, "PMU tdie2": 55.0, "NAND CH0 temp": 70.0, "PMU tdev1": -20.0}) == 55.0
    assert thermal.hottest({"gas gauge battery": 31.0, "PMU tcal": 0.0}) == 31.0
    with pytest.raises(ValueError):
        thermal.hottest({"PMU tcal": 0.0})


def test_pressure_is_a_word(monkeypatch):
    for said, word in (("com.apple.system.thermalpressurelevel 0", "nominal"), ("x 2", "heavy")):
        monkeypatch.setattr(thermal.tools, "text", lambda *command, said=said: said)
        assert thermal.pressure() == word
    for said in (None, "com.apple.system.thermalpressurelevel", "x 99"):
        monkeypatch.setattr(thermal.tools, "text", lambda *command, said=said: said)
        with pytest.raises(ValueError, match="does not tell"):
            thermal.pressure()


def test_sensors_that_crash_or_talk_nonsense_are_unavailable(monkeypatch):
    for said in (None, "Segmentation fault", "[1]", "{}"):
        monkeypatch.setattr(thermal.tools, "text", lambda *command, said=said: said)
        with pytest.raises(ValueError, match="no die temperature sensor"):
            thermal.die_celsius()
    monkeypatch.setattr(thermal.tools, "text", lambda *command: '{"PMU tdie1": 48.25}')
    assert thermal.die_celsius() == 48.25


def python(code: str, **more) -> Listener:
    return Listener([sys.executable, "-S", "-c", code], **more).start()


def finished(listener: Listener) -> int | None:
    listener._process.wait(20)
    return listener.end()


def test_a_listener_keeps_what_was_said():
    tool = python("import sys; print('one'); print('two'); print('oh', file=sys.stderr); sys.exit(3)")
    assert finished(tool) == 3 and tool.stdout.split() == [b"one", b"two"] and tool.stderr == "oh\n"


def test_a_flood_neither_stops_the_tool_nor_fills_memory():
    seen = []
    tool = python(
        "print('x' * 99 + '\\n', end='', flush=True) or [print('x' * 99) for _ in range(20000)]",
        limit=5000,
        on_line=seen.append,
    )
    assert finished(tool) == 0 and tool.truncated and len(seen) == 50


@pytest.mark.slow
@pytest.mark.ci
def test_an_endless_tool_is_ended_even_if_it_will_not():
    tool = python(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(99)"
    )
    while not tool.stdout:
        assert tool.running()
    assert tool.end() == -9 and not tool.running()


def test_a_missing_tool_is_a_sentence():
    tool = Listener(["ane-sweep-no-such-tool"]).start()
    assert tool.error == "ane-sweep-no-such-tool cannot be run: No such file or directory"
    assert not tool.running() and tool.end() is None


@pytest.mark.skipif(sys.platform == "darwin", reason="there the sensors may answer")
def test_off_a_mac_the_sensor_process_fails_and_nothing_else():
    done = subprocess.run([sys.executable, *thermal.SENSORS[1:]], capture_output=True, text=True)
    assert done.returncode == 1 and "OSError" in done.stderr
