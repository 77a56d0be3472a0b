"""Conversions are kept in pieces, and a phase's time is its own."""

import pytest

from tests.bench import Row, _kept, _phased, conversions, phases


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr(_kept, "FOLDER", tmp_path / "kept")
    monkeypatch.setattr(_kept, "TOPIC", tmp_path / "figures.md")
    _kept.FOLDER.mkdir()
    _kept.TOPIC.write_text("| benchmark | what |\n| --- |\n", encoding="utf-8")


@pytest.mark.usefixtures("kept")
def test_a_piece_takes_the_place_of_its_own_rows_alone():
    conversions.keep([Row("gpt2 original (one run)", "9 s"), Row("gpt2-xl original (one run)", "80 s")])
    conversions.keep([Row("gpt2-xl original (median of 3)", "40 s"), Row("ladder-xl original (one run)", "50 s")])
    assert [(row["what"], row["ours"]) for row in _kept.entries("conversions")[-1]["rows"]] == [
        ("gpt2 original (one run)", "9 s"),
        ("gpt2-xl original (median of 3)", "40 s"),
        ("ladder-xl original (one run)", "50 s"),
    ]


@pytest.mark.usefixtures("kept")
def test_phases_of_a_model_are_replaced_together():
    phases.keep(
        [Row("gpt2 original", "9 s"), Row("gpt2 original: tracing", "1 s"), Row("gpt2 original: package", "1 s")]
    )
    phases.keep([Row("gpt2 original", "8 s"), Row("gpt2 original: imports", "2 s")])
    assert [row["what"] for row in _kept.entries("phases")[-1]["rows"]] == ["gpt2 original", "gpt2 original: imports"]


def test_the_time_of_an_inner_phase_is_not_the_outer_ones(monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr(_phased.time, "perf_counter", lambda: float(next(now)))
    monkeypatch.setattr(_phased.time, "thread_time", lambda: 0.0)
    clock = _phased.Clock()
    inner = clock.timed("inner", lambda: None)
    clock.timed("outer", lambda: (inner(), inner()))()
    assert {name: figures[0] for name, figures in clock.phases.items()} == {"inner": 2.0, "outer": 3.0}  # of 5


def test_every_phase_is_a_function_that_is_there():
    import importlib

    for _, module, owner, name in _phased.POINTS:
        held = importlib.import_module(module)
        assert callable(getattr(getattr(held, owner) if owner else held, name)), (module, name)
