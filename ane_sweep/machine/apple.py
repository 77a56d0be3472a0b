"""The facts that macOS' own tools report about an Apple machine: its Neural Engine, Xcode, and whether Rosetta
translates this Python.

Parsing is separate from running the tools, as we know the outputs from others (sources in the tests), not from our own
Mac. All tools run through tools.py, so that a simulated Mac can answer in their place. Standard library only.
"""

import platform
import re
import sys
from functools import lru_cache

from ane_sweep.machine import stand_in, tools

NO_MAC = "needs macOS"
_XCODE_S = 20.0
# The device tree's node with "vm-size" is called dart-ane, on some chips with the engine's number.
_DART = ("dart-ane", "dart-ane0")


def no_silicon() -> str | None:
    """Return why this host has no Apple GPU, or None if it has one."""
    return None if sys.platform == "darwin" and platform.machine() == "arm64" else "needs a Mac with Apple silicon"


def no_coreml() -> str | None:
    """Return why Core ML cannot run on this host, or None if it can."""
    if not is_mac():
        return NO_MAC
    if translated():
        return (
            "is refused under Rosetta: this Python is x86-64 code on an Apple chip, so no Neural Engine and no true time; "
            "use an arm64 Python (`python3 -c 'import platform; print(platform.machine())'` tells)"
        )
    return None


def is_mac() -> bool:
    """Return True on a Mac, or with a simulated one."""
    return sys.platform == "darwin" or stand_in.active() is not None


def facts() -> dict[str, object]:
    """Return {ane: {cores, architecture, vm_size_bytes}, xcode, translated} of this Mac, with None for unknown values."""
    return {"ane": ane(), "xcode": xcode(), "translated": translated()}


def ane() -> dict[str, object] | None:
    """Return the facts of the Neural Engine from the I/O registry, or None if it lists no engine."""
    listed = tools.text("/usr/sbin/ioreg", "-rlw0", "-d", "1", "-c", "H11ANEIn")
    if listed is None:
        return None
    sizes = (vm_size(tools.text("/usr/sbin/ioreg", "-rlw0", "-n", name) or "") for name in _DART)
    return {**engine(listed), "vm_size_bytes": next((size for size in sizes if size), None)}


def engine(listed: str) -> dict[str, object]:
    """Return cores and architecture ("h16g") from `ioreg -c H11ANEIn`; the cores of several engines are added."""
    cores = re.findall(r'"ANEDevicePropertyNumANECores"\s*=\s*(\d+)', listed)
    kinds = re.findall(r'"ANEDevicePropertyTypeANEArchitectureTypeStr"\s*=\s*"([^"]+)"', listed)
    return {"cores": sum(map(int, cores)) or None, "architecture": kinds[0] if kinds else None}


def vm_size(listed: str) -> int | None:
    """Return the bytes of address space that the engine can map, from a device tree's `"vm-size" = <000000e0>`: little endian."""
    found = re.search(r'"vm-size"\s*=\s*<([0-9a-fA-F]+)>', listed)
    return int.from_bytes(bytes.fromhex(found[1]), "little") or None if found and len(found[1]) % 2 == 0 else None


def xcode() -> str | None:
    """Return Xcode's version as `16.3 (16E140)`, or None without Xcode (the command line tools alone report none). Cached per process."""
    script = stand_in.active()
    return _xcode(None if script is None else script.digest)


@lru_cache(maxsize=4)
def _xcode(script: str | None) -> str | None:
    said = tools.text("/usr/bin/xcodebuild", "-version", timeout_s=_XCODE_S) or ""
    found = re.search(r"^Xcode (\S+)\s+Build version (\S+)", said)
    return f"{found[1]} ({found[2]})" if found else None


def translated() -> bool:
    """Return True if this Python is x86-64 code that Rosetta translates on an Apple chip, so that its figures mean nothing."""
    script = stand_in.active()
    machine = platform.machine() if script is None else script.host.get("machine", "arm64")
    return machine == "x86_64" and _on_apple_silicon(None if script is None else script.digest)


@lru_cache(maxsize=4)
def _on_apple_silicon(script: str | None) -> bool:
    """Return True if the hardware is Apple silicon. (`sysctl.proc_translated` would describe the sysctl process, not this one.)"""
    return tools.text("/usr/sbin/sysctl", "-n", "hw.optional.arm64") == "1"
