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
    from ane_sweep import engine

    _, records = engine.sweep(request, out, args)
    return engine.exit_code(records)
