"""The thread that decides, against a scheduler that is played: what is lost, cut, missing or unfit ends in one true outcome.
The errand itself, the caches and the shared store are the product's; the stage is played (played.py)."""

import errno
import re
import threading

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from played import SETTINGS, Stage, task

from ane_sweep.bridge import disk
from ane_sweep.bridge.plan import Outcome, Place, Plan
from ane_sweep.bridge.settings import read_run
from ane_sweep.fleet import members
from ane_sweep.runner import dask_connection, placement_rules, ready_queue, remote_task
from ane_sweep.runner.dask_connection import FleetWorker
from ane_sweep.runner.executors import dask, make_runner
from ane_sweep.store import files, remote
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
    """In place of a SchedulerSession: every task is done at once, by the first worker that it fits, unless `hurts` says otherwise."""

    def __init__(self, company, sweep, heard, began, ended):
        self.company, self.heard, self.tell_began, self.tell_ended = company, heard, began, ended
        self.sent, self.dropped = [], []

    def submit(self, key, name, text, needs, priority):
        if self.company.torn:
            raise OSError("the connection was closed")
        self.sent.append(name)
        where = next((spot for spot in self.list_workers() if spot.fits(needs)), None)
        if where is None:
            return
        self.heard.put(lambda: self.tell_began(key, name, where.name))
        future = self.company.does(key, where.name, text)
        if future is not None:  # None: it runs, and nothing is heard of it again
            self.heard.put(lambda: self.tell_ended(self, name, key, future))

    def list_workers(self):
        return self.company.there

    def drop(self, key):
        self.dropped.append(key)
        if self.company.torn:
            raise OSError("the connection was closed")

    def forget(self, key): ...
    def stop(self): ...
    def close(self): ...


class Company:
    """Two machines that are alike, and one where only preparations go."""

    def __init__(self, tmp_path, monkeypatch):
        self.out, self.patch, self.wires, self.done, self.hurts = tmp_path, monkeypatch, [], [], {}
        self.torn = 0  # what is said to the scheduler so often does not get through
        self.stage = Stage(monkeypatch, tmp_path)
        same = {placement_rules.tools_label(members.tools()): 1e6, "MEMORY": 8.0}
        self.there = [FleetWorker(name, {**same, HOST: 1e6, f"NAME-{name}": 1e6, "TIME": 1.0}) for name in ("a", "b")]
        self.there.append(FleetWorker("server", {**same, "NAME-server": 1e6, "PREP": 2.0}))
        for one in (remote_task._open_cache, remote_task._open_shared):
            one.cache_clear()

    def also(self, *names):
        """More workers where only preparations go."""
        has = {label: amount for label, amount in self.there[2].resources.items() if not label.startswith("NAME-")}
        self.there += [FleetWorker(name, {**has, f"NAME-{name}": 1e6}) for name in names]

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
            for one in (remote_task._open_cache, remote_task._open_shared):  # each machine's process has its own
                one.cache_clear()
            return remote_task.run_remote_task(text)

    def sweep(self, run="run", plan=None, outcomes=None, wait_s=0, **settings) -> dict[str, Outcome]:
        files._hashed.clear()
        executor = {"name": "dask", "address": "tls://127.0.0.1:1", "certificates": None, "wait_s": wait_s}
        told = read_run({**SETTINGS, "executor": executor, "store": str(self.out / "shelf"), **settings})

        def wire(at, certificates, sweep, heard, began, ended):
            self.wires.append(Played(self, sweep, heard, began, ended))
            return self.wires[-1]

        home = dask.ResultCollector

        def home_of(worker, *said):
            self.worker = worker
            return home(worker, *said)

        self.patch.setattr(dask, "ResultCollector", home_of)
        self.patch.setattr(dask, "SchedulerSession", wire)
        self.patch.setattr(dask, "_TICK_S", 0.01)
        self.patch.setattr(dask_connection, "RECONNECT_S", 0.01)
        with Store(self.out / "home" / "cache") as store:
            run, plan = Run(self.out / "runs" / run, {}), plan or _plan()
            run.folder.mkdir(parents=True, exist_ok=True)  # as open_run leaves it
            runner = make_runner(plan, run, store, told, self.stage, outcomes)
            runner.budget = 1 << 30
            found = dask.execute(runner, told)
            self.shares = disk.read_json(run.folder / "run.json")["machines"]
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
    return planned(tasks)


