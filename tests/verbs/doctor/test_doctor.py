"""Every probe of the doctor, said yes and said no. Both machines are constructed; no tool's output here was recorded."""

import json
import os
import plistlib
import subprocess
import sys
from pathlib import Path

import pytest

import ane_sweep
from ane_sweep.errors import ConfigError
from ane_sweep.machine import thermal, tools, usb
from ane_sweep.machine.tools import Answer
from ane_sweep.verbs import doctor
from ane_sweep.verbs.doctor import probes, world

POWER = plistlib.dumps({"elapsed_ns": 10**8, "processor": {"cpu_energy": 30, "ane_energy": 0}}).decode()
VERSIONS = {
    "coremltools": "9.0", "torch": "2.13.0", "transformers": "5.23", "numpy": "2.3.5", "mlflow": "3.17", "hydra-core": "1.3.8",
    "coreai-core": "1.0.0b3", "coreai-torch": "0.4.3",
}  # fmt: skip
COMMANDS = {
    "xcrun --find": Answer(0, "/Applications/Xcode.app/coremlcompiler\n", ""),
    "sudo": Answer(0, POWER, ""),
    "notifyutil": Answer(0, "com.apple.system.thermalpressurelevel 0\n", ""),
}
PHONE = usb.Found("iphone", "iPhone17,1", "18.4", "22E240", "0" * 16)
COREML = {"native": True, "storage": True, "devices": {"CPU": None, "Neural Engine": 16}, "predict_ms": 0.125}


class Machine(world.World):
    """A Mac where all is well, but for what a test takes away."""

    def __init__(self, **bad):
        self.bad = bad
        place = {
            name: bad.get(name, good)
            for name, good in (("system", "darwin"), ("machine", "arm64"), ("python", (3, 12, 1)))
        }
        super().__init__(out=Path("/out"), uri=bad.get("uri"), **place)

    def requirements(self):
        return ["coremltools==9.0", "numpy<2.4"]

    def version(self, package):
        return {**VERSIONS, **self.bad.get("versions", {})}[package]

    def ask(self, *command, timeout_s=10.0):
        known = {**COMMANDS, **self.bad.get("commands", {})}
        return next((answer for key, answer in known.items() if " ".join(command).startswith(key)), None)

    def child(self, what):
        found = self.bad.get(
            what, {"coreml": COREML, "torch": {"version": "2.13.0", "mps": True, "cuda": False, "threads": 8}}[what]
        )
        if isinstance(found, str):
            raise RuntimeError(found)
        return found

    def listen(self, command, seconds):
        return self.bad.get("log", ("Filtering the log data using ...", ""))

    def get(self, url):
        if (found := self.bad.get("http", "OK")) is None:
            raise OSError("connection refused")
        return found

    def environ(self, name):
        return self.bad.get("environ", {}).get(name)

    def free_bytes(self):
        if (free := self.bad.get("free", 500e9)) is None:
            raise PermissionError(13, "Permission denied")
        return free

    def memory(self):
        return self.bad.get("memory", (16e9, 9e9))

    def cached_models(self):
        return 3

    def chip(self):
        return "Apple M4"

    def translated(self):
        return self.bad.get("translated", False)

    def architecture(self):
        return "h16g"

    def xcode(self):
        return self.bad.get("xcode", "16.3 (16E140)")

    def connected(self):
        return self.bad.get("connected", [PHONE])

    def doubts(self):
        return self.bad.get("doubts", [])


