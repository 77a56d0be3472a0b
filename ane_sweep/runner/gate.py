"""The gate before each timing: it checks that the machine is quiet, cool, on mains and at full power.

It checks only before a process is started, never while one is timed. Temporary trouble (other programs, heat) is waited
for, up to a limit; timing in spite of it makes the cell `degraded`. Lasting trouble (a battery, low-power mode) is only
noted. Both are part of the record's `timings`.

It measures the processor's current use rather than the load average, which includes our own preparation for a minute or
more and would delay every sweep.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import psutil

from ane_sweep.bridge.figures import Look
from ane_sweep.bridge.protocol import Interrupted
from ane_sweep.machine import host
from ane_sweep.machine import thermal as pressure

HOT_CELSIUS = 90  # Linux reports temperatures; laptops throttle from some 95
_LOOK_S = 0.2  # the processor is watched so long for one look
_PAUSE_S = 1.0


@dataclass(frozen=True)
class State:
    """The machine's state at one reading: sentences about temporary and about lasting trouble."""

    passing: list[str] = field(default_factory=list)
    lasting: list[str] = field(default_factory=list)


def look(busy_limit: float) -> State:
    """Return this machine's state now. Facts that the platform does not report count as good.

    busy_limit  share of the processor that other programs may use; from 1 on it is not measured, which saves _LOOK_S
    """
    passing, lasting = [], []
    if busy_limit < 1 and 1 - _idle_share() > busy_limit:
        passing.append("other programs were using the processor")
    try:
        is_pressed = pressure.pressure() != "nominal"  # Apple's chips report no speed limit
    except ValueError:
        is_pressed = False
    if hot(host.thermal()) or is_pressed:
        passing.append("the machine was hot")
    if host.power() == "battery":
        lasting.append("the machine ran on battery")
    if host.low_power():
        lasting.append("low-power mode was on")
    return State(passing, lasting)


def _idle_share() -> float:
    before = psutil.cpu_times()
    time.sleep(_LOOK_S)
    return idle_share(before, psutil.cpu_times())


def idle_share(before: NamedTuple, after: NamedTuple) -> float:
    """Return the idle share of the processors' time between two readings of psutil.cpu_times().

    psutil's own percentages are too low if all processors together ran for less than a second.
    """
    took = {name: max(0.0, now - then) for name, then, now in zip(before._fields, before, after)}
    # user and nice hold a guest's time as well
    whole = sum(took.values()) - took.get("guest", 0.0) - took.get("guest_nice", 0.0)
    return (took["idle"] + took.get("iowait", 0.0)) / whole if whole else 1.0


def hot(thermal: Mapping[str, str | float] | None) -> bool:
    """Return True if the system slows down because of heat (reported by macOS) or is about to (degrees on Linux)."""
    if thermal is None:
        return False
    value = float(thermal["value"])
    if thermal["kind"] == "cpu_speed_limit_percent":
        return value < 100
    return thermal["kind"] == "hottest_zone_celsius" and value >= HOT_CELSIUS


class TimingGate:
    """The wait before timings until the machine is ready.

    After one unsuccessful wait it does not wait again until the machine was ready once, so that a host that is never
    quiet delays a sweep only once.
    """

    def __init__(
        self,
        wait_s: float,
        busy: float,
        *,
        look: Callable[[float], State] = look,
        tell: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.wait_s, self.busy, self.patient = wait_s, busy, True
        self.look, self.tell, self.clock, self.sleep = look, tell, clock, sleep

    def wait(self, stop: threading.Event) -> Look:
        """Wait until the machine is ready, at most `wait_s`, and return its state. Raises Interrupted at `stop`.

        `in_vain` holds the trouble that did not pass; such a timing gets a warning (pool.py).
        """
        began = self.clock()
        state = self.look(self.busy)
        if state.passing and self.patient and self.wait_s:
            self.tell(f"{' and '.join(state.passing)}: waiting up to {self.wait_s:g} s for that to pass (gate.wait_s)")
        while state.passing and self.patient and self.clock() - began < self.wait_s:
            if stop.is_set():
                raise Interrupted("the sweep is being stopped; it was waiting for a quiet machine")
            self.sleep(_PAUSE_S)
            state = self.look(self.busy)
        self.patient = not state.passing
        doubts = [*state.passing, *state.lasting]
        return Look(not doubts, round(self.clock() - began, 1), doubts, state.passing)
