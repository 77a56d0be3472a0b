"""`ane-sweep plan -m model=gpt2 chunks=1,2,4`: what would run, what is shared, what it costs"""

from ane_sweep.folders import outputs_folder
from ane_sweep.store.cache import open_store
from ane_sweep.sweep import memory, plan_for
from ane_sweep.terminal import BAD_CONFIGURATION, OK
from ane_sweep.verbs._matrix import requested


def plan(args: list[str]) -> int:
    """Show what would run, and what it would cost; runs nothing."""
    from ane_sweep.planner import overview
    from ane_sweep.store import files

    request = requested(args, "plan")
    if request is None:
        return OK
    out = outputs_folder(request.settings["out"])
    with open_store(out) as store:
        made = plan_for(request, store, out)
        print(overview.describe(made, store.has, files.free_bytes(out), memory(request.settings)))
    return OK if made.chains else BAD_CONFIGURATION
