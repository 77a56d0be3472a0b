"""The answer in sentences: which cell to ship, how sure, what it gives up, why nothing can be said."""

import hashlib
import json
import shlex
from dataclasses import replace

import pytest
from constructed import placement
from nights import write_run

from ane_sweep.bridge.figures import Metric, Timing
from ane_sweep.bridge.record import Record, StageOutcome, Status, Weights
from ane_sweep.compare import sides
from ane_sweep.placement.types import Ops
from ane_sweep.results.answer import FETCH, answer


def cell(
    m4=None,
    others=None,
    psnr=78.9,
    size=45.0,
    share=0.4,
    why=None,
    status="ok",
    reason=None,
    weights="pretrained",
    **axes,
):
    """A record with an estimate for m4 and further chips; None: withheld for the reason `why`."""
    request = {"model": "minilm", "runtime": "auto", **axes}
    figures = [Metric("psnr_db", psnr, "dB"), Metric("package_bytes", 1e6 * size, "bytes")]
    places = []
    for chip, ms in {"m4": m4, **(others or {})}.items():
        figures.append(Metric("cost_share_ane", share, "1", "predicted", chip=chip))
        ends = {} if ms is None else {"latency_ms": ms, "latency_low_ms": 0.6 * ms, "latency_high_ms": 2 * ms}
        figures += [Metric(name, value, "ms", "estimated", chip=chip) for name, value in ends.items()]
        entry = placement("predicted", chip, Ops(60, 0, 40, 100))
        places.append(replace(entry, not_estimated=f"{chip}: {why}" if ms is None and why else None))
    done = status in ("ok", "degraded")
    key = hashlib.sha256(json.dumps(request).encode()).hexdigest()
    return Record(
        "s1", key, request, Status(status), reason, realised={"runtime": "reference"} if done else {},
        stages=[StageOutcome("convert", "ok" if done else status, reason, key="k" * 20)],
        metrics=figures if done else [], placement=places if done else [], weights=Weights(weights),
    )  # fmt: skip


def measured(ms, chip="Apple M4", rounds=8, **axes):
    record = cell(1.0, **axes)
    record.realised["runtime"], record.host = "coreml", {"chip": chip}
    record.metrics += [Metric("latency_median_ms", ms, "ms"), Metric("latency_iqr_ms", 0.02 * ms, "ms")]
    record.timings = [Timing(n, ms * (1 + 0.001 * (n % 3))) for n in range(rounds)]
    return record


def test_the_first_sentence_names_the_cell_the_figure_and_the_runner_up():
    found = answer([cell(2.8, chunks=2), cell(1.2, chunks=1), cell(9.0, chunks=4)])
    assert found == [
        "Ship minilm chunks=1 on M4: 1.2 ms (estimated; 0.72 to 2.4), 2.33 times as fast as chunks=2 (2.8 ms): sure.",
        "No cell is better in PSNR 78.9 dB or package 45.0 MB.",
        "Its package: ane-sweep get s1:chunks=1 ./minilm",
    ]


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (2.0, "2 times as fast as variant=original (2 ms): sure."),
        (1.3, "1.3 times as fast as variant=original (1.3 ms): likely."),
        (1.0, "not told apart from variant=original (1 ms)."),
    ],
)
def test_how_sure_is_said_with_the_words_of_the_rule(ms, words):
    (first, *_) = answer([cell(1.0, variant="split_einsum", psnr=80.0), cell(ms, variant="original", psnr=79.5)])
    assert first.startswith("Ship minilm variant=split_einsum on M4") and first.endswith(words)


def test_fewer_bits_alone_are_never_sure_to_be_faster():
    for ms, words in ((1.5, "not told apart from precision=fp16 (1.5 ms)."), (9.0, "(9 ms): likely.")):
        (first, *_) = answer([cell(ms, precision="fp16"), cell(1.0, precision="p6")])
        assert first.startswith("Ship minilm precision=p6 on M4") and first.endswith(words)


