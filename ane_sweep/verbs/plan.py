"""`ane-sweep plan -m model=gpt2 chunks=1,2,4`: what would run, what is shared, what it costs"""

from ane_sweep.folders import outputs_folder
from ane_sweep.terminal import BAD_CONFIGURATION, OK, print_result
from ane_sweep.verbs._pages import read_request


def plan(args: list[str]) -> int:
    if (request := read_request(args, "plan")) is None:
        return OK
    from ane_sweep.planner import overview

    made, text, plain = overview.make_plan_view(request, outputs_folder(request.settings.out))
    print_result("--json" in args, text, **plain)
    return OK if made.chains else BAD_CONFIGURATION
