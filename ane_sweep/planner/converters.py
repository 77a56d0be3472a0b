"""Other versions of coremltools, which convert in place of the installed one (axis `converter`)."""

import platform

from ane_sweep.bridge.cell import INSTALLED, Cell
from ane_sweep.machine import host


def describe_install(cell: Cell) -> dict[str, object] | None:
    """Return the params of stage install for a cell's converter, or None if it is the installed one."""
    version = str(cell.converter)
    if version in (INSTALLED, host.version_of("coremltools")):
        return None
    return {"package": f"coremltools=={version}", "python": ".".join(platform.python_version_tuple()[:2])}
