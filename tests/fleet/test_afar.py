"""The thread that decides, against a scheduler that is played: what is lost, cut, missing or unfit ends in one true outcome.
The errand itself, the caches and the shared store are the product's; the stage is played (played.py)."""

import msgspec
import pytest
from played import SETTINGS, Stage, task

from ane_sweep.bridge.outcome import Outcome
from ane_sweep.bridge.plan import Plan
from ane_sweep.fleet import members
from ane_sweep.runner import afar, errand, needs
from ane_sweep.runner.wire import Spot
from ane_sweep.store import files
from ane_sweep.store.cache import Store
from ane_sweep.store.runs import Run

HOST = "HOST-m4"


class Future:
    def __init__(self, status: str, value: object = None):
        self.status, self.value = status, value

    def result(self, timeout: float) -> object:
        return self.value

    def exception(self) -> object:
        return self.value


class KilledWorker(Exception):
    pass


class Played:
    """In place of a Wire: every task is done at once, by the first worker that it fits, unless `hurts` says otherwise."""

    def __init__(self, company, sweep, heard, began, ended):
        self.company, self.heard, self.tell_began, self.tell_ended = company, heard, began, ended
        self.sent, self.dropped = [], []

    def submit(self, key, name, text, needs, priority):
        self.sent.append(name)
        where = next((spot for spot in self.spots() if spot.fits(needs)), None)
        if where is None:
            return
        self.heard.put(lambda: self.tell_began(key, where.name))
        future = self.company.does(key, where.name, text)
        if future is not None:  # None: it runs, and nothing is heard of it again
            self.heard.put(lambda: self.tell_ended(self, name, key, future))

    def spots(self):
        return self.company.there

    def drop(self, key):
        self.dropped.append(key)

    def forget(self, key): ...
    def stop(self): ...
    def close(self): ...


class Company:
    """Two machines that are alike, and one where only preparations go."""

    def __init__(self, tmp_path, monkeypatch):
        self.out, self.patch, self.wires, self.done, self.hurts = tmp_path, monkeypatch, [], [], {}
        self.stage = Stage(monkeypatch, tmp_path)
        same = {needs.tools_label(members.tools()): 1e6, "MEMORY": 8.0}
        self.there = [Spot(name, {**same, HOST: 1e6, f"NAME-{name}": 1e6, "TIME": 1.0}) for name in ("a", "b")]
        self.there.append(Spot("server", {**same, "NAME-server": 1e6, "PREP": 2.0}))
        for one in (errand._store, errand._shelf):
            one.cache_clear()

    def does(self, key, machine, text):
        stage = key.rstrip("0")
        self.done.append((stage, machine))
        if self.hurts.get(stage):
            return self.hurts[stage].pop(0)(machine, text)
        return Future("finished", self.perform(machine, text))

    def perform(self, machine, text):
        with self.patch.context() as patch:
            patch.setenv(members.NAME_VARIABLE, machine)
            patch.setenv("ANE_SWEEP_OUT", str(self.out / machine))
            errand._store.cache_clear()
            return errand.perform(text)

    def sweep(self, run="run", **settings) -> dict[str, Outcome]:
        files._hashed.clear()
        executor = {"name": "dask", "address": "tcp://127.0.0.1:1", "certificates": None, "wait_s": 0}
        told = {**SETTINGS, "executor": executor, "store": str(self.out / "shelf"), **settings}

        def wire(at, certificates, sweep, heard, began, ended):
            self.wires.append(Played(self, sweep, heard, began, ended))
            return self.wires[-1]

        self.patch.setattr(afar, "Wire", wire)
        self.patch.setattr(afar, "_TICK_S", 0.01)
        with Store(self.out / "home" / "cache") as store:
            found = afar.execute(_plan(), Run(self.out / "runs" / run, {}), store, told, self.stage, 1 << 30)
        return {key.rstrip("0"): outcome for key, outcome in found.items()}


def _plan() -> Plan:
    """convert -> chunk -> score, two processes that time it."""
    tasks = [task("convert"), task("chunk", program="convert"), task("score", program="chunk")]
    for number in (1, 2):
        timed = task("latency", alone=True, program="chunk")
        timed.key, timed.round = f"latency{number}" + "0" * 20, number
        tasks.append(timed)
    for one in tasks[2:]:
        one.place = HOST
    return Plan([], [], tasks={one.key: one for one in tasks})


@pytest.fixture
def company(tmp_path, monkeypatch):
    return Company(tmp_path, monkeypatch)


def lost(machine, text):
    return Future("error", KilledWorker())


def by(outcome: Outcome) -> str:
    return outcome.result.facts["measured_on"]["host"]["worker"]


def test_a_plan_is_done_elsewhere_and_lies_here_as_if_it_were_done_here(company):
    found = company.sweep()
    assert {outcome.status for outcome in found.values()} == {"ok"}
    assert [machine for stage, machine in company.done if stage in ("convert", "chunk")] == ["server", "server"]
    assert by(found["latency1"]) == by(found["latency2"]) in ("a", "b")
    assert found["chunk"].folder.is_relative_to(company.out / "home" / "cache")
    assert company.stage.sweep("here")["chunk"].status == "ok"
    here = (company.stage.stored("chunk") / "weight.bin").read_bytes()
    assert (found["chunk"].folder / "weight.bin").read_bytes() == here, "bit for bit, whoever made it"


