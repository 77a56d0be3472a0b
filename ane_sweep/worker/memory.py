"""Memory of this process: giving freed memory back to the system, and its footprint as macOS accounts it.

Resident size leaves out compressed pages and IOSurfaces; phys_footprint counts them: Activity Monitor shows it, and an app
on iOS is killed by it. One call, proc_pid_rusage(RUSAGE_INFO_V4), needs neither root nor another process; the fields
are those of struct rusage_info_v4 in XNU's bsd/sys/resource.h.
"""

import ctypes
import gc
import os
import sys
from dataclasses import dataclass

LIBRARY = "/usr/lib/libproc.dylib"
_V4 = 4
_BEFORE = (
    "user_time", "system_time", "pkg_idle_wkups", "interrupt_wkups", "pageins", "wired_size", "resident_size",
    "phys_footprint", "proc_start_abstime", "proc_exit_abstime", "child_user_time", "child_system_time",
    "child_pkg_idle_wkups", "child_interrupt_wkups", "child_pageins", "child_elapsed_abstime", "diskio_bytesread",
    "diskio_byteswritten", "cpu_time_qos_default", "cpu_time_qos_maintenance", "cpu_time_qos_background",
    "cpu_time_qos_utility", "cpu_time_qos_legacy", "cpu_time_qos_user_initiated", "cpu_time_qos_user_interactive",
    "billed_system_time", "serviced_system_time", "logical_writes", "lifetime_max_phys_footprint", "instructions",
    "cycles", "billed_energy", "serviced_energy", "interval_max_phys_footprint", "runnable_time",
)  # fmt: skip


class UsageV4(ctypes.Structure):
    """The kernel's struct rusage_info_v4."""

    _fields_ = [("uuid", ctypes.c_uint8 * 16), *((name, ctypes.c_uint64) for name in _BEFORE)]


@dataclass(frozen=True)
class Footprint:
    """Bytes of memory, now and at the peak."""

    now: int
    peak: int


def read_footprint(pid: int | None = None, library: ctypes.CDLL | None = None) -> Footprint:
    """Return the footprint of one of our processes. Raises OSError if there is no such call or it is refused."""
    libproc = library if library is not None else ctypes.CDLL(LIBRARY, use_errno=True)
    usage = UsageV4()
    if libproc.proc_pid_rusage(pid or os.getpid(), _V4, ctypes.byref(usage)) != 0:
        raise OSError(ctypes.get_errno(), "proc_pid_rusage was refused")
    return Footprint(usage.phys_footprint, usage.lifetime_max_phys_footprint)


def release_freed_memory() -> None:
    """Collect garbage (programs and traces are cyclic) and let the C library return freed memory to the system."""
    gc.collect()
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
