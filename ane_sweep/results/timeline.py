"""The trace of a cell's processes in Chrome's format, which Perfetto opens: load, calls, chunks, gaps and the evidence pass.

It is built from files that the tasks wrote into the run's folder; nothing is timed for it.

    pid   a process of ours;  tid 1: load and calls, 2: chunks or copies, 3: transfers between them;  counters: power, memory
    ts    microseconds since the first process began, by the wall clock, to which each process's own clock is aligned
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ane_sweep.bridge import disk
from ane_sweep.bridge.record import Record
from ane_sweep.bridge.stages import STAGES

FOLDER = "timelines"
_LEFT = ("samples.json", "moments.json")  # of a process that times, and of one that watches
_THREADS = {1: "calls", 2: "parts", 3: "between"}
Event = dict[str, Any]


def write(run: Path, records: Iterable[Record]) -> list[Path]:
    """Write a file for each set of processes into timelines/, named after the record's `latency_task`, which cells may share."""
    made = []
    for record in records:
        key = record.realised.get("latency_task")
        path = run / FOLDER / f"{str(key)[:12]}.json"
        if key and path not in made and (found := trace(record, run)):
            disk.make_folder(run, FOLDER)
            with disk.replace_file(path) as aside:
                aside.write_text(json.dumps(found, allow_nan=False) + "\n", encoding="utf-8")
            made.append(path)
    return made


def trace(record: Record, run: Path) -> dict[str, Any] | None:
    """Return the trace of one cell, or None if its tasks recorded no times."""
    events: list[Event] = []
    for number, (stage, folder) in enumerate(_list_processes(record, run), 1):
        samples, moments = (disk.read_json(folder / name) for name in _LEFT)
        if STAGES[stage].pooled and samples and samples.get("starts") and samples.get("clock") == "perf_counter":
            events += _named(number, f"{stage} {number}", samples["began"]) + list(_calls(number, samples))
        elif moments:
            events += _named(number, stage, moments) + list(_moments(number, moments))
    timed = [event for event in events if "ts" in event]
    if not timed:
        return None
    first = min(event["ts"] for event in timed)
    for event in timed:
        event["ts"] = round(event["ts"] - first, 3)
    about = {
        "cell": record.cell_key,
        "sweep": record.sweep,
        "kind": "measured",
        "source": record.realised.get("runtime"),
    }
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _list_processes(record: Record, run: Path) -> Iterator[tuple[str, Path]]:
    for stage in record.stages:
        folder = run / "tasks" / f"{stage.stage}-{(stage.key or '')[:12]}" / "out"
        if stage.key and any((folder / name).is_file() for name in _LEFT):
            yield stage.stage, folder


def _named(pid: int, name: str, began: dict[str, Any]) -> list[Event]:
    said = f"{name} (process {began['pid']})"
    threads = [
        {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": text}}
        for tid, text in _THREADS.items()
    ]
    return [{"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": said}}, *threads]


def _calls(pid: int, samples: dict[str, Any]) -> Iterator[Event]:
    began, unix = samples["began"], samples["began"]["unix"]
    yield _span("load", "load", pid, 1, unix + began["load"], began["load_s"])
    count = samples.get("copies", 1)  # the samples of several are seconds per prediction
    steps = [("first call", samples["first_s"], 1)]
    steps += [(f"early call {n}", seconds, 1) for n, seconds in enumerate(samples["warmup_s"], 1)]
    steps += [(f"sample {n}", seconds, samples["loops"]) for n, seconds in enumerate(samples["steady_s"], 1)]
    steps += [("after a pause", seconds, 1) for seconds in [samples["after_idle_s"]] if seconds is not None]
    for (name, seconds, loops), start in zip(steps, samples["starts"]):
        yield _span(name, "prediction", pid, 1, unix + start, seconds * loops * count, {"calls": loops})
    parts = samples.get("parts") or {}
    for call in parts.get("calls", []):
        for n in range(0, len(call), 2):
            yield _span(f"{parts['what']} {n // 2 + 1}", parts["what"], pid, 2, unix + call[n], call[n + 1] - call[n])
            if n + 2 < len(call):
                yield _span("between", "gap", pid, 3, unix + call[n + 1], call[n + 2] - call[n + 1])


def _moments(pid: int, moments: dict[str, Any]) -> Iterator[Event]:
    unix = moments["unix"]
    for look in moments["looks"]:
        if "power" in look:
            start = unix + look["at"]
            for sample in look["power"]:
                start += sample["seconds"]
                known = {engine: value for engine, value in sample["milliwatts"].items() if value is not None}
                yield _event("C", "power, mW", "evidence", pid, 0, start, args=known)
            continue
        at = unix + look["at"]
        yield {"ph": "i", "s": "p", **_event("i", look["when"], "evidence", pid, 1, at)}
        services = {f"{one['name']} {one['pid']}": one["resident_bytes"] for one in look["services"]}
        levels = {"services, bytes": services, "machine, bytes": look.get("memory", {}).get("levels", {})}
        for what, values in levels.items():
            if values:
                yield _event("C", what, "evidence", pid, 0, at, args=values)


def _span(
    name: str, cat: str, pid: int, tid: int, start: float, seconds: float, args: Mapping[str, object] | None = None
) -> Event:
    """Return an event with a duration, which is never negative."""
    return _event("X", name, cat, pid, tid, start, dur=max(0.0, round(1e6 * seconds, 3)), args=args or {})


def _event(ph: str, name: str, cat: str, pid: int, tid: int, start: float, **more: object) -> Event:
    return {"ph": ph, "name": name, "cat": cat, "pid": pid, "tid": tid, "ts": 1e6 * start, **more}
