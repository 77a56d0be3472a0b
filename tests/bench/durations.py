"""seconds of every task: the plan's rule beside the time that a processor worked (some minutes a sweep)

`ANE_SWEEP_MODELS=small,gpt2` runs the sweeps of these names. Tasks run one at a time. Processor seconds, and not wall
time: other programs share the machine.
"""

import contextlib
import functools
import json
import os
import resource
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil

from ane_sweep.__main__ import main
from ane_sweep.bridge import protocol
from ane_sweep.bridge.plan import Outcome
from ane_sweep.bridge.task import Task
from ane_sweep.runner.task_runner import TaskRunner
from tests.bench import Row, _kept, timed

BAR = "1 to 1.3"
keep = functools.partial(_kept.replace, "durations")  # it is run in pieces
ONE_THREAD = dict.fromkeys(protocol.THREAD_VARIABLES, "1")  # threads that wait for each other work while they do
FEW = ["weights=random", "runtime=reference", "latency.samples=3", "latency.warmup=1", "latency.repeats=1"]
SWEEPS = {
    "tiny": ["-m", "model=tiny-gpt2,tiny-convnext,tiny-bert,tiny-t5,unet-tiny", *FEW],
    "small": ["-m", "model=minilm,distilgpt2,vit-base,clip-text,convnext-tiny", *FEW],
    "gpt2": ["-m", "model=gpt2", "precision=fp16,p4,int8_channel,sparse50,w8a8", *FEW],
    "gpt2 variants": ["-m", "model=gpt2", "variant=original,split_einsum", "seq_len=64,512", *FEW],
    "gpt2 stateful": ["model=gpt2", "cache=stateful", *FEW],
    "gpt2 chunks": ["-m", "model=gpt2", "chunks=2,4", *FEW],
    "t5-small": ["model=t5-small", *FEW],
    "whisper-base": ["model=whisper-base", *FEW],
    "ladder-base": ["-m", "model=ladder-base", "variant=original,split_einsum", *FEW],
    "gpt2-medium": ["-m", "model=gpt2-medium", "precision=fp16,p4,sparse50", *FEW],
    "gpt2-xl": ["model=gpt2-xl", *FEW],
    "opt-1.3b p6": ["model=opt-1.3b", "precision=p6", *FEW],
    "minilm batch 8": ["model=minilm", "batch=8", *FEW],
    "tiny ane": ["model=tiny-bert", "numerics=ane", *FEW],
    "minilm torch": ["model=minilm", *FEW, "runtime=torch_eager"],
    "minilm 40 samples": ["model=minilm", *FEW, "latency.samples=40"],
}


def run() -> list[Row]:
    """A row for each task of each sweep."""
    wanted = os.environ.get("ANE_SWEEP_MODELS", ",".join(SWEEPS)).split(",")
    return [row for name in wanted for row in _rows(name)]


def _rows(name: str) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("ANE_SWEEP_OUT")) as folder:
        log = Path(folder, "taken.jsonl")
        command = [sys.executable, "-P", "-m", "tests.bench.durations", str(log), *SWEEPS[name], "gate.wait_s=0"]
        timed(command, (0, 1, 3), ANE_SWEEP_OUT=folder, **ONE_THREAD)
        for line in log.read_text(encoding="utf-8").splitlines():
            label, rule_s, cpu_s = json.loads(line)
            yield Row(f"{name}: {label}", f"{rule_s:.2f} s", f"{cpu_s:.2f} s", f"{rule_s / cpu_s:.2f}", BAR)


def _used() -> float:
    """Return the processor seconds of all tasks that have ended. The fork servers' own ones, for their imports, do not count."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = own.ru_utime + own.ru_stime
    for server in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = server.cpu_times()
            total += times.children_user + times.children_system
    return total


def _sweep(log: str, *words: str) -> int:
    """Run a sweep in this process, one task at a time, and write what each took to `log`."""
    one_by_one, plain = threading.Lock(), TaskRunner._run

    def measured(runner: TaskRunner, task: Task, out: Path) -> Outcome:
        with one_by_one:
            runner.fork_servers.begin_round(task.round)
            before = _used()
            outcome = plain(runner, task, out)
            taken = [task.label, task.rule_s, _used() - before]
        with open(log, "a", encoding="utf-8") as file:
            file.write(json.dumps(taken) + "\n")
        return outcome

    TaskRunner._run = measured  # type: ignore[method-assign,assignment]
    return main(words)


if __name__ == "__main__":
    sys.exit(_sweep(*sys.argv[1:]))
