"""The bench history: its file, and that a slowdown of a fifth is said."""

from tests.bench import __main__, history

VERSIONS = {"torch": "2.13.0"}


def entry(cpu_s: float, machine: str = "here", **more: float) -> dict:
    figures = {"convert": {"cpu_s": cpu_s, "wall_s": 2 * cpu_s}} | {
        name: {"cpu_s": s, "wall_s": s} for name, s in more.items()
    }
    return {"date": "2026-11-22", "commit": "abc", "machine": machine, "versions": VERSIONS, "figures": figures}


def test_the_file_parses_and_its_figures_are_seconds():
    for one in history.entries():
        assert one["figures"] and one["machine"] and one["versions"]
        for figure in one["figures"].values():
            assert figure["cpu_s"] > 0 and figure["wall_s"] > 0


def test_a_slowdown_of_a_fifth_is_said_and_less_is_not():
    before = [entry(30.0), entry(10.0), entry(1.0, machine="another")]
    (slow,), (well,), (fast,) = (history.compared(entry(cpu_s), before) for cpu_s in (12.0, 11.9, 5.0))
    assert (slow.ratio, slow.bar) == ("1.20", "slower than the last by a fifth or more")
    assert well.bar == fast.bar == "within a fifth"
    assert history.slower([slow, well]) and not history.slower([well, fast])


def test_small_steps_that_come_to_a_fifth_are_said():
    before = [entry(10.0), entry(11.0)]
    (row,) = history.compared(entry(12.1), before)
    assert row.ratio == "1.10"
    assert row.bar == "slower by a fifth or more than 10.0 s (2026-11-22, abc)"
    assert history.slower([row])


def test_other_machines_and_versions_say_nothing():
    other = entry(1.0) | {"versions": {"torch": "2.14.0"}}
    rows = history.compared(entry(12.0, matrix=3.0), [entry(1.0, machine="another"), other])
    assert [row.bar for row in rows] == ["nothing kept of this machine with these versions"] * 2


def test_the_command_ends_with_1_where_something_is_slower_and_keeps_an_entry(tmp_path, monkeypatch, capsys):
    (tmp_path / "history.json").write_text("[]")
    monkeypatch.setattr(history, "FILE", tmp_path / "history.json")
    figures = {"convert": {"cpu_s": 10.0, "wall_s": 20.0}}
    monkeypatch.setattr(history, "measured", lambda: figures)
    assert __main__.main(["history", "--keep"]) == 0
    assert [one["figures"] for one in history.entries()] == [figures]
    figures = {"convert": {"cpu_s": 12.5, "wall_s": 20.0}}
    assert __main__.main(["history"]) == 1
    assert "slower than the last by a fifth" in capsys.readouterr().out
    assert len(history.entries()) == 1


def test_cpu_seconds_count_what_children_of_children_do(tmp_path):
    import subprocess
    import sys

    busy = "import time\nwhile time.process_time() < 0.3: pass"
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {busy!r}])"
    took = history._least(lambda out: subprocess.run([sys.executable, "-S", "-c", inner], check=True), runs=1)
    assert took["cpu_s"] >= 0.3
