"""`ane-sweep [-m] KEY=VALUE...`: run a matrix"""

import contextlib
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ane_sweep.folders import outputs_folder
from ane_sweep.terminal import AGAIN, OK, tell
from ane_sweep.verbs._pages import read_request

if TYPE_CHECKING:
    from ane_sweep.planner.matrix import Request

STOPPED = AGAIN


def sweep(args: list[str]) -> int:
    if (request := read_request(args, "sweep")) is None:
        return OK
    out = outputs_folder(request.settings.out)
    if "--json" not in args:
        return _swept(request, out, args)[0]
    with contextlib.redirect_stdout(sys.stderr):  # what people are told meanwhile
        code, folder = _swept(request, out, [arg for arg in args if arg != "--json"])
    from ane_sweep.bridge.record import read_records

    records = read_records(folder)
    statuses = Counter(one.status.value for one in records)
    shown = [one.to_dict() for one in records]
    tell(sweep=folder.name, folder=str(folder), code=code, statuses=statuses, records=shown)
    return code


def _swept(request: "Request", out: Path, args: list[str]) -> tuple[int, Path]:
    """Return (exit code, the run's folder). A night returns no run: it is the last run, as the nightly lock excludes others."""
    from ane_sweep import engine
    from ane_sweep.store import runs

    if request.settings.nightly.enabled:
        from ane_sweep.nightly import night

        return night.night(request, out, args), runs.find_run(out, None).folder
    folder, records = engine.sweep(request, out, args)
    return engine.exit_code(records), folder
