"""Records: strict JSON both ways, one file per sweep that is never half written, axes that vary."""

import json
import math

import pytest
from constructed import placement
from hypothesis import given, settings
from hypothesis import strategies as st

from ane_sweep.bridge.figures import Artifact, Metric, Timing
from ane_sweep.bridge.record import (
    SCHEMA,
    Record,
    StageOutcome,
    StageStatus,
    Status,
    Weights,
    kept_records,
    read_records,
    varying_axes,
    write_records,
)
from ane_sweep.bridge.task import Realised
from ane_sweep.errors import RunNotFound, StoreError
from ane_sweep.placement.types import Ops

words = st.text(max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
plain_dict = st.dictionaries(words, plain, max_size=4)
free_names = words.filter(lambda word: word not in Realised.__annotations__)  # those have types of their own
names = st.text(min_size=1, max_size=8)
keys = st.from_regex(r"^[\w-]{1,9}\Z")
numbers = st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(1e-9, 1e9)
metrics = st.builds(Metric, name=names, value=st.none() | numbers, unit=words, chip=st.none() | names)
ops = st.builds(Ops, *[st.integers(0, 1 << 40)] * 4)
timings = st.builds(Timing, round=st.integers(0, 99), median_ms=positive, samples_ms=st.lists(positive, max_size=3))
stages = st.builds(
    StageOutcome,
    stage=st.from_regex(r"^[a-z_]{1,9}\Z"),
    status=st.sampled_from(StageStatus),
    reason=st.none() | words,
    seconds=st.none() | st.floats(0, 1e6),
    peak_bytes=st.none() | st.integers(0),
    exit=st.none() | st.integers(-64, 255),
    key=st.none() | keys,
)
records = st.builds(
    Record,
    sweep=st.from_regex(r"^[A-Za-z0-9][\w.-]{0,9}\Z"),
    cell_key=keys,
    cell=plain_dict,
    status=st.sampled_from(Status),
    reason=st.none() | words,
    stages=st.lists(stages, max_size=2),
    realised=st.dictionaries(free_names, plain, max_size=4),
    metrics=st.lists(metrics, max_size=3),
    placement=st.lists(st.builds(placement, st.just("planned"), st.none() | names, ops), max_size=2),
    weights=st.builds(Weights, st.none() | words, st.none() | words),
    host=plain_dict,
    toolchain=st.dictionaries(words, st.none() | words, max_size=4),
    artifacts=st.lists(st.builds(Artifact, names, words), max_size=2),
    timings=st.lists(timings, max_size=2),
)


def record(**changes):
    return Record(**{"sweep": "s", "cell_key": "k", "cell": {"model": "minilm"}, "status": Status.OK, **changes})


def strict(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.slow
@pytest.mark.ci
@given(records)
@settings(max_examples=150, deadline=None)
def test_json_round_trip_is_strict_and_exact(one):
    line = one.to_json()
    assert "\n" not in line
    assert strict(line)["schema"] == SCHEMA
    assert Record.from_json(line) == one


@given(st.lists(records, min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_files_hold_what_was_written(tmp_path_factory, many):
    folder = tmp_path_factory.mktemp("run")
    write_records(folder, many)
    assert read_records(folder) == many
    assert [path.name for path in folder.iterdir()] == ["records.jsonl"]


def test_an_odd_number_elsewhere_costs_no_record():
    assert strict(record(realised={"drift": [math.nan]}).to_json())["realised"] == {"drift": [None]}


def test_value_looks_at_name_kind_and_chip():
    entries = [
        Metric("latency_ms", 1.0, "ms", kind="estimated", chip="m1"),
        Metric("latency_ms", 2.0, "ms", kind="estimated", chip="m4"),
        Metric("latency_median_ms", 3.0, "ms"),
    ]
    one = record(metrics=entries)
    assert one.value("latency_median_ms") == 3.0
    assert one.value("latency_ms", kind="estimated", chip="m4") == 2.0
    assert one.value("latency_ms") is None


@pytest.mark.parametrize(
    "line, words",
    [
        ('{"schema": 2}', ["schema 2", "reads up to 1", "update ane-sweep"]),
        ('{"sweep": "s"}', ["no `schema` number"]),
        ("{", ["is not JSON"]),
        ('{"schema": NaN}', ["is not JSON", "NaN"]),
        ('{"schema": 1, "sweep": "s", "cell_key": "k", "cell": {}, "status": "fine"}', ["'fine'"]),
        ('{"schema": 1, "sweep": "s", "cell_key": "k", "cell": {}}', ["status"]),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, words):
    (tmp_path / "records.jsonl").write_text(record().to_json() + "\n" + line + "\n")
    with pytest.raises(StoreError) as error:
        read_records(tmp_path)
    for word in ["line 2 of", *words]:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b'{"a": "\xff"}', "is no UTF-8 text"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_a_damaged_file_is_an_error_where_it_is_asked_for_and_absent_where_others_are_read_too(
    tmp_path, capsys, content, words
):
    assert kept_records(tmp_path) is None and not capsys.readouterr().err
    (tmp_path / "records.jsonl").write_bytes(content)
    with pytest.raises(StoreError, match=words):
        read_records(tmp_path)
    assert kept_records(tmp_path) is kept_records(tmp_path) is None
    said = capsys.readouterr().err
    assert said.startswith("doubt: ") and words in said and f"resume={tmp_path.name}" in said and said.count("\n") == 1


def test_fields_of_a_later_version_are_left_out():
    plain = {**record().to_dict(), "mood": "good"}
    assert Record.from_dict(plain) == record()


def test_no_file_is_run_not_found(tmp_path):
    with pytest.raises(RunNotFound, match=r"no records\.jsonl in"):
        read_records(tmp_path)


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    write_records(tmp_path, [record()])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ane_sweep.bridge.disk.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_records(tmp_path, [record(cell_key="other")])
    assert [path.name for path in tmp_path.iterdir()] == ["records.jsonl"]
    assert read_records(tmp_path) == [record()]


def test_varying_axes_leaves_out_what_follows_from_another_axis():
    cells = [
        {"model": m, "family": f, "size": m, "chunks": c, "seq_len": 128, "precision": p, "recipe": {"bits": b}}
        for m, f in (("gpt2", "gpt2"), ("minilm", "bert"))
        for c in (1, 2)
        for p, b in (("fp16", 16), ("w8", 8))
    ]
    made = [record(cell=cell) for cell in cells]
    assert varying_axes(made) == ["model", "chunks", "precision"]
    made[0].cell["recipe"] = {"bits": 4}
    assert varying_axes(made) == ["model", "chunks", "precision", "recipe.bits"]
    assert varying_axes(made[:1]) == []
    assert varying_axes([]) == []


def test_paired_plain_axes_are_both_axes():
    made = [record(cell={"chunks": c, "seq_len": s}) for c, s in ((1, 64), (2, 128))]
    assert varying_axes(made) == ["chunks", "seq_len"]


def test_realised_is_checked_where_it_is_read_and_keeps_what_other_versions_and_plugins_add():
    plain = record(realised={"runtime": "theirs", "chunks": 2, "their_own": [1]}).to_dict()
    assert Record.from_dict(plain).realised == {"runtime": "theirs", "chunks": 2, "their_own": [1]}
    with pytest.raises(StoreError, match=r"chunks"):
        Record.from_dict({**plain, "realised": {"chunks": -1}})
