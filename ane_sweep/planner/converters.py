"""Converters: another version of coremltools in place of the installed one (axis `converter`), and the packages of a program kind."""

import platform
from functools import cache

from ane_sweep.bridge.cell import INSTALLED, Cell
from ane_sweep.bridge.programs import PROGRAMS
from ane_sweep.machine import host


def describe_install(cell: Cell) -> dict[str, object] | None:
    """Return the params of stage install for a cell's converter, or None if it is the installed one."""
    version = str(cell.converter)
    if version in (INSTALLED, host.toolchain()["coremltools"]):
        return None
    return {"package": f"coremltools=={version}", "python": ".".join(platform.python_version_tuple()[:2])}


@cache
def list_tools(program: str) -> dict[str, str | None]:
    """Return the installed versions of a program kind's own distributions."""
    return {name: host.version_of(name) for name in PROGRAMS[program].distributions}
