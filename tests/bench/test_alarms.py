"""The benchmark of false alarms: on a pool whose noise and delay are known, it finds what is there and nothing else."""

import json
import math
import random

import pytest

from tests.bench import _pool, alarms


@pytest.fixture
def pool_file(tmp_path):
    """40 rounds of two programs, 2 % scatter, every tenth process slowed by a third; `delayed` is ten per cent slower."""
    drawn, runs = random.Random(0), []
    for number in range(1, 41):
        for program in ("p", "q"):
            for slot in _pool.SLOTS:
                median = math.exp(drawn.gauss(0, 0.02)) * (1.1 if slot == "delayed" else 1)
                median *= 1.33 if drawn.random() < 0.1 else 1
                runs.append(
                    {
                        "round": number,
                        "position": 0,
                        "program": program,
                        "slot": slot,
                        "median_ms": median,
                        "samples_ms": [median],
                    }
                )
    path = tmp_path / "pool.json"
    path.write_text(json.dumps({"programs": {"p": {"delay_ms": 0.1}, "q": {"delay_ms": 0.1}}, "runs": runs}))
    return path


@pytest.mark.slow
def test_a_finished_pool_is_analysed_without_taking_anything(pool_file, monkeypatch):
    monkeypatch.setattr(_pool, "ane_sweep", lambda *_: pytest.fail("nothing is missing"))
    monkeypatch.setattr(alarms, "DRAWS", 100)
    monkeypatch.setattr(alarms, "SIZES", (12, 21))
    *found, enough = alarms.run(pool_file, rounds=40)[1:]
    rows = {row.what: float(row.ours.split(" %")[0]) for row in found}
    assert enough.ours.startswith("across sweeps 12, within a sweep ")
    assert rows.pop("false alarms, across sweeps, 12 processes a side") <= 4
    assert rows.pop("false alarms, within a sweep, 12 processes a side") <= 4
    assert rows.pop("10 % delay found, across sweeps, 12 processes a side") >= 85
    assert any("21 processes" in what for what in rows) and not any("in a row, 21" in what for what in rows)


@pytest.mark.parametrize(
    ("hits", "draws", "low", "high"),  # any table of the exact binomial interval
    [(0, 10, 0.0, 0.3085), (5, 10, 0.1871, 0.8129), (10, 10, 0.6915, 1.0), (10, 1000, 0.0048, 0.0183)],
)
def test_the_binomial_interval(hits, draws, low, high):
    assert alarms.binomial(hits, draws) == pytest.approx((low, high), abs=1e-4)


def test_a_delay_is_spent_inside_the_call():
    import time

    slow = _pool._delayed(lambda values: values + 1, 2.0)
    began = time.perf_counter()
    assert slow(1) == 2 and time.perf_counter() - began >= 0.002
