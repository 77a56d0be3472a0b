"""Steps in many nights: found where they are, not found where there are none, and what a night can and cannot say."""

import json
import math
import random

import pytest
from nights import cell, slower, write_run

from ane_sweep.__main__ import main
from ane_sweep.compare import history
from ane_sweep.compare.steps import chance, highest, stands_out, steps
from ane_sweep.stats.ranks import ranks


def nights(count, drawn, *jumps, scatter=0.02, odd=0.0):
    """`count` nights around 10 ms; each jump is (index, factor); `odd` is the share of nights on a busy machine."""
    levels = []
    for index in range(count):
        factor = math.prod(by for at, by in jumps if index >= at) * (1.4 if drawn.random() < odd else 1)
        levels.append(10 * factor * math.exp(drawn.gauss(0, scatter)))
    return levels


def test_ranks_and_where_they_are_highest():
    assert ranks([30, 10, 20, 10]).tolist() == [4, 1.5, 3, 1.5]
    assert highest([1, 2, 3, 4, 5, 6]) == (3, pytest.approx(4.5 / math.sqrt(9 * 7 / 12)))
    assert highest([1, 2, 3])[0] == 0  # no place with two nights on either side


def test_the_chance_of_a_perfect_step_is_what_counting_gives():
    """Ten nights, five low then five high (or the reverse): 2 of 252 orders of a cut in the middle."""
    _, height = highest(ranks(range(10)))
    assert 2 / 252 * 0.6 < chance(10, height) < 2 / 252 * 1.4
    assert chance(10, 0.0) == 1 and chance(40, 99.0) == 1 / 10_001


def test_false_alarms_over_five_hundred_histories_without_a_step():
    drawn = random.Random(0)
    alarms = sum(bool(steps(nights(24, drawn, odd=0.1))) for _ in range(500))
    assert alarms <= 13  # five expected at 1 %


def test_a_real_step_is_found_where_it_is_also_among_odd_nights():
    drawn, found, near = random.Random(1), 0, 0
    for _ in range(100):
        at = drawn.randrange(8, 17)  # near an end, ranks have less to say
        seen = steps(nights(24, drawn, (at, 1.1), scatter=0.02, odd=0.05))
        found += any(step.percent > 3 for step in seen)
        near += any(abs(step.index - at) <= 1 for step in seen)
    assert found >= 90 and near >= 80


def test_two_steps():
    up, down = steps(nights(40, random.Random(2), (13, 1.2), (27, 0.8)))
    assert (up.index, down.index) == (13, 27) and up.percent > 15 and down.percent < -15
    assert steps(nights(9, random.Random(2), (4, 2.0))) == []  # nine nights prove nothing at 1 %


def test_a_last_night_is_held_against_how_much_nights_differ():
    assert stands_out([10] * 4, 20) is None
    calm, wild = [10, 10.1, 9.9, 10.05, 9.95, 10], [10, 13, 8, 12, 9, 11]
    assert stands_out(calm, 11) < 0.001 and stands_out(wild, 11) > 0.5
    drawn, alarms = random.Random(3), 0
    for _ in range(2000):
        *before, last = nights(8, drawn)
        alarms += stands_out(before, last) < 0.01
    assert alarms <= 34  # 20 expected


@pytest.fixture
def out(tmp_path):
    """Fourteen nights of two cells: one becomes slower with the ninth, when coremltools changed; the other never."""
    drawn = random.Random(4)
    for night in range(14):
        jump = 1.2 if night >= 8 else 1.0
        cells = [
            cell(slower(jump * math.exp(drawn.gauss(0, 0.01))), toolchain="9.0" if night < 8 else "9.1"),
            cell(slower(math.exp(drawn.gauss(0, 0.01))), chunks=2, toolchain="9.0" if night < 8 else "9.1"),
        ]
        write_run(tmp_path, f"n{night:02d}", cells)
    return tmp_path


def test_the_verb(out, capsys):
    assert main(["history", f"out={out}"]) == 1
    said = capsys.readouterr().out
    assert "gpt2 chunks=1: 9.9" in said or "gpt2 chunks=1: 10" in said
    assert "from n08 on" in said and "changed then: toolchain: coremltools was 9.0, is 9.1" in said
    assert "1 of 2 cells: no step" in said
    assert main(["history", "6", f"out={out}"]) == 0
    said = capsys.readouterr().out
    assert "fewer than 10 runs" in said and "no step" not in said
    assert main(["history", "--json", f"out={out}"]) == 1
    first, second = json.loads(capsys.readouterr().out)["cells"]
    assert first["steps"][0]["run"] == "n08" and len(first["latency_ms"]) == 14 and second["steps"] == []