def test_what_the_cell_gives_up_is_named_with_the_cell_that_has_it():
    found = answer(
        [
            cell(1.0, precision="p6", psnr=44.1, size=18.0),
            cell(1.6, precision="fp16"),
            cell(1.9, precision="p4", size=11.3),
        ]
    )
    assert found[1] == (
        "It gives up PSNR 44.1 dB against 78.9 with precision=fp16, package 18.0 MB against 11.3 with precision=p4."
    )


def test_random_weights_and_warnings_are_marked_in_the_answer():
    assert "with random weights PSNR says nothing" in answer([cell(1.0, chunks=c, weights="random") for c in (1, 2)])[1]
    doubtful = [cell(1.0, chunks=1, status="degraded", reason="PSNR 31 dB is under its gate"), cell(2.0, chunks=2)]
    assert answer(doubtful)[0].startswith("Ship minilm chunks=2 on M4: 2 ms"), "a sound cell is before a doubtful one"
    first, doubt, *rest = answer([doubtful[0], cell(status="failed", chunks=2)])
    assert "chunks=1 on M4 [degraded]: 1 ms" in first and doubt == "In doubt: PSNR 31 dB is under its gate."
    assert "Of 2 cells, 1 failed." in rest


def test_a_cell_that_is_not_told_apart_and_clearly_more_accurate_is_the_runner_up():
    records = [cell(1.0, chunks=1, psnr=60.0), cell(1.001, chunks=2, psnr=61.0), cell(1.01, chunks=3, psnr=77.0)]
    assert (
        "not told apart from chunks=3 (1.01 ms), which is 17 dB more accurate, nor from 1 more." in answer(records)[0]
    )
    assert "not told apart from chunks=2 (1 ms)." in answer(records[:2])[0], "1 dB is no reason"


def test_the_change_that_saves_most_is_named_and_none_that_saves_nothing():
    look = "do the lookup outside, or keep it first (1 op: gather; saves about {} of 1.21 ms)"
    record = cell(1.21)
    record.placement[0] = replace(record.placement[0], advice=[look.format(0.13)])
    assert "To change: do the lookup outside (1 op: gather; saves about 0.13 of 1.21 ms)." in answer([record])
    every = "change all ops that the ANE refuses (saves about 0.13 of 1.21 ms)"
    record.placement[0] = replace(record.placement[0], advice=[look.format(0.0048), every])
    assert "To change: change all ops that the ANE refuses (gather; saves about 0.13 of 1.21 ms)." in answer([record])
    record.placement[0] = replace(record.placement[0], advice=[look.format(0.0048)])
    assert not any(line.startswith("To change") for line in answer([record]))


def test_equal_shares_are_not_told_apart_and_the_reason_is_its_first_clause():
    records = [cell(None, chunks=c, why="no figures of this form: a net took 55 ms; who knows") for c in (1, 2)]
    assert answer(records)[0] == (
        "Ship minilm chunks=1: 40 % of its cost is predicted on M4's Neural Engine, not told apart from chunks=2. "
        "No latency is estimated: no figures of this form."
    )


def test_the_other_chips_are_answered_too():
    found = answer([
        cell(1.2, {"m1": 1.6, "a17_pro": 1.9}, chunks=1), cell(1.4, {"m1": None, "a17_pro": 1.7}, chunks=2),
    ])  # fmt: skip
    assert found[2] == (
        "Other chips, by estimate: the same cell on M1 (1.6 ms; 1 of 2 cells have an estimate); chunks=2 on A17 Pro (1.7 ms)."
    )


def test_without_an_estimate_the_share_of_the_cost_answers_and_the_reason_is_said():
    records = [
        cell(None, share=0.62, why="nobody timed it.", chunks=1),
        cell(None, share=0.78, why="nobody timed it.", chunks=2),
    ]
    assert answer(records)[0] == (
        "Ship minilm chunks=2: 78 % of its cost is predicted on M4's Neural Engine, 62 % with chunks=1. "
        "No latency is estimated: nobody timed it."
    )
    records.append(cell(9.0, chunks=4))
    found = answer(records)
    assert (
        found[0].startswith("minilm chunks=4 on M4: 9 ms (estimated")
        and "Not weighed, without a latency: 2 cells." in found
    )


