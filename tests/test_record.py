"""Records: strict JSON both ways, one file per sweep that is never half written, axes that vary."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ane_sweep.errors import RunNotFound, StoreError
from ane_sweep.record import (
    SCHEMA,
    Record,
    StageOutcome,
    StageStatus,
    Status,
    kept_records,
    read_records,
    varying_axes,
    write_records,
)

words = st.text(max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
plain_dict = st.dictionaries(words, plain, max_size=4)
metrics = st.fixed_dictionaries(
    {
        "name": words,
        "value": st.none() | st.integers() | st.floats(allow_nan=False),
        "unit": words,
        "kind": st.sampled_from(["measured", "planned", "predicted"]),
        "source": st.none() | words,
        "chip": st.none() | words,
    }
)
stages = st.builds(
    StageOutcome,
    stage=words,
    status=st.sampled_from(StageStatus),
    reason=st.none() | words,
    seconds=st.none() | st.floats(0, 1e6),
    peak_bytes=st.none() | st.integers(0),
    exit=st.none() | st.integers(-64, 255),
    key=st.none() | words,
)
records = st.builds(
    Record,
    sweep=words,
    cell_key=words,
    cell=plain_dict,
    status=st.sampled_from(Status),
    reason=st.none() | words,
    stages=st.lists(stages, max_size=2),
    realised=plain_dict,
    metrics=st.lists(metrics, max_size=3),
    placement=st.lists(plain_dict, max_size=2),
    weights=plain_dict,
    host=plain_dict,
    toolchain=plain_dict,
    artifacts=st.lists(plain_dict, max_size=2),
)


def record(**changes):
    return Record(**{"sweep": "s", "cell_key": "k", "cell": {"model": "minilm"}, "status": "ok", **changes})


def strict(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


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


def test_an_infinite_figure_is_null_in_json_and_comes_back():
    one = record(metrics=[{"name": "psnr_db", "value": math.inf, "unit": "dB", "kind": "measured", "chip": None}])
    assert strict(one.to_json())["metrics"][0]["value"] is None
    assert Record.from_json(one.to_json()).value("psnr_db") == math.inf


def test_an_odd_number_elsewhere_costs_no_record():
    assert strict(record(realised={"drift": [math.nan]}).to_json())["realised"] == {"drift": ["nan"]}


def test_value_looks_at_name_kind_and_chip():
    entries = [
        {"name": "latency_ms", "value": 1.0, "unit": "ms", "kind": "estimated", "chip": "m1"},
        {"name": "latency_ms", "value": 2.0, "unit": "ms", "kind": "estimated", "chip": "m4"},
        {"name": "latency_median_ms", "value": 3.0, "unit": "ms", "kind": "measured", "chip": None},
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

    monkeypatch.setattr("ane_sweep.bridge.os.fsync", full)
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
