"""What the verbs that take a matrix share: the request that the words make."""

from typing import TYPE_CHECKING

from ane_sweep import verbs
from ane_sweep.words import asks_help

if TYPE_CHECKING:
    from ane_sweep.planner.matrix import Request


def requested(args: list[str], verb: str) -> "Request | None":
    """The request that the words make; None where they only asked for help, or for what Hydra shows of itself."""
    from ane_sweep.planner import help

    if asks_help(args):
        print(help.text(args, verb, verbs.lines() if verb == "sweep" else None))
        return None
    from ane_sweep.planner import config

    return None if config.pass_to_hydra(args) else config.load(args)