def planned(tasks) -> Plan:
    there = Place(label=HOST, key="", names=("a", "b"), host={}, no_coreml=None, cannot={}, asked={}, xcode=None)
    return Plan([], [], tasks={one.key: one for one in tasks}, places={"cell": there})


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
    assert (company.shares["a"]["lost"], company.shares["server"]["lost"]) == (1, 1)
    assert company.shares["server"]["seconds"] == 0.2, "of the processes that did the work"


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
    assert (company.shares["a"]["moved"], company.shares["b"]["moved"]) == (1, 0)
    also = by(found["score"]) == "b"  # which waits for no timing, and may be asked for when the first is gone
    assert company.shares["b"]["tasks"] == 2 + also and company.shares["server"]["tasks"] == 2
    assert sum("does not come back" in line for line in company.stage.said) == 1


def test_without_a_machine_that_fits_it_is_said_at_once_and_recorded(company):
    company.there = company.there[2:]
    found = company.sweep()
    assert found["chunk"].status == "ok"
    for stage in ("score", "latency1", "latency2"):
        assert found[stage].status == "failed" and "no worker fits" in found[stage].reason
        assert "workers there: server" in found[stage].reason and "one of the workers a, b" in found[stage].reason
        assert not re.search("PREP|TIME|HOST|TOOLS|that very", found[stage].reason), (
            "labels of Dask's are no words for people"
        )
    assert any("no worker fits" in line and "executor.wait_s" in line for line in company.stage.said)


def test_a_worker_of_other_versions_does_nothing(company):
    asked = remote_task.encode_task(
        task("convert"), "s", {}, read_run({**SETTINGS, "store": str(company.out / "shelf")})
    )
    other = msgspec.json.decode(asked, type=remote_task.RemoteTask)
    other.tools = {**other.tools, "coremltools": "8.3"}
    answer = msgspec.json.decode(
        company.perform("a", msgspec.json.encode(other).decode()), type=remote_task.RemoteResult
    )
    assert answer.status == "failed" and "another coremltools" in answer.reason and not company.stage.called


def test_no_variable_of_the_environment_goes_into_what_a_worker_is_asked_or_answers(company, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "verysecret")
    asked = remote_task.encode_task(
        task("convert"), "s", {}, read_run({**SETTINGS, "store": str(company.out / "shelf")})
    )
    assert "verysecret" not in asked and "verysecret" not in company.perform("a", asked)


def test_an_answer_that_names_a_file_elsewhere_is_not_taken(company):
    def escaping(machine, text):
        answer = msgspec.json.decode(company.perform(machine, text), type=remote_task.RemoteResult)
        return Future(
            "finished", msgspec.json.encode(msgspec.structs.replace(answer, files={"../../x": "eJwDAAAAAAE="}))
        )

    company.hurts = {"latency1": [escaping, escaping]}
    found = company.sweep()
    assert found["latency1"].status == "failed" and "outside" in found["latency1"].reason
    assert not (company.out / "runs" / "x").exists()


# A machine that cannot


NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


def full(what):
    """A worker whose disk is full: it can write nothing of what it makes (`what`: which method of its own cache or of the
    shared store says so)."""

    def answers(company):
        def answer(machine, text):
            me, whole = threading.get_ident(), getattr(*what)

            def writes(*said, **named):
                if threading.get_ident() == me:  # what the machine that sweeps does meanwhile is another disk's
                    raise NO_SPACE
                return whole(*said, **named)

            with company.patch.context() as patch:
                patch.setattr(*what, writes)
                return Future("finished", company.perform(machine, text))

        return answer

    return answers


