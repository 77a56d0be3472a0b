"""Where cells are measured: the axis `machine`, the plan's keys, and the resources by which Dask routes."""

import json

import msgspec
import pytest

from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.stages import STAGES
from ane_sweep.fleet import members
from ane_sweep.machine import host
from ane_sweep.planner import config, plan
from ane_sweep.runner.dask_connection import FleetWorker
from ane_sweep.runner.placement_rules import describe_resources, offered_resources, required_resources
from ane_sweep.runner.ready_queue import list_preparations

ME = members.describe_self()


def member(name: str, chip: str, key: str = "", coreml: bool = False) -> members.Member:
    cannot = {} if coreml else {"coreml": "needs macOS"}
    return msgspec.structs.replace(
        ME, name=name, chip=chip, key=key or f"key-{chip}", host={"chip": chip}, no_coreml=None if coreml else "needs macOS",
        cannot={**cannot, "torch_mps": "needs a GPU of Apple's"},
    )  # fmt: skip


SHELF = [
    member("a", "m1", coreml=True),
    member("b", "m4", coreml=True),
    member("c", "m4", coreml=True),
    member("d", "epyc"),
]


def planned(*words: str, shelf=SHELF) -> Plan:
    from ane_sweep.planner import checkpoints

    request = config.load(["model=tiny-gpt2", "weights=random", "latency.repeats=2", "evidence=off", *words])
    places = None
    if shelf is not None:
        wanted = {cell.machine for cell in request.cells}
        places = {one: members.find_place(one, shelf) or f"machine={one}: nobody" for one in wanted}
    sources = {
        cell.key: checkpoints.resolve(cell.model_options, "random", seed=0, allow_pickle=False, digests=None)
        for cell in request.cells
    }
    return plan.make_plan(request.cells, request.axes, sources, host="here", toolchain={}, places=places)


def test_a_chip_a_name_or_any_is_found_and_those_alike_are_one_place():
    assert members.find_place("m1", SHELF).names == ("a",)
    assert members.find_place("m4", SHELF).names == ("b", "c") and members.find_place("m4", SHELF).label.startswith(
        "HOST-"
    )
    assert members.find_place("c", SHELF).names == ("c",) and members.find_place("c", SHELF).label == "NAME-c"
    assert members.find_place(None, SHELF).names == ("b", "c"), "Core ML before none, the most that are alike"
    assert members.find_place("m9", SHELF) is None and members.find_place(None, []) is None
    other = [*SHELF, member("e", "m4", key="another OS", coreml=True)]
    assert members.find_place("m4", other).names == ("b", "c"), "figures of two kinds of machine are no sample of one"


def test_what_depends_on_the_machine_has_its_key_and_place_and_what_prepares_is_shared():
    made = planned("-m", "machine=m1,m4,d")
    for stage in ("reference", "convert", "predict"):
        assert len([task for task in made.tasks.values() if task.stage == stage]) == 1
        assert {task.place for task in made.tasks.values() if task.stage == stage} == {""}
    timed = [task for task in made.tasks.values() if task.stage == "latency"]
    assert len({task.key for task in timed}) == 6 and len({task.place for task in timed}) == 3
    assert {cell.machine: made.places[cell.key].names for cell in made.cells} == {
        "m1": ("a",),
        "m4": ("b", "c"),
        "d": ("d",),
    }


def test_auto_is_core_ml_where_that_machine_has_it():
    made = planned("-m", "machine=m4,d")
    params = {task.place: task.params for task in made.tasks.values() if task.stage == "latency"}
    assert sorted(one["runtime"] for one in params.values()) == ["coreml", "reference"]
    compiled = {task.place: task.unavailable for task in made.tasks.values() if task.stage == "compile"}
    assert sorted(map(str, compiled.values())) == ["None", "needs macOS"]


def test_two_names_of_machines_that_are_alike_are_two_measurements():
    assert len({task.key for task in planned("-m", "machine=b,c").tasks.values() if task.round == 1}) == 2


def test_a_machine_that_is_not_there_costs_its_cells_alone():
    made = planned("-m", "machine=m4,m9")
    assert list(made.refused.values()) == ["machine=m9: nobody"] and len(made.chains) == 1


def test_without_a_fleet_another_machine_is_refused_with_the_next_step():
    made = planned("-m", "machine=m9,null", shelf=None)
    (reason,) = made.refused.values()
    assert "executor=local measures on this machine alone" in reason and "executor=dask" in reason
    own = planned(f"machine={host.chip_name(host.chip())!r}", shelf=None)
    assert not own.refused


def test_a_plan_without_a_fleet_knows_no_place():
    made = planned(shelf=None)
    assert not made.places and {task.place for task in made.tasks.values()} == {""}


def test_files_of_this_machine_are_never_timed_elsewhere_under_its_name():
    from dataclasses import replace

    from ane_sweep.planner import checks

    (cell,) = planned("machine=b", "runtime=torch_eager").cells
    (source,) = planned("machine=b").sources.values()
    place = members.find_place("b", SHELF)
    assert checks.elsewhere(cell, source, "torch_eager", place) is None, "random weights are drawn anywhere"
    mine = replace(source, folder=host)
    assert "only this machine has" in checks.elsewhere(cell, mine, "torch_eager", place)
    assert checks.elsewhere(cell, mine, "coreml", place) is None


def test_executor_is_a_word_and_its_choices_are_told():
    assert config.load(["model=tiny-gpt2", "executor=dask"]).settings.executor.name == "dask"
    with pytest.raises(Exception, match="local, dask"):
        config.load(["model=tiny-gpt2", "executor=ray"])


def test_a_timing_takes_its_machine_alone_and_a_preparation_any_with_the_memory_and_versions():
    made = planned("machine=b")
    latency = next(task for task in made.tasks.values() if task.stage == "latency")
    convert = next(task for task in made.tasks.values() if task.stage == "convert")
    b, c = (FleetWorker(one.name, offered_resources(one, 1)) for one in SHELF[1:3])
    assert b.fits(required_resources(latency, "NAME-b")) and not c.fits(required_resources(latency, "NAME-b"))
    assert b.fits(required_resources(convert, "")) and c.fits(required_resources(convert, ""))
    convert.memory_bytes = 1 << 50
    assert not b.fits(required_resources(convert, "")) and "GiB of memory" in describe_resources(
        required_resources(convert, ""), {}
    )
    other = msgspec.structs.replace(SHELF[1], tools={**SHELF[1].tools, "torch": "1.0"})
    assert not FleetWorker("b", offered_resources(other, 1)).fits(required_resources(latency, "NAME-b"))


def test_timings_of_a_place_wait_for_all_that_is_prepared_for_them_and_for_no_other():
    made = planned("-m", "machine=m1,d", "chunks=1,2")
    found = list_preparations(list(made.tasks.values()))
    for task in made.tasks.values():
        if task.stage == "latency":
            stages = {made.tasks[key].stage for key in found[task.place]}
            assert "convert" in stages and not any(made.tasks[key].alone for key in found[task.place])
            assert {made.tasks[key].place for key in found[task.place]} <= {"", task.place}


def test_facts_travel_as_json():
    told = json.loads(members.facts())
    assert msgspec.convert(told, members.Member) == ME and told["chip"] == host.chip_name(host.chip())
    assert set(STAGES) and told["tools"]["code"] == members.tools()["code"]
