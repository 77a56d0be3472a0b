"""`ane-sweep plan -m model=gpt2 chunks=1,2,4`: what would run, what is shared, what it costs"""

from ane_sweep.folders import outputs_folder
from ane_sweep.terminal import BAD_CONFIGURATION, OK, tell
from ane_sweep.verbs._matrix import requested


def plan(args: list[str]) -> int:
    """Show what would run, and what it would cost; runs nothing."""
    if (request := requested(args, "plan")) is None:
        return OK
    from ane_sweep.machine import memory
    from ane_sweep.planner import overview
    from ane_sweep.planner.settle import plan_for
    from ane_sweep.store import files
    from ane_sweep.store.cache import open_store

    out = outputs_folder(request.settings["out"])
    with open_store(out) as store:
        made = plan_for(request, store, out)
        most = memory.budget_and_total(request.settings["memory_gib"])
        if "--json" in args:
            tell(**overview.as_plain(made, store.has))
        else:
            print(overview.describe(made, store.has, files.free_bytes(out), most))
    return OK if made.chains else BAD_CONFIGURATION
