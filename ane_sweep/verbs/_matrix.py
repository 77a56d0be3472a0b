"""The request that the words of a verb make, for all verbs that take a matrix."""

from typing import TYPE_CHECKING

from ane_sweep.terminal import asks_help
from ane_sweep.verbs import _pages

if TYPE_CHECKING:
    from ane_sweep.planner.matrix import Request


def requested(args: list[str], verb: str) -> "Request | None":
    """Return the request that the words make; None if they only ask for help, or for Hydra's own information."""
    if asks_help(args) and verb == "sweep":
        print(_pages.short())
        return None
    if asks_help(args):
        from ane_sweep.planner import help

        print(help.grammar(verb).format_help(), *_pages.everyday(), sep="\n")
        return None
    from ane_sweep.planner import config

    return None if config.pass_to_hydra(args) else config.load(args)