CACHE = (files, "seal")
SCRATCH = (Store, "scratch")
SHARED = (remote.Remote, "put")
ARRIVING = (remote.Remote, "get")


@pytest.mark.parametrize("what", [CACHE, SHARED], ids=["its own cache", "the shared store, as it mounts it"])
def test_a_preparation_that_one_workers_full_disk_ends_is_made_by_another(company, what):
    company.also("server-2")
    company.hurts = {"convert": [full(what)(company)]}
    found = company.sweep()
    assert {outcome.status for outcome in found.values()} == {"ok"}
    assert [machine for stage, machine in company.done if stage == "convert"] == ["server", "server-2"]
    assert any("lost on server" in line and "no space left on" in line.lower() for line in company.stage.said)


def test_a_timing_that_a_full_disk_ends_takes_its_program_to_another_machine(company):
    company.hurts = {"latency2": [full(SCRATCH)(company)]}
    found = company.sweep()
    assert {outcome.status for outcome in found.values()} == {"ok"}
    first, *others = [machine for stage, machine in company.done if stage == "latency2"]
    assert by(found["latency1"]) == by(found["latency2"]) != first and set(others) == {by(found["latency1"])}


def test_a_machine_that_has_no_room_for_what_a_task_is_made_from_is_not_told_that_it_was_damaged(company):
    company.hurts = {"score": [full(ARRIVING)(company)]}
    tasks = list(_plan().tasks.values())[:3]  # no timing, which would bring it there before
    assert {outcome.status for outcome in company.sweep(plan=planned(tasks)).values()} == {"ok"}
    assert [machine for stage, machine in company.done if stage == "score"] == ["a", "b"]
    assert any("lost on a (on a: no space left" in line for line in company.stage.said)


def test_where_no_other_worker_fits_a_full_disk_is_recorded_with_machine_and_next_step(company):
    company.hurts = {"convert": [full(CACHE)(company)]}
    found = company.sweep()
    said = found["convert"].reason
    assert found["convert"].status == "failed" and found["chunk"].status == "blocked"
    assert (
        "on server: " in said
        and "no space left on device while writing" in said
        and "; free space" in said
        and "no other worker fits" in said
    )
    assert [stage for stage, _ in company.done] == ["convert"], "it is not asked again"


def test_a_disk_that_is_full_everywhere_ends_a_task_after_two_machines(company):
    company.also("server-2", "server-3")
    company.hurts = {"convert": [full(CACHE)(company) for _ in range(5)]}
    said = company.sweep()["convert"].reason
    assert len({machine for _, machine in company.done}) == len(company.done) == 2
    assert "on server: " in said and "on server-2: " in said and "lost 2 times" in said


def test_a_full_disk_of_the_machine_that_sweeps_costs_the_task_and_says_whose_it_is(company):
    def arrives_nowhere(machine, text):
        said = company.perform(machine, text)
        company.patch.setattr(*ARRIVING, lambda *_: (_ for _ in ()).throw(NO_SPACE))
        return Future("finished", said)

    company.hurts = {"chunk": [arrives_nowhere]}
    found = company.sweep()
    assert found["convert"].status == "ok" and found["chunk"].status == "failed"
    assert "could not be brought here" in found["chunk"].reason and "no space left" in found["chunk"].reason
    assert [stage for stage, _ in company.done].count("chunk") == 1, "nothing is made anew for it"


# Who is where, when much happens at once


def timed(name, number=1, **inputs):
    one = task("latency", alone=True, **inputs)
    one.key, one.round, one.place = name + "0" * 20, number, HOST
    return one