CRASH = "ended with -11: Segmentation fault"
FLIPS = [  # probe, what is taken away, what the line then says, what it advises
    ("python", {"python": (3, 14, 0)}, "3.14.0", "Python 3.11 to 3.13"),
    ("architecture", {"machine": "x86_64"}, "macOS x86_64", "an arm64 Python"),
    ("architecture", {"translated": True}, "translated by Rosetta", "an arm64 Python"),
    ("packages", {"versions": {"coremltools": "8.1"}}, "coremltools 8.1", "coremltools 9.0 is what this version is checked with"),
    ("packages", {"versions": {"torch": None}}, "torch missing", "pip install"),
    ("core ai", {"versions": {"coreai-torch": None}}, "coreai-core 1.0.0b3, coreai-torch missing", "ane-sweep[coreai]"),
    ("conversion", {"coreml": {"native": False, "storage": False}}, "a build without native code", "wheels"),
    ("conversion", {"coreml": CRASH}, "importing coremltools ended with -11", "wheels"),
    ("disk", {"free": 2e9}, "2.0 GB free at /out", "out=PATH"),
    ("disk", {"free": None}, "/out cannot be written (Permission denied)", "out=PATH"),
    ("memory", {"memory": (4e9, 1e9)}, "4.0 GB, 1.0 GB of it available", "lanes=1"),
    ("core ml", {"coreml": {"native": False, "storage": True}}, "no native module", "a Mac with Apple silicon"),
    ("core ml", {"coreml": {"native": True, "storage": True, "error": "boom"}}, "a program of one op failed: boom", "newer macOS"),
    ("core ml", {"coreml": CRASH}, "ended with -11", "_probe coreml"),
    ("neural engine", {"coreml": {**COREML, "devices": {"CPU": None, "GPU": None}}}, "Core ML lists CPU, GPU", "not a virtual machine"),
    ("neural engine", {"coreml": CRASH}, "asking ended with -11", "a Mac"),
    ("xcode", {"commands": {"xcrun --find": Answer(72, "", "xcrun: error: unable to find utility")}}, "unable to find", "Xcode"),
    ("xcode", {"xcode": None}, "no Xcode; coremlcompiler /Applications", "compiler=coremltools"),
    ("usb devices", {"connected": []}, "no connected iPhone or iPad", "on a cable"),
    ("usb devices", {"connected": [PHONE, PHONE]}, "iPhone17,1, OS 18.4 (22E240); iPhone17,1", "one iPhone"),
    ("pytorch on gpu", {"torch": {"version": "2.13.0+cpu", "mps": False, "cuda": False}}, "neither MPS nor CUDA", "a Mac"),
    ("pytorch on gpu", {"torch": "ended with 1: ImportError"}, "importing torch ended with 1", "pip install"),
    ("power", {"commands": {"sudo": Answer(1, "", "sudo: a password is required")}}, "sudo: a password is required", "sudo visudo"),
    ("power", {"commands": {"sudo": None}}, "no sudo", "sudo visudo"),
    ("power", {"commands": {"sudo": Answer(0, plistlib.dumps({"elapsed_ns": 1}).decode(), "")}}, "no channel", "powermetrics knows"),
    ("system log", {"log": (None, "log: Must be admin")}, "Must be admin", "administrator"),
    ("heat", {"commands": {"notifyutil": Answer(0, "", "")}}, "notifyutil: no answer", "macOS"),
    ("quiet for timing", {"doubts": ["low-power mode was on"]}, "low-power mode was on", "mains"),
    ("hugging face hub", {"http": None}, "https://huggingface.co does not answer (connection refused); 3 models", "weights=FOLDER"),
    ("hugging face hub", {"environ": {"HF_HUB_OFFLINE": "1"}}, "HF_HUB_OFFLINE is set; 3 models", "unset HF_HUB_OFFLINE"),
    ("tracker", {"uri": "http://t:5000/", "http": None}, "http://t:5000/health does not answer", "mlflow server"),
    ("tracker", {"uri": "http://t:5000", "http": "<html>"}, "says '<html>'", "MLflow server"),
    ("tracker", {"versions": {"mlflow": None}}, "mlflow missing", "pip install"),
]  # fmt: skip


def found(name: str, machine: world.World) -> probes.Finding:
    return next(finding for finding in (probe(machine) for probe in probes.PROBES) if finding.probe == name)


def test_every_probe_says_yes_on_a_good_mac_and_shows_what_it_saw(capsys):
    assert all(probe(Machine()).can and probe(Machine()).evidence for probe in probes.PROBES)
    assert doctor.doctor([], Machine()) == 0
    text = capsys.readouterr().out
    assert "yes  core ml           a program of one op took 0.12 ms on the CPU" in text
    assert "Core ML lists one of 16 cores on Apple M4" in text and "cpu 300 mW, ane 0 mW" in text
    assert text.splitlines()[-1] == "this host can run sweeps" and "->" not in text


