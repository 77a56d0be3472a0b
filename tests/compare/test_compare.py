"""Two sweeps: like with like, each change in its bucket, and an exit code one can act on."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nights import cell, slower, write_run

from ane_sweep.__main__ import main
from ane_sweep.bridge.figures import Artifact, Look, Metric
from ane_sweep.bridge.record import Status
from ane_sweep.compare import show, sides
from ane_sweep.compare.judge import BUCKETS, judge
from ane_sweep.compare.match import match
from ane_sweep.compare.sides import Side
from ane_sweep.verbs import compare as verb


def compared(a, b, **more):
    return judge(match(Side("a", a, {}), Side("b", b, {})), **more)


def buckets(a, b, **more):
    return {name: len(found) for name in BUCKETS if (found := compared(a, b, **more).bucket(name))}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ({}, {}),
        ({"medians": slower(1.2)}, {"slower": 1}),
        ({"medians": slower(0.8)}, {"faster": 1}),
        ({"medians": slower(1.002)}, {}),
        ({"medians": (15.0,)}, {"timing untested": 1}),
        ({"load": (9.0, 9.1, 8.9, 9, 9)}, {"loads slower": 1}),
        ({"psnr": 70.0}, {"less accurate": 1}),
        ({"psnr": 79.5}, {}),
        ({"size": 1011}, {"larger": 1}),
        ({"size": 900}, {"smaller": 1}),
        ({"ane": 40}, {"off the ANE": 1}),
        ({"ane": 80}, {"placement moved": 1}),
        ({"ane": 90.4}, {}),  # 90 -> 90 %
        ({"status": "crashed", "medians": (), "psnr": None, "size": None}, {"stopped working": 1}),
        ({"status": "fallback"}, {"stopped working": 1}),
        ({"status": "degraded"}, {}),
    ],
)
def test_buckets(after, expected):
    assert buckets([cell()], [cell(**after)]) == expected


def test_the_other_way_round_is_better():
    down = cell(status="crashed", medians=(), psnr=None, size=None, reason="convert: boom")
    assert buckets([down], [cell()]) == {"works again": 1}
    assert buckets([down], [cell(status="timeout", medians=(), psnr=None, size=None)]) == {"fails otherwise": 1}
    assert buckets([cell(worst=30.0)], [cell(worst=60.0)]) == {"more accurate": 1}
    assert compared([cell(worst=60.0)], [cell(worst=30.0)]).changes[0].text == "worst output: 60 -> 30 dB"
    assert buckets([cell(ane=10)], [cell(ane=95)]) == {"onto the ANE": 1}
    assert buckets([cell(psnr=200.0)], [cell(psnr=150.0)]) == {}  # both agree to the last digits of fp16


ESTIMATES = {"m1": 2.0, "m4": 1.2}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ({"m1": 2.0, "m4": 7.8}, {"estimated slower": 1}),
        ({"m1": 1.0, "m4": 7.8}, {"estimated slower": 1, "estimated faster": 1}),
        ({"m1": 2.01, "m4": 1.195}, {}),  # under 1 %
        ({"m1": 2.03, "m4": 1.2}, {"estimated slower": 1}),
        ({"m1": 2.0}, {"estimated on one side only": 1}),  # of m4 the placement is there, and no estimate
        ({"m4": 1.2}, {}),  # m1 was not among the chips that were asked for
    ],
)
def test_estimates_of_one_request_are_compared_chip_by_chip(after, expected):
    found = compared([cell(estimates=ESTIMATES)], [cell(estimates=after)])
    assert {change.bucket: 1 for change in found.changes} == expected
    assert found.regressed == ("estimated slower" in expected)


def test_an_estimate_that_became_worse_is_a_regression_in_words_and_exit_code(tmp_path, capsys):
    """On a host that times nothing of use, the estimate is the figure that answers, and needs no test."""
    write_run(tmp_path, "20260101-000000", [cell((10.0,), estimates={"m4": 1.2}, runtime="auto")])
    write_run(tmp_path, "20260102-000000", [cell((99.0,), estimates={"m4": 7.8}, runtime="auto")])
    code, said = run(capsys, "20260101-000000", "last", f"out={tmp_path}")
    assert code == 1 and "**regression: 1 estimated slower**" in said.out and "99" not in said.out
    assert "- gpt2: estimate for m4: 1.2 -> 7.8 ms (+550.0 %)" in said.out and "nothing else" not in said.out
    code, said = run(capsys, "last", "20260101-000000", f"out={tmp_path}")
    assert (
        code == 0 and "**no regression in the 1 cell, by the estimates for M4; better: 1 estimated faster**" in said.out
    )
    assert re.search(r"Compared without a test: status, estimates, placement, PSNR, .*scores, .*package size", said.out)


def checked(medians=(10.0,), **more):
    """A cell that was only run to see that it does: what answers is its estimate, if it has one."""
    return cell(medians, runtime="auto", **more)


@pytest.mark.parametrize(
    ("before", "after", "expected", "code"),
    [
        ([checked(estimates=ESTIMATES)], [checked((99.0,), estimates=ESTIMATES)],
         "no regression in the 1 cell, by the estimates for M1", 0),
        ([checked((10.0,) * 5, estimates=ESTIMATES)], [checked(slower(3), estimates=ESTIMATES, host={"chip": "m9"})],
         "no regression in the 1 cell, by the estimates for M1", 0),
        ([checked(estimates=ESTIMATES)], [checked()],
         "no latency could be compared (not estimated on both sides); nothing else regressed", 3),
        ([checked()], [checked()], "no latency could be compared (no latency on either side); nothing else regressed", 3),
        ([cell(), checked(chunks=2, estimates=ESTIMATES)], [cell(), checked(chunks=2, estimates=ESTIMATES)],
         "no regression among 2 cells, by tests (1), the estimates for M1 (1)", 0),
    ],
)  # fmt: skip
def test_the_time_of_a_check_is_never_compared(before, after, expected, code):
    for one in (*before, *after):
        one.placement = [replace(one.placement[0], chip="m1"), *one.placement]
    found = compared(before, after)
    assert show.verdict(found) == expected and verb.exit_code(found) == code
    assert not [change for change in found.changes if change.figure or "timing" in change.bucket]
    assert "99" not in show.as_markdown(found, "a", "b", headline="", level=0.01, least_percent=3)


def test_the_chips_that_both_sides_have_are_compared_whichever_is_the_first():
    one, two = checked(estimates={"m4": 1.2}), checked(estimates=ESTIMATES)
    two.placement = [replace(two.placement[0], chip="m1"), *two.placement]
    for before, after in ((one, two), (two, one)):
        assert show.verdict(compared([before], [after])) == "no regression in the 1 cell, by the estimates for M4"


def test_cells_without_a_latency_are_compared_by_their_share_of_the_cost():
    before, after = checked(), checked((99.0,))
    for one in (before, after):
        one.metrics.append(Metric("cost_share_ane", 0.9, kind="predicted", chip="m4"))
    assert show.verdict(compared([before], [after])).endswith("by the predicted share of the cost on the ANE")


def test_estimates_are_the_first_lines_where_they_answer():
    drop = {"estimates": {"m4": 9.9}, "psnr": 20.0, "size": 9000, "ane": 10}
    text = show.as_markdown(
        compared([checked(estimates={"m4": 1.2})], [checked(**drop)]),
        "a",
        "b",
        headline="",
        level=0.01,
        least_percent=3,
    )
    heads = re.findall("^### (.*): 1", text, re.MULTILINE)
    assert heads[0] == "estimated slower" and len(heads) == 4


def test_an_estimate_that_changed_of_the_same_package_is_said_to_be_of_another_model_of_cost():
    before, after = cell(estimates={"m4": 1.2}), cell(estimates={"m4": 1.3})
    for one in (before, after):
        one.artifacts = [Artifact("weight.bin", "p", 1, "aa")]
    (change,) = compared([before], [after]).changes
    assert change.bucket == "estimated slower" and change.text.endswith("the model of cost is another")
    after.artifacts = [Artifact("weight.bin", "p", 1, "bb")]
    assert "model of cost" not in compared([before], [after]).changes[0].text


@pytest.mark.parametrize(
    ("name", "was", "now", "expected"),
    [
        ("perplexity", 20.0, 22.0, "less accurate"), ("perplexity", 20.0, 18.0, "more accurate"),
        ("accuracy", 0.9, 0.8, "less accurate"), ("accuracy", 0.0, 0.1, "more accurate"), ("accuracy", 0.9, 0.899, None),
    ],
)  # fmt: skip
def test_scores_of_a_task_are_compared(name, was, now, expected):
    before, after = cell(), cell()
    for one, value in ((before, was), (after, now)):
        one.metrics.append(Metric(name, value))
    assert [change.bucket for change in compared([before], [after]).changes] == ([expected] if expected else [])


def test_a_small_sure_change_and_a_large_unsure_one_are_no_regressions():
    sure = compared([cell((10, 10.001, 9.999, 10, 10))], [cell((10.1, 10.101, 10.099, 10.1, 10.1))])
    (change,) = sure.changes
    assert (
        change.bucket == "timing differs, but not enough" and change.text.endswith("under 3 %") and not sure.regressed
    )
    many = [cell(chunks=n) for n in range(40)]
    one = compared(many, [cell((10.4, 10.6, 10.1, 10.3, 10.2), chunks=0), *many[1:]])
    assert [c.bucket for c in one.changes] == ["timing differs, but not enough"] and "this many tests" in one.changes[
        0
    ].text
    assert one.tests == 80


def test_hosts_that_differ_are_refused_and_other_differences_marked():
    found = compared([cell()], [cell(slower(3), host={"chip": "another"})])
    assert [c.bucket for c in found.changes] == ["timing not compared"]
    assert found.pairs[0].unlike == ["host: chip was some chip, is another"]
    found = compared([cell(host={"worker": "m4-a"})], [cell(slower(3), host={"worker": "m4-b"})])
    assert found.pairs[0].unlike == ["host: worker was m4-a, is m4-b"], "two Macs of a fleet that are alike in all"
    found = compared([cell()], [cell(slower(1.5), host={"os_build": "2"}, toolchain="9.1", latency={"samples": 9})])
    assert found.marks == [
        "os: os_build was 1, is 2", "toolchain: coremltools was 9.0, is 9.1", "how it was run: latency.samples was 5, is 9",
    ]  # fmt: skip
    assert found.regressed


def test_of_a_machine_the_part_that_differs_is_told():
    of = {"cores": {"physical": 2, "logical": 2, "usable": 1}}
    whole = {"cores": {**of["cores"], "usable": 2}}
    assert compared([cell(host=whole)], [cell(host=of)]).pairs[0].unlike == ["host: cores.usable was 2, is 1"]


def test_a_machine_that_was_busy_on_one_side_only_is_told_beside_the_verdict():
    busy, quiet = cell(slower(2)), cell()
    look = Look(ready=False, waited_s=0.0, in_vain=["other programs were using the processor"])
    busy.timings = [replace(timing, gate=look) for timing in busy.timings]
    said = "timed while other programs were using the processor (5 of 5 processes)"
    found = compared([quiet], [busy])
    assert found.regressed and found.marks == [f"machine: now {said}"]
    assert compared([busy], [quiet]).marks == [f"machine: before {said}"] and compared([busy], [busy]).marks == []


def test_what_was_timed_on_a_busy_machine_is_no_level_for_later_nights(tmp_path):
    look = Look(ready=False, waited_s=0.0, in_vain=["other programs were using the processor"])
    busy = cell(slower(3), status=Status.DEGRADED)
    busy.timings = [replace(timing, gate=look) for timing in busy.timings]
    coarse = cell(chunks=2, status=Status.DEGRADED)  # under the gate of its precision, tonight as ever
    write_run(tmp_path, "20260101-000000", [cell(), coarse])
    write_run(tmp_path, "20260102-000000", [busy, coarse])
    for stamp in ("20260101-000000", "20260102-000000"):
        sides.tag_good(tmp_path, stamp)
    assert [len(night) for night in sides.good_nights(tmp_path)] == [2, 1]
    assert {one.cell["chunks"]: one.sweep[:8] for one in sides.good_records(tmp_path)} == {1: "20260101", 2: "20260102"}


def test_when_nearly_all_move_the_machine_is_named():
    found = compared([cell(chunks=n) for n in range(6)], [cell(slower(1.3), chunks=n) for n in range(6)])
    assert found.marks[0].startswith("6 of 6 timings moved the same way, +30.0 % in the middle") and found.regressed


def test_cells_match_by_what_both_sides_know():
    found = compared([cell(), cell(chunks=2)], [cell(new_axis="x"), cell(chunks=3, new_axis="x")])
    assert [pair.label for pair in found.pairs] == ["gpt2 chunks=1"]
    assert (found.only_a, found.only_b) == (["gpt2 chunks=2"], ["gpt2 chunks=3"])


def labels(*requests):
    """Labels of the cells of one sweep that these requests make, compared with themselves measured again."""
    found = compared([cell(**asked) for asked in requests], [cell(slower(1.001), **asked) for asked in requests])
    assert not found.only_a and not found.only_b
    return [pair.label for pair in found.pairs]


def bits(*values):
    return [
        {"precision": "p4", "precision_options": {"name": "p4", "weights": {"kind": "p", "bits": n}}} for n in values
    ]


def test_cells_that_differ_only_in_how_they_are_run_are_cells_of_their_own():
    asked = [{"latency": {"samples": 3}}, {"latency": {"samples": 4}}]
    assert labels(*asked) == ["gpt2 latency.samples=3", "gpt2 latency.samples=4"]
    assert labels({"fault": "none", "allow_pickle": False}, {"fault": "hang", "allow_pickle": False}) == [
        "gpt2 fault=none", "gpt2 fault=hang",
    ]  # fmt: skip
    found = compared([cell(**asked[0])], [cell(**asked[1])])  # alone on its side, a cell is what it is
    assert [pair.label for pair in found.pairs] == ["gpt2"] and found.marks


def test_labels_show_dotted_axes_as_they_are_typed():
    assert labels(*bits(2, 4)) == ["gpt2 precision.weights.bits=2", "gpt2 precision.weights.bits=4"]
    assert labels({"model_options": {"arch": {"n_layer": 1}}}, {"model_options": {"arch": {"n_layer": 2}}}) == [
        "gpt2 model.arch.n_layer=1", "gpt2 model.arch.n_layer=2",
    ]  # fmt: skip
    assert labels({"effects": None}, {"effects": ["tables"]}) == ["gpt2 effects=null", "gpt2 effects=[tables]"]


def test_what_one_side_does_not_know_tells_cells_of_the_other_apart_all_the_same():
    """`good` holds cells of older matrices too: a plain fp16 cell of tonight makes none of them ambiguous."""
    plain = {"precision": "fp16", "precision_options": {"name": "fp16", "weights": None}}
    found = compared([cell(**asked) for asked in (*bits(2, 4), plain)], [cell(**plain)])
    assert [pair.label for pair in found.pairs] == ["gpt2 precision=fp16"]
    assert [name.split()[-1] for name in found.only_a] == ["precision.weights.bits=2", "precision.weights.bits=4"]


@settings(max_examples=100)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "model": st.sampled_from(["a", "b"]), "family": st.sampled_from(["f", "g"]), "chunks": st.sampled_from([1, 2, "auto"]),
                "fault": st.sampled_from(["none", "hang"]), "effects": st.sampled_from([None, [], ["x"]]),
                "latency": st.fixed_dictionaries({"samples": st.integers(1, 2), "idle_s": st.sampled_from([None, 0.5])}),
                "precision_options": st.sampled_from([{"weights": None}, {"weights": {"bits": 2}}, {"weights": {"bits": 4}}]),
            }
        ),
        min_size=1, max_size=8, unique_by=lambda asked: json.dumps(asked, sort_keys=True),
    )
)  # fmt: skip
def test_the_cells_of_any_sweep_match_themselves_one_to_one_under_labels_of_their_own(asked):
    assert len(set(labels(*asked))) == len(asked)


@pytest.fixture
def out(tmp_path):
    write_run(tmp_path, "20260101-000000", [cell(), cell(chunks=2)])
    write_run(tmp_path, "20260102-000000", [cell(slower(1.2)), cell(chunks=2)])
    return tmp_path


def run(capsys, *args):
    code = main(["compare", *args])
    return code, capsys.readouterr()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([cell()], [cell()], "no regression in the 1 cell tested"),
        ([cell(), cell(chunks=2)], [cell(), cell(chunks=2)], "no regression among 2 cells tested"),
        (
            [cell(), cell(chunks=2), cell(chunks=3)], [cell(), cell(chunks=2), cell((10.0,), chunks=3)],
            "no regression among 2 of 3 cells tested; 1 could not be compared (one timing process a side)",
        ),
        (
            [cell(), cell(chunks=2), cell(chunks=3)],
            [cell((5.0,)), cell((), chunks=2, status="crashed"), cell((15.0,) * 2, chunks=3)],
            "regression: 1 stopped working; 3 of 3 cells could not be compared (one timing process a side: 1, "
            "not timed on both sides: 1, 2 timing processes a side: 1)",
        ),
        ([cell((10.0,))], [cell((15.0,))], "no latency could be compared (one timing process a side); nothing else regressed"),
        (
            [cell((10.0,)), cell((10.0,), chunks=2), cell((), chunks=3)],
            [cell((9.0,), size=900), cell((10.0,), chunks=2), cell((), chunks=3)],
            "no latency could be compared (one timing process a side: 2, no latency on either side: 1); nothing else regressed; "
            "better: 1 smaller",
        ),
        ([cell()], [cell(host={"chip": "m9"})], "no latency could be compared (another host or runtime); nothing else regressed"),
    ],
)  # fmt: skip
def test_the_headline_counts_what_was_tested(before, after, expected):
    assert show.verdict(compared(before, after)) == expected


def test_what_scatter_may_hide_is_said():
    noisy = (10.0, 30.0, 20.0)
    found = compared(
        [cell(), cell(noisy, chunks=2), cell(chunks=3)], [cell(), cell(noisy, chunks=2), cell(slower(1.3), chunks=3)]
    )
    (said,) = show.still_possible(found)
    assert re.fullmatch(r"Where no difference .* up to \d{3,4} % higher \(gpt2 chunks=2\)\.", said)
    assert said in show.as_markdown(found, "a", "b", headline="", level=0.01, least_percent=3)
    assert show.still_possible(compared([cell((10.0,))], [cell((10.0,))])) == []


def test_an_answer_that_nothing_could_be_tested_is_in_doubt(tmp_path, capsys):
    write_run(tmp_path, "20260101-000000", [cell((10.0,))])
    write_run(tmp_path, "20260102-000000", [cell((16.1,))])
    code, said = run(capsys, "20260101-000000", "last", f"out={tmp_path}")
    assert (
        code == 3 and "**no latency could be compared (one timing process a side); nothing else regressed**" in said.out
    )
    assert "+61.0 %" in said.out and "latency.repeats=8" in said.out
    code, said = run(capsys, "20260101-000000", "last", "--json", f"out={tmp_path}")
    whole = json.loads(said.out)
    assert (code, whole["exit"], whole["tested"]) == (3, 3, 0) and whole["untested"] == {
        "gpt2": "one timing process a side"
    }
    write_run(tmp_path, "20260103-000000", [cell((10.0,), size=2000)])
    assert run(capsys, "20260101-000000", "last", f"out={tmp_path}")[0] == 1  # larger: that needs no test


def test_a_run_is_not_compared_with_itself(out, capsys):
    same = ("last", "last"), ("last", "20260102-000000"), ("last", str(out / "runs" / "20260102-000000"))
    for first, second in (*same, ("last:chunks=1", "last:chunks=1")):
        code, said = run(capsys, first, second, f"out={out}")
        assert code == 2 and "a run compared with itself shows nothing" in said.err and not said.out
    assert run(capsys, "last", f"out={out}")[0] == 2


def test_good_beside_a_good_run_is_the_good_runs_without_it(out, capsys):
    sides.tag_good(out, "20260102-000000")
    code, said = run(capsys, "good", "last", f"out={out}")
    assert code == 2 and "no other run" in said.err
    sides.tag_good(out, "20260101-000000")
    code, said = run(capsys, f"out={out}")
    assert code == 1 and "gpt2 chunks=1: 10 -> 12 ms" in said.out


def test_exit_codes(out, capsys):
    code, said = run(capsys, "20260101-000000", "last", f"out={out}")
    assert code == 1 and "**regression: 1 slower**" in said.out and "- gpt2 chunks=1: 10 -> 12 ms, +20.0 %" in said.out
    assert run(capsys, "last", "20260101-000000", f"out={out}")[0] == 0
    assert run(capsys, "20260101-000000", "last", "least-percent=30", f"out={out}")[0] == 0
    write_run(out, "20260103-000000", [cell(model="other")])
    code, said = run(capsys, "20260101-000000", "last", f"out={out}")
    assert code == 2 and "no cell of one is a cell of the other" in said.err
    write_run(out, "20260104-000000", [cell(host={"chip": "m9"})])
    code, said = run(capsys, "20260101-000000", "last", f"out={out}")
    assert code == 2 and "chip was some chip, is m9" in said.err
    assert "**not comparable**" in said.out and "no regression" not in said.out
    assert run(capsys, "20260101-000000", "last", "--across-hosts", f"out={out}")[0] == 0
    assert run(capsys, "nonesuch", f"out={out}")[0] == 2 and run(capsys, "a", "b", "c", f"out={out}")[0] == 2
    assert run(capsys, f"out={out}")[0] == 2 and run(capsys, "last", "last", "level=2", f"out={out}")[0] == 2


def test_json_holds_all_of_it(out, capsys):
    code, said = run(capsys, "20260101-000000", "last", "--json", f"out={out}")
    whole = json.loads(said.out)
    assert (whole["exit"], whole["verdict"], whole["cells"], whole["tests"]) == (code, "regression: 1 slower", 2, 4)
    assert whole["timings"]["gpt2 chunks=1"]["median_ms"]["percent"] == pytest.approx(20)
    assert whole["changes"][0]["bucket"] == "slower"


def test_cells_of_one_sweep_are_compared_across_an_axis_round_by_round(out, capsys):
    drift = (1, 2, 3, 4, 5)
    cells = [cell(tuple(10 * d for d in drift)), cell((10.6, 21, 31.6, 42, 53), chunks=2)]
    write_run(out, "20260105-000000", cells)
    code, said = run(capsys, "last:chunks=1", "last:chunks=2", f"out={out}")
    assert code == 1 and "1 slower" in said.out
    code, said = run(capsys, "last:chunks=7", "last:chunks=2", f"out={out}")
    assert code == 2 and "no cell there has chunks=7" in said.err
    code, said = run(capsys, "last", "last:chunks=2", f"out={out}")
    assert code == 2 and "name the one that is meant" in said.err


def test_good_is_each_cells_newest_record_in_a_good_run(out, capsys):
    code, said = run(capsys, "good", "last", f"out={out}")
    assert code == 2 and "no run" in said.err and "nightly accept" in said.err
    sides.tag_good(out, "20260101-000000")
    assert run(capsys, f"out={out}")[0] == 1
    write_run(out, "20260103-000000", [cell(slower(1.2)), cell(chunks=2, status="skipped", medians=())])
    sides.tag_good(out, "20260103-000000")
    found = {r.cell["chunks"]: r for r in sides.side(out, "good").records}
    assert found[1].sweep == "20260103-000000" and found[2].sweep == "20260101-000000"
    assert run(capsys, "good", "20260102-000000", f"out={out}")[0] == 0
    write_run(out, "20260104-000000", [cell(), cell(chunks=2, status="crashed", medians=())])
    sides.tag_good(out, "20260104-000000")
    found = {r.cell["chunks"]: r for r in sides.side(out, "good").records}  # what failed there is no level
    assert found[1].sweep == "20260104-000000" and found[2].sweep == "20260101-000000"


def test_a_path_will_do(out, capsys):
    first, second = (out / "runs" / name for name in ("20260101-000000", "20260102-000000"))
    assert run(capsys, str(first), str(second / "records.jsonl"), f"out={out}")[0] == 1
