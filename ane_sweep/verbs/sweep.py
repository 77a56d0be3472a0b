"""`ane-sweep [-m] KEY=VALUE...`: run a matrix"""

from ane_sweep.folders import outputs_folder
from ane_sweep.store.cache import open_store
from ane_sweep.sweep import plan_for, run_plan
from ane_sweep.terminal import OK
from ane_sweep.verbs._matrix import requested


def sweep(args: list[str]) -> int:
    """Run the matrix."""
    request = requested(args, "sweep")
    if request is None:
        return OK
    out = outputs_folder(request.settings["out"])
    if request.settings["nightly"]["enabled"]:
        from ane_sweep.nightly import night

        return night.night(request, out, args)
    with open_store(out) as store:
        store.sweep_tmp()
        plan = plan_for(request, store, out)
        return run_plan(plan, request.settings, store, out, args)
