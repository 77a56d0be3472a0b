"""evidence: records power, system log, memory and heat of the machine while a program runs. runtime=coreml only.

It is a second pass of the same program, after its samples were taken: nothing here runs during a timed call.

params  runtime, compute_units
inputs  program, reference (its first input is predicted)
leaves  log.json: every known line of the system log; power.json: the samples; moments.json: times and values of the
        readings of power, Apple's services and the machine's memory, for the timeline

In realised.evidence each source is `measured`, or has a sentence on why it has no figures. A missing source never fails
the stage; an error of the program does. All of it follows documented output and third parties' reports: we have run
none of the sources on a Mac (ane_sweep/docs/mac.md).
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.machine import memory as machine_memory
from ane_sweep.machine import powermetrics, services, syslog, thermal
from ane_sweep.machine.listener import Listener
from ane_sweep.worker import memory, runtimes
from ane_sweep.worker.feeds.arrays import Inputs
from ane_sweep.worker.params import RuntimeParams
from ane_sweep.worker.runtimes._runtime import Arrays, Call, Runtime
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=140, many="evidence passes", timeout_s=1800, base_gib=0.28, per_byte=1.3, base_s=20, per_gb_s=0.3,
    stored=False, alone=True, last=True, runs_program=True, fatal=False, reads=("machine/*.csv",),
)  # fmt: skip

IDLE_SAMPLES, LOADED_SAMPLES = 20, 30  # of powermetrics.INTERVAL_MS each
LISTEN_S = 1.0  # of predictions under the log's eye
_ATTACH_S = 2.0  # `log stream` says what it filters when it is ready
_LOADED_S = 60.0  # predictions end then, whatever powermetrics does
LOG_BYTES = 8 << 20
Powers = list[powermetrics.Sample]
SHOWN_FINDINGS = 20  # in the record; all of them are in log.json


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Run one pass. Raises Unavailable if this host lacks the runtime, and StageError with the log's lines if the program fails."""
    runtimes.check_available(RuntimeParams.read(params).runtime)
    values = Inputs(inputs["reference"])[0]
    pass_ = EvidencePass(out)
    pass_.look("before loading")
    predict = pass_.listen(lambda: make_predictor(runtimes.load(params, inputs), values))
    pass_.look("loaded, and predicted for a while")
    pass_.measure_power(predict)
    pass_.look("after the loop of predictions")
    pass_.read_services()
    pass_.read_memory()
    pass_.read_heat()
    shown = {"predictions": pass_.predictions, "findings": pass_.facts["findings"][:SHOWN_FINDINGS]}
    realised: dict[str, object] = {"evidence": {**pass_.sources, **shown}}
    return StageResult(pass_.metrics, realised, facts={"evidence": {**pass_.facts, "missing": pass_.missing()}})


def make_predictor(loaded: Runtime, values: Arrays) -> Call:
    """Return a call that predicts the same input, with new states each time.

    For a program with a key-value cache it is one decoding step, as in stage latency.
    """
    ready = loaded.prepare(values)
    call, prefill = loaded.timed(ready)
    if prefill:
        return call

    def predict() -> None:
        loaded.reset()
        loaded.predict(ready)

    return predict


