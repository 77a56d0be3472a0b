"""`ane-sweep [-m] KEY=VALUE...`: run a matrix"""

import contextlib
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ane_sweep.folders import outputs_folder
from ane_sweep.terminal import OK, tell
from ane_sweep.verbs._matrix import requested

if TYPE_CHECKING:
    from ane_sweep.planner.matrix import Request
    from ane_sweep.store import runs


def sweep(args: list[str]) -> int:
    """Run the matrix."""
    if (request := requested(args, "sweep")) is None:
        return OK
    out = outputs_folder(request.settings["out"])
    if "--json" not in args:
        return _swept(request, out, args)[0]
    with contextlib.redirect_stdout(sys.stderr):  # what people are told meanwhile
        code, run = _swept(request, out, [arg for arg in args if arg != "--json"])
    from ane_sweep.bridge.record import read_records

    records = read_records(run.folder)
    statuses = Counter(one.status.value for one in records)
    shown = [one.to_dict() for one in records]
    tell(sweep=run.stamp, folder=str(run.folder), code=code, statuses=statuses, records=shown)
    return code


def _swept(request: "Request", out: Path, args: list[str]) -> "tuple[int, runs.Run]":
    """(exit code, the run). A night says no run: it is the last one, as it holds the lock of nights."""
    from ane_sweep.planner.settle import plan_for
    from ane_sweep.store import runs
    from ane_sweep.store.cache import open_store
    from ane_sweep.sweep import perform, publish

    if request.settings["nightly"]["enabled"]:
        from ane_sweep.nightly import night

        code = night.night(request, out, args)
        return code, runs.find_run(out, None)
    with open_store(out) as store:
        store.sweep_tmp()
        plan = plan_for(request, store, out)
        run, records, fresh = perform(plan, request.settings, store, out, args)
        return publish(run, records, fresh, request.settings, store), run
