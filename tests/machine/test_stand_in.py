"""The stand-in's script: what it must hold, which answer is given, and that everything made with it says so."""

import json
import subprocess
import sys
import time

import pytest

from ane_sweep.bridge import record
from ane_sweep.bridge.record import Weights
from ane_sweep.errors import ConfigError
from ane_sweep.machine import apple, host, stand_in, tools
from ane_sweep.planner import checks, chunking, config
from ane_sweep.report import screen
from ane_sweep.report.doubts import doubts
from ane_sweep.tracking import describe


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Writes a script and puts it in force; returns it as read."""

    def make(*answers, source="constructed", **more):
        path = tmp_path / f"script-{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps({"name": "test", "source": source, "answers": answers, **more}))
        monkeypatch.setenv(stand_in.VARIABLE, str(path))
        return stand_in.active()

    return make


def test_without_the_variable_there_is_none(monkeypatch):
    monkeypatch.delenv(stand_in.VARIABLE, raising=False)
    assert stand_in.active() is None
    assert "stand_in" not in host.fingerprint()


def test_a_script_that_cannot_be_used_says_why(tmp_path, script, monkeypatch):
    with pytest.raises(ConfigError, match="answer 1: says no source"):
        script({"on": "predict", "ms": 1}, source=None)
    with pytest.raises(ConfigError, match="answer 1: on='predictt'; choices: compile, load, predict"):
        script({"on": "predictt"})
    with pytest.raises(ConfigError, match="answer 1: mss: nothing reads this key"):
        script({"on": "predict", "mss": 1})
    with pytest.raises(ConfigError, match="machine: nothing reads this key"):
        script(machine="m4")
    monkeypatch.setenv(stand_in.VARIABLE, str(tmp_path / "none.json"))
    with pytest.raises(ConfigError, match="cannot be read"):
        stand_in.active()


def test_a_program_is_cut_for_the_chip_that_is_played(script):
    (cell,) = config.load(["model=tiny-gpt2", "chunks=auto"]).cells
    script(host={"chip": "Apple M4 Pro"})
    assert host.chip() == host.fingerprint()["chip"] == "Apple M4 Pro" and chunking.limits(cell).chip == "m4_pro"


def test_the_first_answer_whose_conditions_hold(script):
    made = script(
        {"on": "predict", "units": "cpu_only", "program": "chunk_*", "ms": 1},
        {"on": "predict", "from_call": 3, "ms": 2},
        {"on": "predict", "stage": "latency", "ms": 3},
    )
    assert made.answer("predict", units="cpu_only", program="chunk_02")["ms"] == 1
    assert made.answer("predict", units="all", program="chunk_02") is None
    assert made.answer("predict", 3, units="all", program="model")["ms"] == 2
    assert made.answer("predict", 2, units="all", program="model", stage="latency")["ms"] == 3


def test_it_makes_this_host_a_mac_that_is_no_mac(script, monkeypatch):
    monkeypatch.delenv(stand_in.VARIABLE, raising=False)
    real = host.digest()
    made = script(host={"chip": "Apple M4"})
    assert apple.no_coreml() is None
    found = host.fingerprint()
    assert (found["chip"], found["stand_in"]) == ("Apple M4", made.label())
    assert host.digest() != real, "nothing scripted may ever be found in the cache by a real run"
    assert made.label() in checks.notes([], [], [])[0]


def test_the_label_is_in_table_doubts_and_tracker(tmp_path):
    made = record.Record(
        sweep="s", cell_key="k", cell={"model": "gpt2"}, status=record.Status.OK, host={"stand_in": "mine (script.json, abc)"},
        realised={"stand_in": "mine (script.json, abc)"}, weights=Weights("pretrained"),
    )  # fmt: skip
    assert "stand-in, no Mac" in screen.as_text([made])
    assert any("no Mac took part" in line and "mine (script.json, abc)" in line for line in doubts([made]))
    told = describe.describe_cell(made, ["model"], tmp_path)
    assert "[stand-in]" in told.name and told.tags["realised.stand_in"] == "mine (script.json, abc)"
    assert "nothing of this was measured on a Mac" in told.tags["mlflow.note.content"]
    assert "stand-in" not in screen.as_text(
        [record.Record(sweep="s", cell_key="k", cell={"model": "gpt2"}, status=record.Status.OK)]
    )


def test_commands_are_answered_from_the_script_alone(script):
    script(
        {"on": "command", "argv": ["*/sysctl", "-n", "hw.model"], "stdout": "Mac16,1\n"},
        {"on": "command", "argv": ["xcrun"], "stderr": "xcrun: error: no developer tools", "code": 72},
        {"on": "command", "argv": ["log", "stream"], "stdout": ["one", "two"], "repeat": 2, "forever": True},
    )
    assert tools.text("/usr/sbin/sysctl", "-n", "hw.model") == "Mac16,1"
    assert tools.text("xcrun", "--find", "coremlc") is None
    assert tools.ask("xcrun", "--find", "coremlc").code == 72
    assert tools.ask("/bin/ls") is None, "a tool that the script does not name does not exist"
    assert tools.ask("log", "stream") == tools.Answer(None, "one\ntwo\n" * 2, "")
    with pytest.raises(FileNotFoundError, match="not in the stand-in's script"):
        tools.start("/bin/ls")
    stream = tools.start("log", "stream", stdout=subprocess.PIPE, text=True)
    try:
        assert [next(stream.stdout) for _ in range(4)] == ["one\n", "two\n"] * 2
        assert stream.poll() is None
    finally:
        stream.terminate()
        stream.wait(10)
        stream.stdout.close()


def test_real_tools_are_started_and_streamed(monkeypatch):
    monkeypatch.delenv(stand_in.VARIABLE, raising=False)
    process = tools.start(sys.executable, "-S", "-c", "print(8)", stdout=subprocess.PIPE, text=True)
    assert process.communicate(timeout=20)[0] == "8\n"


def test_the_scripted_clock(script):
    from tests.stand_in import coreml as scripted

    scripted.install(script({"on": "predict", "ms": [5, 2]}))
    try:
        answer = stand_in.active().answer("predict")
        more = []  # than the script says; a busy machine adds what it likes, so the least of many counts
        for wanted in (5, *[2] * 30):
            start = time.perf_counter()
            with scripted._take_time(answer):
                sum(range(100_000))
            more.append(1000 * (time.perf_counter() - start) - wanted)
        assert min(more) >= 0 and sorted(more)[len(more) // 4] < 0.5
        start, began = time.perf_counter(), time.monotonic()
        time.sleep(60)
        assert time.perf_counter() - start >= 60 and time.monotonic() - began < 5
    finally:
        scripted.uninstall()
    assert time.sleep.__module__ == "time"
