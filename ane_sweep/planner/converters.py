"""Converters: other versions of coremltools and torch in place of the installed ones (axes `converter` and `torch_version`), and
the packages of a program kind.
"""

import platform
from functools import cache

from ane_sweep.bridge.cell import INSTALLED, Cell
from ane_sweep.bridge.programs import PROGRAMS
from ane_sweep.machine import host


def describe_installs(cell: Cell) -> dict[str, dict[str, object]]:
    """Return the params of stage install by role, for each of a cell's converter and torch that is not the installed one."""
    python = ".".join(platform.python_version_tuple()[:2])
    wanted = {"converter": ("coremltools", cell.converter), "torch": ("torch", cell.torch_version)}
    return {
        role: {"package": f"{package}=={version}", "python": python}
        | ({"requirements": True} if role == "torch" else {})
        for role, (package, version) in wanted.items()
        if str(version) not in (INSTALLED, (host.toolchain()[package] or "").partition("+")[0])
    }


@cache
def list_tools(program: str) -> dict[str, str | None]:
    """Return the installed versions of a program kind's own distributions."""
    return {name: host.version_of(name) for name in PROGRAMS[program].distributions}
