"""The options that come with ane-sweep, by group."""

from ane_sweep.planner import options
from ane_sweep.planner.paths import conf_dir


def all_shipped(group: str) -> dict[str, options.Option]:
    """All options of a group that come with ane-sweep, by name."""
    return {name: options.shipped(group, name) for name in options.names([conf_dir()], group)}
