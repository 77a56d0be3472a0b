"""Taking of samples: the first call, the early ones, the steady ones, and one after a pause. The clock is an argument."""

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ane_sweep.memory_limits import pause_collection

TICKS = 1000  # a sample lasts at least this many ticks of the clock: reading it then costs at most 0.1 %
_MOST_LOOPS = 100_000

Clock = Callable[[], float]


@dataclass
class Samples:
    """Seconds per call: the first, the early ones (warm-ups), the steady ones, and one after a pause of `idle_s`.

    loops      number of calls averaged in one steady sample; 1 unless calls are short compared with the clock's tick
    starts     start of each sample by that clock, in the order of sampling; a first call may be the steady sample, too
    native_s   the runtime's own times of steady calls, if it has any; never with loops
    """

    first_s: float
    warmup_s: list[float]
    steady_s: list[float]
    loops: int = 1
    after_idle_s: float | None = None
    idle_s: float = 0.0
    native_s: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)


def measure(
    call: Callable[[], object],
    *,
    clock: Clock,
    warmup: int,
    samples: int,
    max_seconds: float,
    idle_s: float = 0.0,
    tick_s: float = 0.0,
    check: bool = False,
    native: Callable[[], float | None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Samples:
    """Time `call` once, then `warmup` times, then take up to `samples` samples; last, one call after a pause.

    No call begins later than `max_seconds` (on the clock) after the first, except the one after the pause; at least one
    steady sample is always taken, unless a `check` spent all seconds on the first call, which then is the sample. Python's
    garbage collector is off. `native` returns the runtime's own milliseconds of the last call, and is called between samples.
    """
    deadline = clock() + max_seconds
    gc.collect()
    with pause_collection():
        starts: list[float] = []
        taken = Samples(_time_calls(call, clock, starts), [], [], starts=starts)
        while len(taken.warmup_s) < warmup and clock() < deadline:
            taken.warmup_s.append(_time_calls(call, clock, starts))
        taken.loops = choose_loops([taken.first_s, *taken.warmup_s][-1], tick_s)
        if check and not taken.warmup_s and clock() >= deadline:
            taken.steady_s.append(taken.first_s)
        while not taken.steady_s or (len(taken.steady_s) < samples and clock() < deadline):
            taken.steady_s.append(_time_calls(call, clock, starts, taken.loops))
            native_ms = native() if taken.loops == 1 else None
            if native_ms is not None:
                taken.native_s.append(native_ms / 1000)
        if idle_s:
            sleep(idle_s)
            taken.idle_s, taken.after_idle_s = idle_s, _time_calls(call, clock, starts)
    return taken


def _time_calls(call: Callable[[], object], clock: Clock, starts: list[float], loops: int = 1) -> float:
    if loops == 1:
        start = clock()
        call()
        end = clock()
    else:
        turns = range(loops)
        start = clock()
        for _ in turns:
            call()
        end = clock()
    starts.append(start)
    return (end - start) / loops


def choose_loops(call_s: float, tick_s: float) -> int:
    """Return how many calls of `call_s` make a sample of at least TICKS clock ticks."""
    if tick_s <= 0 or call_s >= TICKS * tick_s:
        return 1
    return min(_MOST_LOOPS, math.ceil(TICKS * tick_s / max(call_s, tick_s)))


def measure_tick(clock: Clock, reads: int = 50) -> float:
    """Return the smallest observed step of `clock`, in seconds; 0 for a clock that stands still."""
    steps = []
    before = clock()
    for _ in range(reads):
        now = clock()
        if now > before:
            steps.append(now - before)
        before = now
    return min(steps, default=0.0)
