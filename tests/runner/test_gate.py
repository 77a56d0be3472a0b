"""The gate before a timing: what it waits for, what it only says, and that it gives up once, not once a cell."""

import threading
from collections import namedtuple

import pytest

from ane_sweep.bridge.figures import Look
from ane_sweep.bridge.protocol import Interrupted
from ane_sweep.machine import host
from ane_sweep.runner import gate as ready
from ane_sweep.runner.gate import State, TimingGate

BUSY, QUIET = State(["busy"]), State()


class Machine:
    """A machine of our own: one state a look, and a clock that only sleeping moves."""

    def __init__(self, *states: State):
        self.states, self.now = list(states), 0.0

    def gate(self, wait_s: float) -> TimingGate:
        return TimingGate(wait_s, 0.25, look=lambda busy: self.states.pop(0), clock=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_ready_machine_is_not_waited_for():
    machine = Machine(QUIET)
    assert machine.gate(30).wait(threading.Event()) == Look(waited_s=0.0)


def test_what_passes_is_waited_for_up_to_the_limit():
    machine = Machine(BUSY, BUSY, QUIET)
    assert machine.gate(30).wait(threading.Event()) == Look(waited_s=2.0)
    machine, told = Machine(*[BUSY] * 9), []
    gate = machine.gate(3)
    gate.tell = told.append
    assert gate.wait(threading.Event()) == Look(False, 3.0, ["busy"], ["busy"])
    assert told == ["busy: waiting up to 3 s for that to pass (gate.wait_s)"]


def test_after_waiting_in_vain_it_waits_again_only_once_it_saw_the_machine_ready():
    machine = Machine(BUSY, BUSY, BUSY, BUSY, QUIET, BUSY, QUIET)
    gate = machine.gate(2)
    waited = [gate.wait(threading.Event()).waited_s for _ in range(4)]
    assert waited == [2.0, 0.0, 0.0, 1.0]


def test_a_short_look_at_two_processors_sees_that_they_rest():
    Times = namedtuple("Times", "user nice system idle iowait guest guest_nice")
    before = Times(100.0, 0.0, 50.0, 1000.0, 5.0, 3.0, 0.0)
    after = Times(100.01, 0.0, 50.01, 1000.36, 5.02, 3.01, 0.0)  # 0.4 s of both together, a guest's time within user's
    assert ready.idle_share(before, after) == pytest.approx(0.38 / 0.40)
    assert ready.idle_share(before, before) == 1.0


def test_a_battery_is_said_and_not_waited_for():
    machine = Machine(State([], ["the machine ran on battery"]))
    found = machine.gate(30).wait(threading.Event())
    assert found.doubts == ["the machine ran on battery"] and not found.in_vain and machine.now == 0


def test_nobody_who_waits_for_nothing_is_told_less():
    machine = Machine(BUSY)
    assert machine.gate(0).wait(threading.Event()) == Look(False, 0.0, ["busy"], ["busy"]) and not machine.states


def test_an_interrupted_sweep_does_not_wait():
    stop = threading.Event()
    stop.set()
    with pytest.raises(Interrupted):
        Machine(BUSY, BUSY).gate(30).wait(stop)


def test_what_a_look_sees(monkeypatch):
    monkeypatch.setattr(ready, "_idle_share", lambda: 0.5)
    monkeypatch.setattr(host, "power", lambda: "battery")
    monkeypatch.setattr(host, "low_power", lambda: True)
    monkeypatch.setattr(host, "thermal", lambda: {"kind": "cpu_speed_limit_percent", "value": 80})
    found = ready.look(0.25)
    assert found.passing == ["other programs were using the processor", "the machine was hot"]
    assert found.lasting == ["the machine ran on battery", "low-power mode was on"]
    for name in ("power", "low_power", "thermal"):
        monkeypatch.setattr(host, name, lambda: None)
    assert ready.look(0.6) == State()
    monkeypatch.setattr(ready, "_idle_share", lambda: pytest.fail("nothing to look for"))
    assert ready.look(1) == State(), "the whole processor may be used"
    monkeypatch.setattr(ready, "_idle_share", lambda: 0.5)
    monkeypatch.setattr(ready.pressure, "pressure", lambda: "heavy")
    assert ready.look(0.6) == State(["the machine was hot"])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [("cpu_speed_limit_percent", 100, False), ("cpu_speed_limit_percent", 99, True), ("hottest_zone_celsius", 60, False),
     ("hottest_zone_celsius", 95, True), ("something new", 1, False)],
)  # fmt: skip
def test_heat(kind, value, expected):
    assert ready.hot({"kind": kind, "value": value}) is expected
