"""The report by machine: what each of a fleet is and did, where more than one took part."""

import constructed
import pytest

from ane_sweep.bridge.figures import Timing
from ane_sweep.report import document, machines, page

DID = {
    "m1-a": {"chip": "m1", "os": "15.4 24E248", "tasks": 7, "seconds": 61.0, "lost": 1, "moved": 0},
    "m4-b": {"chip": "m4", "os": "26.0 25A1", "tasks": 12, "seconds": 200.0, "lost": 0, "moved": 2},
    "server": {"chip": "EPYC", "os": "Linux 6", "tasks": 3, "seconds": 30.0, "lost": 0, "moved": 0},
}


def records():
    found = constructed.records(6, bad=False)
    for n, record in enumerate(found):
        record.host = {**record.host, "worker": "m1-a" if n % 3 else "m4-b"}
        record.timings = [Timing(1, 1.0, samples_ms=[1.0])]
    return found


def test_each_machine_says_what_it_is_what_it_did_and_which_cells_it_measured():
    rows = {row[0]: row[1:] for row in machines.rows(records(), {"machines": DID})}
    assert rows["m1-a"][:6] == ["m1", "15.4 24E248", "7", "61 s", "1", "0"] and rows["m1-a"][6].startswith("4 cells: ")
    assert rows["m4-b"][6].startswith("2 cells: ") and rows["server"][6] == "0 cells"
    lines = machines.lines(records(), {"machines": DID})
    assert lines[0].startswith("m1-a (m1, 15.4 24E248): 7 tasks, 61 s busy, 1 lost; measured 4 cells: ")
    assert "lost" not in lines[1] and "2 moved away" in lines[1]


def test_one_machine_and_a_sweep_without_a_fleet_have_no_such_section():
    for info in ({}, {"machines": None}, {"machines": {"m1-a": DID["m1-a"]}}, {"machines": {"a": 1, "b": "x"}}):
        assert machines.section(records(), info) is None and machines.lines(records(), info) == []


@pytest.mark.slow
def test_the_report_has_it_in_both_of_its_forms():
    sweep = document.Sweep(records(), {"machines": DID})
    assert "## Machines" in page.as_markdown(sweep) and "| server | EPYC |" in page.as_markdown(sweep)
    assert 'id="machines"' in page.as_html(sweep) and "programs that another machine like it" in page.as_html(sweep)
