"""The stand-in for a Mac, a plug-in of ane_sweep.machine.stand_in: it plays a script, on any host.

    ANE_SWEEP_STAND_IN=script.json ane-sweep runtime=coreml ...

runs the whole chain of stages as if on a Mac. Programs are executed for real (the drop-in `coreml_anywhere`); their
durations, the places of ops, failures and the tools' output come from the script. `coreml` scripts Core ML, `iphone` a device
on the cable, `coreai` the plan of Core AI; they are imported by a worker alone.

    {"name": "m4-agrees", "source": "constructed",
     "host": {"chip": "Apple M4", "os_version": "15.4", ...},      # laid over what host.fingerprint() says
     "answers": [{"on": "predict", "units": "cpu_and_ne", "ms": 1.5, "native_ms": 1.2}, ...]}

`source` says where an answer was seen (the address of an issue or a log, a section of published facts), or
"constructed"; an answer without one has the script's. The first answer whose conditions all hold is given; where none
does, the drop-in's own behaviour stands, and a command is not found.

    on         compile | load | predict | plan | command | devices
    conditions units      all | cpu_only | cpu_and_gpu | cpu_and_ne
               program    name of the package or compiled folder, without suffix; * and ? as in file names
               stage      of the task that asks: compile, load, place, latency, score ...
               device     local | usb
               function   of a multifunction program
               seen       load: whether this task loaded the very same folder before (true, false)
               op         plan: type of the op
               argv       command: its first words, * and ? as in file names
               from_call  holds from the n-th such question of a process on (1 is the first)
    what it does, in this order
               stderr     text that native code leaves there first
               allocate_mib  memory taken and kept
               hang       true: never returns
               signal     "SIGKILL" ...: the process dies of it
               fail       text of the RuntimeError that the native module raises
               ms         how long it took, on the measuring clock; a list is gone through, its last stays
               native_ms  predict: what Core ML says it took itself; `ms` where absent
               analytics  load, plan: file of that format that Core ML leaves in its cache, relative to the script
               leaves     load, plan: compiled programs (.hwx) and net.plist that Core ML leaves there, likewise
               plan       "none": no plan for any op; preferred, supported, cost: of the ops it is for; why: of Core AI's plan
               list       devices: ["cpu", "gpu", "ane"];  cores: of the Neural Engine
               stdout, code, repeat, forever   command: what it prints (`repeat` times), its exit code, whether it then
                          stays open; compiles: true: it leaves what `coremlcompiler compile SOURCE FOLDER` would

Standard library and light modules only: planner and worker both read it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from ane_sweep.bridge.figures import Metric
from ane_sweep.errors import ConfigError
from ane_sweep.machine.stand_in import STAGE_VARIABLE, VARIABLE
from ane_sweep.worker.runtimes._coremltools import OPTIONAL, import_coremltools

QUESTIONS = ("compile", "load", "predict", "plan", "profile", "command", "devices")
CONDITIONS = ("units", "program", "stage", "device", "function", "seen", "op", "type", "argv", "from_call")
ACTIONS = (
    "stderr", "allocate_mib", "hang", "signal", "fail", "ms", "native_ms", "analytics", "leaves", "plan", "preferred", "supported", "cost",
    "why", "list", "cores", "stdout", "code", "repeat", "forever", "compiles",
)  # fmt: skip


@dataclass(frozen=True)
class Script:
    """A script that was read. `calls` counts the questions of this process by kind."""

    path: Path
    name: str
    digest: str
    host: dict[str, Any]
    answers: list[dict[str, Any]]
    calls: dict[str, int] = field(default_factory=dict)

    def label(self) -> str:
        """Return the label that records, tables and trackers show."""
        return f"{self.name} ({self.path.name}, {self.digest[:12]})"

    def count_question(self, on: str) -> int:
        """Count one more question of this kind; returns how many there were, this one included."""
        self.calls[on] = self.calls.get(on, 0) + 1
        return self.calls[on]

    def labelled(self, metric: Metric) -> Metric:
        """Return a metric whose source names the script, as the figure is not from a device."""
        return replace(metric, source=f"stand-in {self.name}: {metric.source or 'scripted'}")

    def ask(self, command: tuple[str, ...]) -> tuple[int | None, str, str] | None:
        """Return a tool's exit code, stdout and stderr, or None for one that the script does not name."""
        answer = self.answer("command", self.count_question("command"), argv=list(command))
        if answer is None:
            return None
        if answer.get("compiles"):
            _compile(Path(command[-2]), Path(command[-1]))
        code = None if answer.get("forever") or answer.get("hang") else answer.get("code", 0)
        return code, _stdout(answer) * answer.get("repeat", 1), answer.get("stderr", "")

    def start(self, command: tuple[str, ...], **options: Any) -> subprocess.Popen:
        """Start a small process that prints what the script says. Raises FileNotFoundError for a tool that it does not name."""
        answer = self.answer("command", self.count_question("command"), argv=list(command))
        if answer is None:
            raise FileNotFoundError(2, f"not in the stand-in's script {self.name}", command[0])
        env = dict(os.environ, ANE_SWEEP_SAYS=_stdout(answer), ANE_SWEEP_ERRS=answer.get("stderr", ""))
        env |= {"ANE_SWEEP_CODE": str(answer.get("code", 0)), "ANE_SWEEP_FOREVER": "1" if answer.get("forever") else ""}
        env |= {"ANE_SWEEP_REPEAT": str(answer.get("repeat", 1))}
        words = [sys.executable, "-I", "-S", "-c", _SPEAKER]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, env=env, **options)

    def install(self) -> None:
        """Put the scripted Core ML, with its iPhone, under coremltools."""
        from tests.stand_in import coreai, iphone

        iphone.install(self)
        coreai.install(self)
        # as on a Mac, where torch is not loaded yet: here the drop-in computes with it
        loaded = {name: sys.modules.pop(name) for name in OPTIONAL if name in sys.modules}
        import_coremltools()
        sys.modules.update(loaded)

    def answer(self, on: str, call: int = 1, **asked: Any) -> dict[str, Any] | None:
        """The first answer whose conditions all hold, or None."""
        asked.setdefault("stage", os.environ.get(STAGE_VARIABLE))
        return next((item for item in self.answers if item["on"] == on and _holds(item, call, asked)), None)