def test_programs_are_bound_to_a_machine_before_they_are_asked_for_though_nobody_is_there_yet(company):
    """As after a restart of the scheduler: whoever comes first would take one process, and the next the other."""
    there, company.there = company.there, company.there[2:]
    looks = []

    def come(*_):
        looks.append(1)
        if len(looks) == 8:
            company.there = there
        return company.there

    company.patch.setattr(Played, "list_workers", come)
    sent = []
    submit = Played.submit
    company.patch.setattr(Played, "submit", lambda self, *said: (sent.append((said[0], said[3])), submit(self, *said)))
    plan = _plan()
    del plan.tasks["score" + "0" * 20]  # what is not bound waits with the scheduler, which this one does not play
    found = company.sweep(plan=plan, wait_s=60)
    assert {outcome.status for outcome in found.values()} == {"ok"}
    timings = [set(takes) for key, takes in sent if key.startswith("latency")]
    assert len(timings) == 2 and all({"NAME-a", "NAME-b"} & takes for takes in timings) and timings[0] == timings[1]


def test_a_worker_of_other_versions_is_never_bound_to_a_program(company):
    other = {**company.there[0].resources, placement_rules.tools_label(members.tools()): 0.0}
    company.there[0] = FleetWorker("a", other)
    assert by(company.sweep()["latency1"]) == "b"
    assert not any("does not come back" in line for line in company.stage.said)


def test_who_waits_for_a_timing_that_moves_waits_for_the_new_one(company):
    """Of two timings the second is done when their machine leaves; the first, taken anew before it, ends before it."""

    def is_done_and_leaves(machine, text):
        company.there = [spot for spot in company.there if spot.name != machine]
        return Future("finished", company.perform(machine, text))

    one, two = timed("latency1", program="convert"), timed("latency2", 2, program="convert")
    evidence = timed("evidence", 0, program="convert")
    evidence.stage, evidence.after = "evidence", (one.key, two.key)

    def hangs_there(machine, text):
        return None if machine == "a" else Future("finished", company.perform(machine, text))

    company.hurts = {"latency1": [hangs_there], "latency2": [is_done_and_leaves]}
    found = company.sweep(plan=planned([task("convert"), one, two, evidence]))
    assert {outcome.status for outcome in found.values()} == {"ok"}
    stages = [stage for stage, _ in company.done]
    assert stages[-1] == "evidence" and stages.count("evidence") == 1 and stages.count("latency2") == 2


def test_a_program_that_an_earlier_round_of_a_search_has_timed_moves_as_well(company):
    """What was done before this call has outcomes, and no place in what is left."""
    first = company.sweep()
    done = {f"{stage}{'0' * 20}": outcome for stage, outcome in first.items()}
    away = by(first["latency1"])

    def leaves(machine, text):
        company.there = [spot for spot in company.there if spot.name != away]
        return Future("error", KilledWorker())

    plan = _plan()
    more = timed("latency3", 3, program="chunk")
    plan.tasks[more.key] = more
    company.there = [spot for spot in company.there if spot.name in (away, "server")] + [
        spot for spot in company.there if spot.name not in (away, "server")
    ]
    company.done.clear()
    company.hurts = {"latency3": [leaves]}
    found = company.sweep(plan=plan, outcomes=done)
    assert {by(found[name]) for name in ("latency1", "latency2", "latency3")} != {away}
    assert len({by(found[name]) for name in ("latency1", "latency2", "latency3")}) == 1


def test_the_connection_goes_away_in_the_midst_of_a_move(company):
    run = []

    def leaves_with_the_second(machine, text):
        run.append(machine)
        if len(run) == 2:
            company.there = [spot for spot in company.there if spot.name != machine]
            company.torn = True

    def connects(wire, *said):
        company.torn = False
        made(wire, *said)

    made = Played.__init__
    company.patch.setattr(Played, "__init__", connects)
    company.hurts = {"latency1": [leaves_with_the_second], "latency2": [leaves_with_the_second]}
    found = company.sweep()
    assert {outcome.status for outcome in found.values()} == {"ok"}
    assert by(found["latency1"]) == by(found["latency2"]) and len(company.wires) == 2


