"""A plan as a trace for chrome://tracing and ui.perfetto.dev, with a row for each unit and the ops in sequence.

Format: "Trace Event Format" of Chromium, complete events (ph "X") and metadata (ph "M"); times in microseconds. The
trace is no measurement: an op's length is the compiler's estimate if analytics.mil has one for its backend, else its
share of the plan's cost, as if the whole plan took one millisecond. The args of each event name the source of its
length.
"""

from collections.abc import Sequence

from ane_sweep.placement.types import Placement
from ane_sweep.worker.programs import PlannedOp

NAME = "plan.trace.json"
_THREADS = {"cpu": 1, "gpu": 2, "ane": 3}
_WHOLE_US = 1000.0


def build_events(table: Sequence[PlannedOp], summary: Placement) -> dict[str, object]:
    """Return the trace of a plan's rows; rows without a unit are left out."""
    placed = [row for row in table if row["preferred"] is not None]
    total = sum(row["cost"] for row in placed) or 1.0
    processes = {key: number for number, key in enumerate(dict.fromkeys(_name_program(row) for row in placed), 1)}
    found = []
    for name, pid in processes.items():
        found.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
        found += [
            {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": unit}}
            for unit, tid in _THREADS.items()
        ]
    at = 0.0
    for row in placed:
        length, kind = _measure_length(row, total)
        found.append(
            {
                "ph": "X",
                "name": row["op_type"],
                "cat": "planned",
                "pid": processes[_name_program(row)],
                "tid": _THREADS[str(row["preferred"])],
                "ts": round(at, 3),
                "dur": round(length, 3),
                "args": {"length": kind} | {key: value for key, value in row.items() if value not in (None, [])},
            }
        )
        at += length
    about = {"kind": "planned", "chip": summary.chip, "compute_units": summary.compute_units}
    return {"traceEvents": found, "displayTimeUnit": "ms", "otherData": about}


def _name_program(row: PlannedOp) -> str:
    return " ".join(part for part in (row["chunk"] or "model", row.get("part"), row["function"]) if part)


def _measure_length(row: PlannedOp, total: float) -> tuple[float, str]:
    if (estimate := (row.get("estimated_ms") or {}).get(row.get("backend") or "")) is not None:
        return 1000.0 * estimate, "estimated by Core ML's compiler"
    return _WHOLE_US * row["cost"] / total, "share of the plan's cost"