class EvidencePass:
    """One evidence pass. `sources` maps each source to "measured" or the reason why not; `facts` go to the verdict."""

    def __init__(self, out: Path):
        self.out = out
        self.sources: dict[str, object] = {}
        self.metrics: list[Metric] = []
        self.facts: dict[str, Any] = {"power": {}, "findings": []}
        self.predictions = 0
        self.moments: list[dict[str, object]] = []
        self.helpers: list[list[services.Helper]] = []
        self.memory: list[machine_memory.Memory] = []

    def look(self, when: str) -> None:
        """Read the state of Apple's services and the machine's memory, between two parts of the pass."""
        rows = services.rows()
        self.helpers.append(rows)
        moment: dict[str, object] = {"when": when, "at": time.perf_counter(), "services": [vars(row) for row in rows]}
        try:
            self.memory.append(machine_memory.read())
            moment["memory"] = vars(self.memory[-1])
        except ValueError as error:
            self.sources["vm_stat"] = str(error)
        self.moments.append(moment)

    def read_services(self) -> None:
        """Report CPU time, memory and restarts of Apple's services during the pass, and the change of the machine's memory."""
        lives = services.lives(self.helpers)
        self.sources["services"] = list(map(asdict, lives)) or "none of Apple's services for the Neural Engine was seen"
        if again := services.replaced(lives):
            self.sources["services_note"] = f"another process than before: {', '.join(again)}"
        for name in dict.fromkeys(one.name for one in lives):
            own = [one for one in lives if one.name == name]
            spent = [one.cpu_s for one in own if one.cpu_s is not None]
            self.metrics.append(
                Metric(f"service_{name}_bytes", max(o.resident_bytes for o in own), "bytes", source="ps")
            )
            if spent:
                self.metrics.append(Metric(f"service_{name}_cpu_s", sum(spent), "s", source="ps"))
        if len(self.memory) == len(self.helpers):
            self.sources["vm_stat"] = "measured"
            changed = machine_memory.change(self.memory[0], self.memory[-1])
            self.metrics += [
                Metric(f"machine_{name}_bytes", value, "bytes", source="vm_stat") for name, value in changed.items()
            ]
        began = {"unix": time.time() - time.perf_counter(), "pid": os.getpid()}
        (self.out / "moments.json").write_text(json.dumps({**began, "looks": self.moments}, indent=1))

    def missing(self) -> list[str]:
        """Return the reasons for missing figures of the sources that a verdict needs."""
        return [f"{name}: {self.sources[name]}" for name in ("power", "log") if self.sources[name] != "measured"]

    def listen(self, load: Callable[[], Call]) -> Call:
        """Load the program and predict for a while with the system log open; return a function that predicts."""
        findings = syslog.Findings(os.getpid())
        log = Listener(syslog.command(os.getpid()), limit=LOG_BYTES, on_line=findings.add_stream).start()
        _repeat_until(lambda: findings.lines > 0 or not log.running(), _ATTACH_S)
        try:
            predict = load()
            _repeat_until(lambda: self._predict(predict), LISTEN_S)
        except Exception as error:
            self._close(log, findings)
            log_lines = "; ".join(f["explanation"] for f in self.facts["findings"] if f["ours"])
            text = f"{type(error).__name__}: {error}" + (f". The system log says: {log_lines}" if log_lines else "")
            raise StageError(text) from error
        self._close(log, findings)
        return predict

    def _predict(self, predict: Call) -> bool:
        predict()
        self.predictions += 1
        return False

    def _close(self, log: Listener, findings: syslog.Findings) -> None:
        ended_by_itself = log.error is None and not log.running()
        code = log.end()
        self.facts["findings"] = findings.rank()
        counts = {"lines": findings.lines, "truncated": log.truncated, "dropped": findings.dropped}
        (self.out / "log.json").write_text(json.dumps({**counts, "findings": self.facts["findings"]}, indent=1))
        if log.error:
            self.sources["log"] = log.error
        elif ended_by_itself:
            lines = log.stderr.strip().splitlines()
            self.sources["log"] = f"`log stream` ended early with {code}" + (f": {lines[-1]}" if lines else "")
        else:
            self.sources["log"] = "measured"
        if log.truncated:
            self.sources["log_note"] = f"the log flooded: of {log.limit >> 20} MiB on it was not read"

    def measure_power(self, predict: Call) -> None:
        """Measure a prediction's energy per engine: mean power during a loop minus that at rest, times the time per call."""
        idle = self._power_samples(IDLE_SAMPLES, lambda: time.sleep(0.01))
        if idle is None:
            return
        calls, began = 0, time.perf_counter()
        last = began

        def call() -> None:
            nonlocal calls, last
            predict()
            calls, last = calls + 1, time.perf_counter()

        loaded = self._power_samples(LOADED_SAMPLES, call)
        if loaded is None:
            return
        self.predictions += calls
        seconds_each = (last - began) / max(calls, 1)
        (self.out / "power.json").write_text(
            json.dumps({"idle": [vars(s) for s in idle], "loaded": [vars(s) for s in loaded]}, indent=1)
        )
        if pressure := loaded[-1].thermal_pressure:
            self.sources["thermal_pressure"] = pressure.lower()
        silent = [self._engine(engine, idle, loaded, seconds_each) for engine in powermetrics.ENGINES]
        self.sources["power"] = "; ".join(filter(None, silent)) or "measured"

    def _engine(self, engine: str, idle: Powers, loaded: Powers, seconds_each: float) -> str | None:
        """Report power and energy of one engine, or return the reason why they cannot be read."""
        if reason := powermetrics.unreadable(engine, idle, loaded):
            return reason
        power = powermetrics.excess(engine, idle, loaded)
        self.facts["power"][engine] = vars(power)
        self.metrics += [
            Metric(f"energy_{engine}_mj", power.milliwatts * seconds_each, "mJ", source="powermetrics"),
            Metric(f"power_{engine}_mw", power.milliwatts, "mW", source="powermetrics"),
        ]
        return None

    def _power_samples(self, count: int, meanwhile: Call) -> Powers | None:
        """Take samples while `meanwhile` is called repeatedly; return None, with the reason in `sources`, if there are none.

        A hanging powermetrics runs as root, so we cannot end it: it ends after its samples, and we do not wait.
        """
        tool, began = Listener(powermetrics.command(count)).start(), time.perf_counter()

        def ended() -> bool:
            meanwhile()
            return not tool.running()

        hung = not _repeat_until(ended, _LOADED_S) and tool.error is None
        code = tool.end()
        try:
            samples = powermetrics.parse(tool.stdout)
            self.moments.append({"at": began, "power": [vars(sample) for sample in samples]})
            return samples
        except ValueError:
            if hung:
                self.sources["power"] = f"powermetrics gave nothing in {_LOADED_S:.0f} s"
            else:
                self.sources["power"] = tool.error or powermetrics.refusal(code, tool.stderr)
            return None

    def read_memory(self) -> None:
        """Report this process's phys_footprint, now and at its peak; it includes the interpreter and the libraries."""
        try:
            seen = memory.read_footprint()
        except (OSError, AttributeError) as error:
            self.sources["footprint"] = f"proc_pid_rusage cannot be asked here ({error})"
            return
        self.sources["footprint"] = "measured"
        self.metrics += [
            Metric("footprint_bytes", seen.now, "bytes", source="proc_pid_rusage"),
            Metric("footprint_peak_bytes", seen.peak, "bytes", source="proc_pid_rusage"),
        ]

    def read_heat(self) -> None:
        """Report thermal pressure, if powermetrics did not, and the hottest die sensor, right after the loop."""
        if "thermal_pressure" not in self.sources:
            try:
                self.sources["thermal_pressure"] = thermal.pressure()
            except ValueError as error:
                self.sources["thermal_pressure"] = str(error)
        try:
            self.metrics.append(Metric("die_celsius", thermal.die_celsius(), "degC", source="HID sensors"))
        except ValueError as error:
            self.sources["die_temperature"] = str(error)


def _repeat_until(done: Callable[[], bool], seconds: float) -> bool:
    """Call `done` until it returns True, for `seconds` at most; return True if it did."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if done():
            return True
        time.sleep(0)
    return False