def test_to_stop_while_the_scheduler_is_away_stops(company):
    def goes(machine, text):
        company.torn = True
        company.patch.setattr(Played, "__init__", stops)
        return Future("cancelled")

    def stops(wire, *said):
        company.worker.stop.set()
        raise OSError("nobody answers")

    company.hurts = {"chunk": [goes]}
    with pytest.raises(KeyboardInterrupt):
        company.sweep()


def test_a_scheduler_that_stays_away_is_waited_for_once_and_what_is_left_says_so(company):
    def goes(machine, text):
        company.patch.setattr(Played, "__init__", stays_away)
        company.patch.setattr(Played, "list_workers", stays_away)
        return Future("cancelled")

    def stays_away(*_):
        raise OSError("nobody answers")

    company.hurts = {"chunk": [goes]}
    found = company.sweep()
    assert found["convert"].status == "ok" and "did not come back in 0 s" in found["chunk"].reason
    assert sum("was lost (" in line for line in company.stage.said) == 1


def test_what_a_try_says_that_was_given_up_is_not_taken_for_the_next_one(company):
    def begins_late(machine, text):
        (wire,) = company.wires
        (old,) = [name for name in wire.sent if name.startswith("latency-latency2")]
        company.patch.setattr(
            Played, "late", lambda self: self.tell_began("latency2" + "0" * 20, old, "nowhere"), raising=False
        )
        return Future("error", KilledWorker())

    told = []
    company.stage.at = lambda task, machine: told.append(machine)
    company.hurts = {"latency2": [begins_late], "latency1": []}
    submit = Played.submit

    def late_first(wire, *said):
        if hasattr(wire, "late"):
            wire.heard.put(wire.late)
        submit(wire, *said)

    company.patch.setattr(Played, "submit", late_first)
    assert company.sweep()["latency2"].status == "ok" and "nowhere" not in told


def test_a_record_of_a_machine_that_was_named_is_kept_while_that_machine_is_away(company):
    def named():
        plan = _plan()
        for one in plan.tasks.values():
            one.place = one.place and "NAME-a"
        return plan

    assert by(company.sweep(plan=named())["latency1"]) == "a"
    company.done.clear()
    company.there = [spot for spot in company.there if spot.name != "a"]
    found = company.sweep(plan=named())
    assert by(found["latency1"]) == "a" and company.done == []


@given(
    done=st.sets(st.integers(0, 5)),
    cells=st.integers(1, 6),
    anew=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=4),
)
def test_every_task_is_ready_once_after_all_that_it_waits_for_and_again_when_that_is_made_anew(done, cells, anew):
    tasks = []
    for n in range(cells):
        tasks += [task(f"convert{n}-"), timed(f"one{n}-", 1, program=f"convert{n}-")]
        tasks.append(timed(f"two{n}-", 2, program=f"convert{n}-"))
        tasks[-1].more_of = tasks[-2].key
    known = {tasks[n].key for n in done if n < len(tasks) and not tasks[n].alone}
    found = ready_queue.ReadyQueue(tasks, known)
    ended, ready, moves = set(known), found.list_ready(), dict(anew)
    for step in range(200):
        if not ready:
            break
        key = ready.pop(0)
        assert set(ready_queue.list_upstream(found.tasks[key])) <= ended
        if found.tasks[key].alone:
            assert {one.key for one in tasks if not one.alone} <= ended
        ended.add(key)
        ready += [one for one in found.finish(key) if one not in ready]
        if (number := moves.pop(step, None)) is not None:
            mark = [one.key for one in tasks if one.alone and f"{number % cells}-" in one.key and one.key in ended]
            found.reopen(mark)
            ended -= set(mark)
            ready = found.list_ready()
    assert ended == set(found.tasks) and not found.unfinished
