"""`ane-sweep [-m] KEY=VALUE...`: run a matrix"""

from ane_sweep.folders import outputs_folder
from ane_sweep.terminal import OK
from ane_sweep.verbs._matrix import requested


def sweep(args: list[str]) -> int:
    """Run the matrix."""
    if (request := requested(args, "sweep")) is None:
        return OK
    out = outputs_folder(request.settings["out"])
    if request.settings["nightly"]["enabled"]:
        from ane_sweep.nightly import night

        return night.night(request, out, args)
    from ane_sweep.planner.settle import plan_for
    from ane_sweep.store.cache import open_store
    from ane_sweep.sweep import run_plan

    with open_store(out) as store:
        store.sweep_tmp()
        plan = plan_for(request, store, out)
        return run_plan(plan, request.settings, store, out, args)
