"""Constants and process facts for planner and worker, around task.json (in) and result.json (out)."""

import os
import re
import resource
import sys
from pathlib import Path

import ane_sweep
from ane_sweep.errors import AneSweepError

MEMORY_VARIABLE = "ANE_SWEEP_MEMORY_BYTES"  # a task's limit, for the processes that its stage starts
PARENT_VARIABLE = "ANE_SWEEP_PARENT"  # the parent's pid: not in task.json, which may travel to another host
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS",
)  # fmt: skip
WAITING_VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # how libgomp's threads wait for work
INSTALLS = ("converter", "torch")  # roles of a conversion's inputs: packages that its process finds before all others
SITE = "site"  # of the artifact of stage install: the folder with the packages
STDERR = "stderr.txt"  # what a task printed there, in its folder
EXIT_NO_SPACE = 74  # sysexits' EX_IOERR: the worker could not even write its result, the disk is full


class Interrupted(AneSweepError):
    """Raised when a sweep stops: this task was killed or never started, and left no result."""


def python_environment() -> dict[str, str]:
    """Return the environment for a Python process of ours, to be started with -P: it finds ane_sweep, and imports no
    file of its working folder. (An empty entry of PYTHONPATH is that folder, a relative one is below it.)
    """
    env = dict(os.environ)
    paths = [os.path.abspath(path) for path in env.pop("PYTHONPATH", "").split(os.pathsep) if path]
    home = Path(ane_sweep.__file__).resolve().parents[1]
    if home.name not in ("site-packages", "dist-packages"):  # in front, those would shadow the standard library
        paths.insert(0, str(home))
    return env | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})


def python_path(*first: Path) -> str:
    """Return PYTHONPATH for a process of ours that finds the packages in `first` before all others."""
    return os.pathsep.join(filter(None, (*map(str, first), python_environment().get("PYTHONPATH", ""))))


def peak_bytes() -> int:
    """Return the peak resident memory of this process so far, in bytes.

    Linux: VmHWM, which starts afresh at exec. Not ru_maxrss: a child that was vforked from a big parent inherits the
    parent's figure there (a 9 MB child of a 500 MB parent reads 510 MB, measured).
    """
    if (high_water := status_fields().get("VmHWM")) is not None:
        return high_water
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def status_fields(pid: int | str = "self") -> dict[str, int]:
    """Return the kB fields of /proc/PID/status in bytes; an empty dict without that file."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {name: int(kb) * 1024 for name, kb in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
