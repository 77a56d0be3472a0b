"""The evidence for a cell's verdict, gathered from its results and from the lines that its processes printed."""

from collections.abc import Mapping
from contextlib import suppress

from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.plan import Outcome
from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import EvidenceFacts, Task
from ane_sweep.machine import syslog
from ane_sweep.results import verdict
from ane_sweep.runner.task_runner import STDERR_BYTES

Chain = list[tuple[Task, Outcome]]


def judged(cell: Cell, chain: Chain, beside: Mapping[str, Outcome]) -> verdict.Verdict:
    """Return the verdict of a cell that ran on Core ML.

    beside   units -> the outcome of timing the same program on those units
    """
    if cell.evidence == "off":
        return verdict.Verdict("unavailable", None, False, ["evidence=off"])
    seen = next((outcome for task, outcome in chain if task.stage == "evidence"), None)
    entries = (entry for _, outcome in chain if outcome.done for entry in outcome.result.placement)
    shares = (e.cost_share for e in entries if e.kind == "planned" and e.compute_units == cell.compute_units)
    facts: EvidenceFacts = seen.result.facts.get("evidence", {}) if seen is not None and seen.done else {}
    return verdict.judge(
        verdict.Evidence(
            compute_units=cell.compute_units,
            planned=next(map(vars, shares), None),
            samples=_samples(chain, beside),
            power=facts.get("power", {}),
            findings=[*printed(chain), *facts.get("findings", [])],
            missing=_missing(cell, seen, facts, beside),
        )
    )


def printed(chain: Chain) -> list[dict[str, object]]:
    """Return the known lines that Core ML printed in the processes that ran the program."""
    paths = (outcome.stderr for task, outcome in chain if STAGES[task.stage].runs_program)
    found = syslog.Findings(pid=-1)
    for path in filter(None, paths):
        with suppress(OSError), path.open("rb") as file:
            found.add_stderr(file.read(STDERR_BYTES).decode("utf-8", "replace"))
    return found.rank()


def _samples(chain: Chain, beside: Mapping[str, Outcome]) -> dict[str, list[float]]:
    """Return the samples of one process for each setting of compute units, from the first round, as baselines are timed once."""
    own = [("own", outcome) for task, outcome in chain if STAGES[task.stage].pooled][:1]
    timings = {name: outcome.result.timing for name, outcome in [*own, *beside.items()] if outcome.done}
    return {name: timing.samples_ms for name, timing in timings.items() if timing and timing.samples_ms}


def _missing(cell: Cell, seen: Outcome | None, facts: EvidenceFacts, beside: Mapping[str, Outcome]) -> list[str]:
    found = list(facts.get("missing", []))
    if cell.latency["repeats"] == 0:
        found.append("latency=off: no latency was compared")
    if cell.device != "local":
        found.append(f"device={cell.device}: its power and log cannot be read from here")
    if seen is not None and not seen.done:
        found.append(f"the evidence pass ended as {seen.status} ({seen.reason or 'no reason given'})")
    return found + [f"{units} was not timed ({one.status})" for units, one in beside.items() if not one.done]