@pytest.mark.parametrize(
    ("name", "bad", "says", "advises"), FLIPS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_probe_says_no_with_what_it_saw_and_the_way_out(name, bad, says, advises):
    finding = found(name, Machine(**bad))
    assert not finding.can and says in finding.evidence and advises in finding.remedy


def test_no_probe_is_left_out_of_the_flips():
    assert {probe(Machine()).probe for probe in probes.PROBES} == {name for name, *_ in FLIPS}


@pytest.mark.slow
@pytest.mark.ci
def test_a_store_that_cannot_be_used_keeps_no_host_from_running_sweeps(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert doctor.doctor([f"store=file://{tmp_path}/file/store"], Machine()) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "this host can run sweeps, but not with that store: they would go on without it, and share nothing"


def test_what_is_needed_decides_the_exit_code(capsys):
    assert doctor.doctor([], Machine(python=(3, 9, 0), free=None)) == 1
    text = capsys.readouterr().out
    assert "NO   python" in text and text.splitlines()[-1] == "this host cannot run sweeps: python, disk"
    assert doctor.doctor(["--json"], Machine(http=None, doubts=["hot"])) == 0, "these only limit what can be had"
    told = json.loads(capsys.readouterr().out)
    assert told["able"] and [p["probe"] for p in told["probes"] if not p["can"]] == [
        "quiet for timing",
        "hugging face hub",
    ]


def test_a_wrong_word_is_refused():
    for word, said in (("--jsn", r"did you mean '--json'"), ("now", r"ane-sweep doctor \[--json\]")):
        with pytest.raises(ConfigError, match=said):
            doctor.doctor([word])


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.skipif(sys.platform == "darwin", reason="there Core ML may answer")
def test_on_this_host_the_probes_really_run_and_the_parent_stays_light(tmp_path):
    code = (
        "import sys; from ane_sweep.__main__ import main; code = main(['doctor', '--json', f'out={sys.argv[1]}']); "
        "print(sorted({'torch', 'coremltools', 'mlflow', 'hydra'} & set(sys.modules)), code)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=200)
    *text, last = done.stdout.splitlines()
    assert last == "[] 0", done.stdout + done.stderr
    told = {p["probe"]: p for p in json.loads("\n".join(text))["probes"]}
    assert told["conversion"]["can"] and not told["core ml"]["can"] and not told["neural engine"]["can"]
    assert told["core ml"]["evidence"] == f"no native module on {sys.platform}"
    assert "HF_HUB_OFFLINE is set" in told["hugging face hub"]["evidence"]


@pytest.mark.slow
@pytest.mark.parametrize("search", [None, "", pytest.param(":", marks=pytest.mark.ci), "/nowhere:"])
def test_nothing_of_the_working_folder_is_executed(search, tmp_path, monkeypatch):
    """Neither by the child that imports coremltools nor by a tool that is a Python of ours; an empty entry of PYTHONPATH
    is the working folder."""
    for name in ("json", "coremltools", "torch", "ctypes", "ane_sweep"):
        (tmp_path / f"{name}.py").write_text("import os\nos.mkdir('executed')\nraise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if search is not None:
        monkeypatch.setenv("PYTHONPATH", search)
    child = world.World(out=tmp_path).child("coreml")
    assert child and tools.ask(*thermal.SENSORS) is not None
    assert not (tmp_path / "executed").exists()


def test_an_empty_entry_of_pythonpath_gives_the_parent_no_code_either(tmp_path):
    (tmp_path / "json.py").write_text("import os\nos.mkdir('executed')\nraise SystemExit(3)\n")
    ours = str(Path(ane_sweep.__file__).parents[1])
    line = f"import sys; sys.path.append({ours!r}); import ane_sweep.__main__, json; print(json.dumps(1))"
    environment = {**os.environ, "PYTHONPATH": f"/nowhere{os.pathsep}"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.stdout == "1\n" and not (tmp_path / "executed").exists(), done.stderr


def test_a_child_that_dies_is_a_sentence(monkeypatch):
    machine, real = world.World(out=Path("/out")), subprocess.run

    def instead(code):
        return lambda command, **more: real([sys.executable, "-S", "-c", code], **more)

    monkeypatch.setattr(world.subprocess, "run", instead("import os; os.abort()"))
    with pytest.raises(RuntimeError, match="ended with -6: no message"):
        machine.child("coreml")
    monkeypatch.setattr(world.subprocess, "run", instead("raise ValueError('no')"))
    with pytest.raises(RuntimeError, match="ended with 1: ValueError: no"):
        machine.child("torch")
    with pytest.raises(RuntimeError, match="ended with -6"):
        machine.child("coreml")  # asked once: the same answer