def test_too_few_runs_are_no_calm_history(tmp_path, capsys):
    for number in range(5):
        write_run(tmp_path, f"n{number}", [cell(), cell(chunks=2)])
    assert main(["history", f"out={tmp_path}"]) == 3
    said = capsys.readouterr().out
    assert "no step" not in said and "2 of 2 cells could not be tested: 5 runs at most" in said
    write_run(tmp_path, "n5", [cell()])
    assert main(["history", f"out={tmp_path}"]) == 0
    said = capsys.readouterr().out
    assert "1 of 2 cells: the last run does not stand out" in said and "no step" not in said
    assert "1 of 2 cells could not be tested: 5 runs at most" in said
    assert (
        json.loads((main(["history", "--json", f"out={tmp_path}"]), capsys.readouterr().out)[1])["cells"][1]["tested"]
        is False
    )


def test_runs_without_timings_are_not_counted(tmp_path, capsys):
    for number in range(8):
        write_run(tmp_path, f"n{number}", [cell(() if number % 2 else (10.0,) * 5)])
    main(["history", "4", "--json", f"out={tmp_path}"])
    assert json.loads(capsys.readouterr().out)["cells"][0]["runs"] == ["n0", "n2", "n4", "n6"]


def test_cells_that_differ_only_in_how_they_are_timed_have_histories_of_their_own(tmp_path):
    for number in range(3):
        write_run(tmp_path, f"n{number}", [cell(latency={"samples": 3}), cell(slower(2), latency={"samples": 4})])
    cells, _ = history.read(tmp_path, 9)
    assert {one.label: one.levels[-1] for one in cells} == {
        "gpt2 latency.samples=3": pytest.approx(10, abs=0.01), "gpt2 latency.samples=4": pytest.approx(20, abs=0.01),
    }  # fmt: skip


def test_a_last_night_that_stands_out(out, capsys):
    write_run(out, "n14", [cell(slower(1.2)), cell(slower(1.5), chunks=2)])
    main(["history", f"out={out}"])
    assert "gpt2 chunks=2: the last run (n14) stands out, 15 ms (+" in capsys.readouterr().out


def test_other_hosts_are_left_out_and_said(out, capsys):
    write_run(out, "m00", [cell(host={"chip": "another"})], started="a")
    main(["history", f"out={out}"])
    assert "1 of 15 runs are of another host" in capsys.readouterr().out


def test_estimates_are_followed_night_by_night_without_a_test(tmp_path, capsys):
    """The time of a check is no figure of a history; an estimate has no noise, so one night that differs is a step."""
    for number, ms in enumerate((1.2, 1.2, 1.9)):
        cells = [
            cell((10.0 * 3**number,), runtime="auto", estimates={"m4": ms}),
            cell((5.0,), runtime="auto", chunks=2),
        ]
        write_run(tmp_path, f"n{number}", [*cells, cell((), runtime="auto", chunks=3, estimates={"m4": 7.0})])
    assert main(["history", f"out={tmp_path}"]) == 1
    said = capsys.readouterr().out
    assert "gpt2 chunks=1: estimate for M4: 1.2 -> 1.9 ms (+58.3 %) from n2 on, 3 runs" in said and "p =" not in said
    assert "1 of 2 cells: the estimate is the same in every run" in said and "too few" not in said
    main(["history", "--json", f"out={tmp_path}"])
    first = json.loads(capsys.readouterr().out)["cells"][0]
    assert (first["kind"], first["chip"], first["latency_ms"]) == ("estimated", "m4", [1.2, 1.2, 1.9])


def test_nothing_to_look_at(tmp_path, capsys):
    assert main(["history", f"out={tmp_path}"]) == 2 and "no finished run with a latency" in capsys.readouterr().err
    assert main(["history", "few", f"out={tmp_path}"]) == 2
    assert history.level([10.0]) == 10.0 and history.level([10.0, 40.0]) == pytest.approx(20)