@lru_cache(maxsize=4)
def read(path: str) -> Script:
    """Return the script in a file. Raises ConfigError for one that cannot be used."""
    where = f"{VARIABLE}={path}"
    try:
        text = Path(path).read_bytes()
        held = json.loads(text)
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror}); unset it, or name a script") from None
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON ({error}); see tests/stand_in/__init__.py for what it holds") from None
    if problems := _problems(held):
        raise ConfigError([f"{where}: {problem}" for problem in problems])
    answers = [{"source": held.get("source"), **answer} for answer in held.get("answers", [])]
    return Script(Path(path), held["name"], hashlib.sha256(text).hexdigest(), dict(held.get("host", {})), answers)


def _problems(held: Any) -> list[str]:
    if not isinstance(held, dict) or not isinstance(held.get("name"), str):
        return ["must be an object with a name; see tests/stand_in/__init__.py"]
    found = [
        f"{key}: nothing reads this key; a script has name, source, host, answers"
        for key in held.keys() - {"name", "source", "host", "answers"}
    ]
    for number, answer in enumerate(held.get("answers", []), 1):
        known = {"on", "source", *CONDITIONS, *ACTIONS}
        if answer.get("on") not in QUESTIONS:
            found.append(f"answer {number}: on={answer.get('on')!r}; choices: {', '.join(QUESTIONS)}")
        if not isinstance(answer.get("source", held.get("source")), str):
            found.append(f'answer {number}: says no source; give a link, a section of facts, or "constructed"')
        found += [f"answer {number}: {key}: nothing reads this key" for key in sorted(answer.keys() - known)]
    return found


def _holds(answer: dict[str, Any], call: int, asked: dict[str, Any]) -> bool:
    for condition in answer.keys() & set(CONDITIONS):
        wanted = answer[condition]
        if condition == "from_call":
            if call < wanted:
                return False
        elif condition == "argv":
            words = asked.get("argv") or []
            if len(words) < len(wanted) or not all(fnmatchcase(word, like) for word, like in zip(words, wanted)):
                return False
        elif condition == "program":
            if not fnmatchcase(asked.get("program") or "", wanted):
                return False
        elif asked.get(condition) != wanted:
            return False
    return True


def _stdout(answer: dict[str, Any]) -> str:
    lines = answer.get("stdout", "")
    return "\n".join(lines) + "\n" if isinstance(lines, list) else lines


def _compile(source: Path, folder: Path) -> None:
    """Write a compiled folder as coremlcompiler does, with the drop-in; in a worker's process."""
    from ane_sweep.coreml_anywhere import native

    shutil.move(native._MLModelProxy.compileModel(str(source)), folder / f"{source.stem}.mlmodelc")


_SPEAKER = """
import os, sys, time
sys.stderr.write(os.environ["ANE_SWEEP_ERRS"]); sys.stderr.flush()
try:
    for _ in range(int(os.environ["ANE_SWEEP_REPEAT"])):
        sys.stdout.write(os.environ["ANE_SWEEP_SAYS"])
    sys.stdout.flush()
    while os.environ["ANE_SWEEP_FOREVER"]:
        time.sleep(60)
except (BrokenPipeError, KeyboardInterrupt):
    os._exit(1)
os._exit(int(os.environ["ANE_SWEEP_CODE"]))
"""
