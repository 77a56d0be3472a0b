"""A plan of three tasks on a real store, with workers that are played: what the runner does around them is the product's."""

import hashlib
from pathlib import Path

from ane_sweep.bridge.figures import Timing
from ane_sweep.bridge.plan import Outcome, Plan
from ane_sweep.bridge.settings import read_run
from ane_sweep.bridge.task import Task, TaskResult
from ane_sweep.runner import isolate
from ane_sweep.runner.executors import local, make_runner
from ane_sweep.store import files
from ane_sweep.store.cache import Store
from ane_sweep.store.runs import Run

SETTINGS = {"lanes": 2, "budget_minutes": None, "gate": {"wait_s": 0, "busy": 1}, "store": None}


def task(stage: str, alone: bool = False, **inputs: str) -> Task:
    return Task(
        stage=stage, key=stage + "0" * 20, params={}, inputs={role: key + "0" * 20 for role, key in inputs.items()},
        folders={}, limits={"timeout_s": 5, "memory_gib": None}, label=f"{stage} tiny", work=1,
        memory_bytes=1, disk_bytes=0, seconds=None, alone=alone, round=int(stage == "latency"),
    )  # fmt: skip


def plan() -> Plan:
    """convert -> chunk -> score, latency."""
    tasks = [task("convert"), task("chunk", program="convert"), task("score", program="chunk")]
    tasks.append(task("latency", alone=True, program="chunk"))
    return Plan([], [], tasks={one.key: one for one in tasks})


class Stage:
    """The company: who was called, what they leave (bytes that follow from their inputs'), and how they end."""

    def __init__(self, monkeypatch, out: Path):
        self.out, self.called, self.said, self.fresh, self.ends = out, [], [], b"", {}
        self.before = lambda stage: None
        self.prints = {}
        self.beside = None
        monkeypatch.setattr(isolate, "run_task", self.play)

    def play(self, task, folder: Path, **_):
        stage = task.stage
        self.called.append(stage)
        self.before(stage)
        given = b"".join((path / "weight.bin").read_bytes() for path in task.inputs.values())
        (task.out / "weight.bin").write_bytes(hashlib.sha256(stage.encode() + given + self.fresh).digest())
        reason = None if stage not in self.ends else "as played"
        timing = Timing(1, 1.0, samples_ms=[1.0]) if task.inputs else None
        result = TaskResult(stage, task.key, self.ends.get(stage, "ok"), reason, timing=timing)
        result.seconds, result.peak_bytes, result.exit = 0.1, 1, 0
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stderr.txt").write_text(self.prints.get(stage, ""))
        result.write(folder / "result.json")
        return result

    def sweep(self, run: str, **settings) -> dict[str, Outcome]:
        """One sweep by a process of its own, in a run of that name; stage -> outcome."""
        files._hashed.clear()
        self.called.clear()
        self.said.clear()
        folder = self.out / "runs" / run
        with Store(self.out / "cache") as store:
            asked = read_run(SETTINGS | settings)
            runner = make_runner(plan(), Run(folder, {}), store, asked, self)
            runner.budget = 1 << 30
            found = local.execute(runner, asked, meanwhile=self.beside)
        return {key.rstrip("0"): outcome for key, outcome in found.items()}

    def stored(self, stage: str) -> Path:
        (folder,) = (self.out / "cache" / stage).glob("*/*")
        return folder

    # What the runner tells whoever watches.
    def begin(self, task) -> None: ...
    def freeze(self) -> None: ...
    def at(self, task, machine) -> None: ...

    def end(self, task, outcome) -> None:
        if outcome.reason:
            self.said.append(f"{task.stage}: {outcome.reason}")

    def say(self, line: str) -> None:
        self.said.append(line)