def test_what_is_done_is_asked_of_nobody_again_but_timings_are_in_a_new_run(company):
    company.sweep()
    company.done.clear()
    found = company.sweep("another")
    assert (
        sorted(stage for stage, _ in company.done) == ["latency1", "latency2"] and found["convert"].status == "cached"
    )
    company.done.clear()
    company.sweep("another")
    assert company.done == [], "a run that is gone on with has its timings"


def test_a_worker_that_is_lost_in_a_task_costs_one_more_try(company):
    company.hurts = {"latency1": [lost], "convert": [lost]}
    found = company.sweep()
    assert {outcome.status for outcome in found.values()} == {"ok"}
    assert [stage for stage, _ in company.done].count("latency1") == 2
    assert any("was lost on" in line and "runs again" in line for line in company.stage.said)


def test_lost_twice_it_is_recorded_with_the_reason_and_the_rest_runs(company):
    company.hurts = {"latency2": [lost, lost]}
    found = company.sweep()
    assert found["latency2"].status == "failed" and "lost 2 times" in found["latency2"].reason
    assert found["latency1"].status == found["score"].status == "ok"


def test_when_the_scheduler_forgets_everything_all_is_asked_again_and_nothing_done_twice(company):
    company.hurts = {"chunk": [lambda machine, text: Future("cancelled")]}
    found = company.sweep()
    assert {outcome.status for outcome in found.values()} == {"ok"} and len(company.wires) == 2
    stages = [stage for stage, _ in company.done]
    assert stages.count("convert") == 1 and stages.count("chunk") == 2


def test_what_the_shared_store_damages_is_sent_again(company):
    def damaging(machine, text):
        said = company.perform(machine, text)
        for path in (company.out / "shelf" / "cas").glob("*/*"):
            path.write_bytes(b"")
        return Future("finished", said)

    company.hurts = {"convert": [damaging]}
    found = company.sweep()
    assert all(outcome.done for outcome in found.values())
    assert [stage for stage, _ in company.done].count("convert") == 2 and company.stage.called.count("convert") == 1


def test_half_a_programs_timings_are_taken_anew_where_their_machine_does_not_come_back(company):
    timed = []

    def the_second_leaves(machine, text):
        timed.append(machine)
        if len(timed) == 1:
            return Future("finished", company.perform(machine, text))
        company.there = [spot for spot in company.there if spot.name != machine]
        return Future("error", KilledWorker())

    company.hurts = {"latency1": [the_second_leaves], "latency2": [the_second_leaves]}
    found = company.sweep()
    assert {outcome.status for outcome in found.values()} == {"ok"} and timed[0] == timed[1]
    assert by(found["latency1"]) == by(found["latency2"]) != timed[0]
    assert len([stage for stage, _ in company.done if stage.startswith("latency")]) == 4


def test_timings_that_are_under_way_move_together(company):
    run = []

    def leaves_with_the_second(machine, text):
        run.append(machine)
        if len(run) == 2:
            company.there = [spot for spot in company.there if spot.name != machine]

    company.hurts = {"latency1": [leaves_with_the_second], "latency2": [leaves_with_the_second]}
    found = company.sweep()
    assert {outcome.status for outcome in found.values()} == {"ok"}
    assert by(found["latency1"]) == by(found["latency2"])
    assert sum("does not come back" in line for line in company.stage.said) == 1


def test_without_a_machine_that_fits_it_is_said_at_once_and_recorded(company):
    company.there = company.there[2:]
    found = company.sweep()
    assert found["chunk"].status == "ok"
    for stage in ("score", "latency1", "latency2"):
        assert found[stage].status == "failed" and "no worker fits" in found[stage].reason
        assert "workers there: server" in found[stage].reason
    assert any("no worker fits" in line and "executor.wait_s" in line for line in company.stage.said)


def test_a_worker_of_other_versions_does_nothing(company):
    asked = errand.asked(task("convert"), "s", {}, {**SETTINGS, "store": str(company.out / "shelf")})
    other = msgspec.json.decode(asked, type=errand.Errand)
    other.tools = {**other.tools, "coremltools": "8.3"}
    answer = msgspec.json.decode(company.perform("a", msgspec.json.encode(other).decode()), type=errand.Answer)
    assert answer.status == "failed" and "another coremltools" in answer.reason and not company.stage.called


def test_no_variable_of_the_environment_goes_into_what_a_worker_is_asked_or_answers(company, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "verysecret")
    asked = errand.asked(task("convert"), "s", {}, {**SETTINGS, "store": str(company.out / "shelf")})
    assert "verysecret" not in asked and "verysecret" not in company.perform("a", asked)


def test_an_answer_that_names_a_file_elsewhere_is_not_taken(company):
    def escaping(machine, text):
        answer = msgspec.json.decode(company.perform(machine, text), type=errand.Answer)
        return Future(
            "finished", msgspec.json.encode(msgspec.structs.replace(answer, files={"../../x": "eJwDAAAAAAE="}))
        )

    company.hurts = {"latency1": [escaping, escaping]}
    found = company.sweep()
    assert found["latency1"].status == "failed" and "outside" in found["latency1"].reason
    assert not (company.out / "runs" / "x").exists()