def test_equal_shares_are_weighed_by_accuracy_then_size():
    records = [
        cell(None, precision="p4", psnr=40.0),
        cell(None, precision="fp16", psnr=80.0),
        cell(None, precision="fp32", psnr=80.0, size=90),
    ]
    assert answer(records)[0].startswith("Ship minilm precision=fp16: 40 % of its cost")


def test_a_measured_answer_uses_the_test_of_its_processes():
    (first, *others) = answer([measured(2.0, chunks=1), measured(3.0, chunks=2)])
    assert (
        first
        == "Ship minilm chunks=1: 2 ms measured (Core ML on Apple M4), 1.5 times as fast as chunks=2 (3 ms): sure."
    )
    assert not any("by estimate" in line for line in others)
    same = answer([measured(2.0, chunks=1), measured(2.0004, chunks=2)])[0]
    assert "not told apart from chunks=2" in same
    few = answer([measured(2.0, chunks=1, rounds=1), measured(3.0, chunks=2, rounds=1)])[0]
    assert few.endswith("likely (too few processes for a test).")
    busy = [measured(ms, chunks=c, rounds=2, status="degraded", reason="busy") for c, ms in ((1, 2.0), (2, 4.0))]
    said = "not told apart from chunks=2 (4 ms): 2 processes are too few for a test, and both are in doubt."
    assert answer(busy)[0].endswith(said) and answer(busy)[1] == "In doubt: busy."


def test_a_check_on_this_host_never_chooses_the_cell():
    records = [cell(1.0, chunks=1), cell(6.0, chunks=2)]
    for record, ms in zip(records, (35.0, 30.0)):
        record.metrics.append(Metric("latency_median_ms", ms, "ms"))
    assert answer(records)[0].startswith("Ship minilm chunks=1 on M4: 1 ms")


def test_one_cell_says_its_figure():
    assert answer([cell(1.2)]) == [
        "minilm on M4: 1.2 ms (estimated; 0.72 to 2.4).", "PSNR 78.9 dB and package 45.0 MB.",
        "Its package: ane-sweep get s1 ./minilm",
    ]  # fmt: skip


def test_several_models_have_a_line_each_up_to_four():
    records = [cell(ms, model=f"net{n}", chunks=c) for n in range(6) for c, ms in ((1, 1.0), (2, 2.5))]
    found = answer(records)
    assert [line.split()[1] for line in found[:4]] == ["net0", "net1", "net2", "net3"] and all(
        "sure" in line for line in found[:4]
    )
    assert found[4] == "And 2 more." and found[5] == "Its package: ane-sweep get s1:model=net0,chunks=1 ./net0"


def test_a_sweep_in_which_no_cell_succeeded_says_what_to_do():
    found = answer([cell(status="crashed", reason="convert ended with SIGSEGV", chunks=c) for c in (1, 2)])
    assert found == [
        "No cell to ship: 2 crashed.",
        f"convert ended with SIGSEGV. Next: read outputs/runs/s1/tasks/convert-{'k' * 12}/stderr.txt",
    ]
    assert answer([]) == []


def test_the_command_selects_that_cell_and_no_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    records = [
        cell(ms, chunks=c, cuts=cuts, allow_pickle=flag, **{"model_options": {"path": "a dir/nets.py:Net"}})
        for ms, c, cuts, flag in ((3.0, 1, None, False), (1.0, 2, ["layer:2", "layer:4"], True), (2.0, 2, ["layer:2"], True))
    ]  # fmt: skip
    write_run(tmp_path / "elsewhere", "20260101-000000", records)
    for record in records:
        record.sweep = "20260101-000000"
    words = shlex.split(answer(records, "elsewhere/runs")[-1].removeprefix(FETCH))
    assert words[:2] == ["ane-sweep", "get"] and words[3:] == ["./minilm", "out=elsewhere"]
    assert [r.cell_key for r in sides.side(tmp_path / "elsewhere", words[2]).records] == [records[1].cell_key]
