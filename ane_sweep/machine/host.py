"""The facts of this machine that affect figures. Serial numbers, host names and users are not read."""

import contextlib
import copy
import hashlib
import json
import os
import platform
import re
import sys
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from ane_sweep import __version__
from ane_sweep.machine import apple, stand_in, tools

TOOLS = ("torch", "coremltools", "transformers", "numpy")
_GIT_S = 3.0  # a sweep does not wait for a large repository on a slow disk
_STABLE = ("system", "machine", "chip", "cores", "memory_bytes", "os_version", "os_build")


def fingerprint() -> dict[str, Any]:
    """Return {system, machine, chip, cores, memory_bytes, os_version, os_build, python, power, low_power, thermal}.

    Unknown values are null. `cores` is {"physical", "logical", "usable"} (by the process's affinity; on Apple chips
    also "performance" and "efficiency"); `power` is "ac" or "battery"; `thermal` is {"kind", "value"}, in each system's
    own terms, and may change from minute to minute, like `power`. On a Mac it also contains apple.facts.
    """
    found = {**_still(), "power": power(), "low_power": low_power(), "thermal": thermal()}
    found |= apple.facts() if apple.is_mac() else {}
    script = stand_in.active()
    return found if script is None else {**found, **script.host, "stand_in": script.label()}


def chip() -> str | None:
    """Return the processor's own name ("Apple M4 Pro"), or the stand-in's; None if the system does not report it."""
    script = stand_in.active()
    name: str | None = (script.host if script else {}).get("chip", _still()["chip"])
    return name


def chip_name(brand: str | None) -> str:
    """Convert sysctl's name of a chip, `Apple M4 Pro`, to the chip table's `m4_pro`."""
    return (brand or "unknown").removeprefix("Apple ").strip().lower().replace(" ", "_")


def digest() -> str:
    """Return the sha256 over the facts that make figures comparable: chip, cores, memory (to the GiB), OS. Never power or temperature."""
    still = {name: value for name, value in _still().items() if name in _STABLE}
    still["memory_bytes"] = round((still["memory_bytes"] or 0) / 2**30)
    if script := stand_in.active():
        still |= {"stand_in": script.digest}
    return hashlib.sha256(json.dumps(still, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=1)
def toolchain() -> dict[str, str | None]:
    """Return the versions of torch, coremltools, transformers, numpy, ane_sweep and python, without importing any of them."""
    return {**{name: version_of(name) for name in TOOLS}, "ane_sweep": __version__, "python": platform.python_version()}


def version_of(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@lru_cache(maxsize=1)
def _read_still() -> dict[str, Any]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count()
    cores = {"physical": psutil.cpu_count(logical=False), "logical": psutil.cpu_count(), "usable": usable}
    version: str | None = None
    if sys.platform == "darwin":
        chip = _sysctl("machdep.cpu.brand_string")
        for name, level in (("performance", 0), ("efficiency", 1)):
            cores[name] = _number(_sysctl(f"hw.perflevel{level}.physicalcpu"))
        version, build = (tools.text("/usr/bin/sw_vers", f"-{what}") for what in ("productVersion", "buildVersion"))
    else:
        model = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", _read("/proc/cpuinfo") or "", re.MULTILINE)
        chip = model[1].strip() if model else platform.processor() or None
        with contextlib.suppress(OSError):
            version = platform.freedesktop_os_release().get("PRETTY_NAME")
        build = platform.release()
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "chip": chip,
        "cores": cores,
        "memory_bytes": psutil.virtual_memory().total,
        "os_version": version,
        "os_build": build,
        "python": platform.python_version(),
    }


def _still() -> dict[str, Any]:
    return copy.deepcopy(_read_still())


def _sysctl(name: str) -> str | None:
    return tools.text("/usr/sbin/sysctl", "-n", name)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def power() -> str | None:
    """Return `ac`, `battery`, or None if the platform does not report it."""
    if sys.platform == "darwin":
        said = tools.text("/usr/bin/pmset", "-g", "batt") or ""
        return "ac" if "AC Power" in said else "battery" if "Battery Power" in said else None
    try:
        battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    except (OSError, ValueError, AttributeError):
        return None
    if battery is None or battery.power_plugged is None:
        return None
    return "ac" if battery.power_plugged else "battery"


def thermal() -> dict[str, str | float] | None:
    """Return on macOS the CPU speed limit in percent, on Linux the hottest zone in degrees Celsius."""
    if sys.platform == "darwin":
        found = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", tools.text("/usr/bin/pmset", "-g", "therm") or "")
        return {"kind": "cpu_speed_limit_percent", "value": int(found[1])} if found else None
    zones = [_number(_read(path)) for path in Path("/sys/class/thermal").glob("thermal_zone*/temp")]
    degrees = [zone / 1000 for zone in zones if zone]
    return {"kind": "hottest_zone_celsius", "value": max(degrees)} if degrees else None


def low_power() -> bool | None:
    """Return True if the system saves power at the cost of speed: macOS' Low Power Mode, Linux' platform profile."""
    if sys.platform == "darwin":
        found = re.search(r"lowpowermode\s+(\d)", tools.text("/usr/bin/pmset", "-g") or "")
        return found[1] == "1" if found else None
    profile = _read("/sys/firmware/acpi/platform_profile")
    return None if profile is None else profile == "low-power"


def checkout(folder: Path) -> dict[str, object] | None:
    """Return {"commit": hash, "dirty": True if tracked files differ from it} of the git checkout that a folder lies in.

    None where there is no git, checkout or commit.
    """
    text = tools.text(
        "git", "--no-optional-locks", "-C", str(folder), "status", "--porcelain=v2", "--branch", "--untracked-files=no",
        timeout_s=_GIT_S,
    )  # fmt: skip
    lines = (text or "").splitlines()
    commit = next((line.split()[2] for line in lines if line.startswith("# branch.oid ")), "(initial)")
    if commit == "(initial)":
        return None
    return {"commit": commit, "dirty": any(not line.startswith("#") for line in lines)}
