"""converting gpt2 and a 24-cell matrix against what they took before on such a machine: slower by a fifth is said (2 minutes)

CPU seconds of all processes, the lower of two runs: another program on the machine moves wall time far more. `--keep` adds an
entry to history.json. Exit code 1 where a figure is a fifth above the last entry of the same machine and versions, or a fifth
above the lowest there ever was, to which many small steps lead.
"""

import datetime
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ane_sweep.bridge import disk
from ane_sweep.machine import host
from tests.bench import Row, _kept, ane_sweep, matrix, timed

FILE = Path(__file__).parent / "history.json"
A_FIFTH = 1.2
Figures = dict[str, dict[str, float]]  # {"convert gpt2 original": {"cpu_s", "wall_s"}}
_taken: dict[str, Any] = {}  # the entry of this run, which --keep adds


def run() -> list[Row]:
    """One row a figure, against history.json."""
    _taken.update(entry(measured()))
    return compared(_taken, entries())


def keep(rows: Sequence[Row]) -> Path:
    """Add this run's entry."""
    disk.write_json(FILE, [*entries(), _taken])
    return FILE


def slower(rows: Sequence[Row]) -> bool:
    return any(row.bar.startswith("slower") for row in rows)


def entries() -> list[dict[str, Any]]:
    """What was kept, oldest first. Raises ValueError for a file of another form."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    if not isinstance(found, list):
        raise ValueError(f"{FILE}: expected a list of entries")
    for one in found:
        if not {"date", "commit", "machine", "versions", "figures"} <= one.keys():
            raise ValueError(f"{FILE}: an entry lacks a field: {sorted(one)}")
    return found


def entry(figures: Figures) -> dict[str, Any]:
    """Figures with what they depend on."""
    toolchain = host.toolchain()
    return {
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "machine": _kept._host(),
        "versions": {tool: toolchain[tool] for tool in _kept._VERSIONS if tool in toolchain},
        "figures": figures,
    }


def _commit() -> str:
    """Of the checkout that runs, `+` where it holds more; "" where there is none."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "+" if git("status", "--porcelain", "--untracked-files=no") else ""
        )
    except OSError:
        return ""


def measured() -> Figures:
    """Each with a fresh cache."""
    found = {f"convert gpt2 {variant}": _least(partial(_convert, variant)) for variant in ("original", "split_einsum")}
    return {**found, "24 cells of tiny-gpt2": _least(partial(ane_sweep, [*matrix.MATRIX, "gate.wait_s=0"]))}


def _convert(variant: str, folder: Path) -> None:
    timed([sys.executable, "-P", "-m", "tests.bench.conversions", "gpt2", variant, str(folder)])


def _least(work: Callable[[Path], Any], runs: int = 2) -> dict[str, float]:
    """The lower of some runs, for CPU and wall time each."""
    taken = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            cpu, wall = _children_s(), time.perf_counter()
            work(Path(folder))
            taken.append((_children_s() - cpu, time.perf_counter() - wall))
    cpus, walls = zip(*taken)
    return {"cpu_s": round(min(cpus), 2), "wall_s": round(min(walls), 2)}


def _children_s() -> float:
    """CPU seconds of all processes that this one has waited for, and those of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compared(now: dict[str, Any], before: Sequence[dict[str, Any]]) -> list[Row]:
    """A row a figure: this run beside the last of the same machine and versions, their ratio, and whether it is slower."""
    same = [one for one in before if all(one[key] == now[key] for key in ("machine", "versions"))]
    rows = []
    for name, figure in now["figures"].items():
        known = [(one["figures"][name], one) for one in same if name in one["figures"]]
        ours = f"{figure['cpu_s']:.1f} s of CPU ({figure['wall_s']:.1f} s of wall)"
        if not known:
            rows.append(Row(name, ours, bar="nothing kept of this machine with these versions"))
            continue
        last, where = known[-1]
        theirs = f"{last['cpu_s']:.1f} s ({where['date']}, {where['commit'] or 'no commit'})"
        rows.append(Row(name, ours, theirs, f"{figure['cpu_s'] / last['cpu_s']:.2f}", _verdict(figure, known)))
    return rows


def _verdict(figure: dict[str, float], known: list[tuple[dict[str, float], dict[str, Any]]]) -> str:
    last, _ = known[-1]
    best, where = min(known, key=lambda one: one[0]["cpu_s"])
    if figure["cpu_s"] >= A_FIFTH * last["cpu_s"]:
        return "slower than the last by a fifth or more"
    if figure["cpu_s"] >= A_FIFTH * best["cpu_s"]:
        return (
            f"slower by a fifth or more than {best['cpu_s']:.1f} s ({where['date']}, {where['commit'] or 'no commit'})"
        )
    return "within a fifth"
