"""Where a conversion's time goes, by phase: what each takes less what it calls of the others.

python -m tests.bench._phased NAME VARIANT FOLDER
"""

import importlib
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ane_sweep.bridge.protocol import peak_bytes

# phase -> (module, owner in it or "", name)
POINTS = (
    ("weights drawn or read", "ane_sweep.worker.models.weights", "", "draw_tensor"),
    ("weights drawn or read", "ane_sweep.worker.models.weights", "", "_read"),
    ("building", "ane_sweep.worker.models._build", "", "build"),
    ("blocks compared", "ane_sweep.worker.grow.calls", "", "find_repeats"),
    ("tracing", "ane_sweep.worker.programs.mlprogram.convert", "", "_trace"),
    ("frontend", "coremltools.converters.mil.converter", "TorchFrontend", "__call__"),
    ("pass", "coremltools.converters.mil.mil.passes.graph_pass", "AbstractGraphPass", "__call__"),
    ("program and its weights written", "coremltools.converters.mil.converter", "MILProtoBackend", "__call__"),
    ("package", "coremltools.models.model", "", "_create_mlpackage"),
    ("program grown", "ane_sweep.worker.grow.program", "GrowthPlan", "__init__"),
    ("weights cast, turned and written, by threads", "ane_sweep.worker.grow.weights", "_Streams", "_fill"),
    ("weights of all blocks written", "ane_sweep.worker.grow.weights", "", "grow_package"),
    ("package", "ane_sweep.worker.programs.mlprogram.size", "", "make_deterministic"),
)


class Clock:
    """Phase -> [wall seconds of the main thread, CPU seconds of all threads of ours, peak bytes when it last ended]."""

    def __init__(self) -> None:
        self.phases: dict[str, list[float]] = {}
        self.lock = threading.Lock()
        self.inner = threading.local()

    def timed(self, phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*given: Any, **named: Any) -> Any:
            name = f"pass {given[0]}" if phase == "pass" else phase
            around = getattr(self.inner, "used", [0.0, 0.0])
            self.inner.used = [0.0, 0.0]
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return call(*given, **named)
            finally:
                took = [time.perf_counter() - wall, time.thread_time() - cpu]
                self.add(name, *(whole - part for whole, part in zip(took, self.inner.used)))
                self.inner.used = [sum(pair) for pair in zip(around, took)]

        return measured

    def add(self, name: str, wall: float, cpu: float) -> None:
        main = threading.current_thread() is threading.main_thread()
        with self.lock:
            known = self.phases.setdefault(name, [0.0, 0.0, 0])
            known[0] += wall if main else 0.0
            known[1] += cpu
            known[2] = peak_bytes()


def phased(name: str, variant: str, folder: str) -> dict[str, Any]:
    """Convert one option in this process: its phases, and what all of it took."""
    clock = Clock()
    clock.add("imports", *_since_start())
    for phase, module, owner, function in POINTS:
        held = importlib.import_module(module)
        held = getattr(held, owner) if owner else held
        setattr(held, function, clock.timed(phase, getattr(held, function)))
    clock.phases["imports"] = [*_since_start(), peak_bytes()]
    from tests.bench.conversions import convert_one

    facts = clock.timed("the rest", convert_one)(name, variant, folder)
    wall, cpu = _since_start()
    return {"phases": clock.phases, "wall_s": wall, "cpu_s": cpu, **facts}


def _since_start() -> tuple[float, float]:
    """Wall and CPU seconds of this process so far."""
    import psutil

    return time.time() - psutil.Process().create_time(), time.process_time()


if __name__ == "__main__":
    print(json.dumps(phased(*sys.argv[1:])))
