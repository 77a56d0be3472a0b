"""The facts that macOS' own tools report about an Apple machine: its Neural Engine, Xcode, and whether this Python is translated.

Parsing is apart from asking, as the outputs are known from others (sources in the tests) and not from a Mac of ours.
Everything is asked through tools.py, so the stand-in's script answers in place of the tools. Standard library only.
"""

import platform
import re
import sys
from functools import lru_cache

from ane_sweep.machine import stand_in, tools

_XCODE_S = 20.0
# The device tree's node with "vm-size" is called dart-ane, on some chips with the engine's number.
_DART = ("dart-ane", "dart-ane0")


def no_silicon() -> str | None:
    """Return why this host has no GPU of Apple's, or None if it has one."""
    return None if sys.platform == "darwin" and platform.machine() == "arm64" else "needs a Mac with Apple silicon"


def no_coreml() -> str | None:
    """Return why Core ML cannot run on this host, or None if it can."""
    if not is_mac():
        return "needs macOS"
    if translated():
        return (
            "is refused under Rosetta: this Python is x86-64 code on an Apple chip, so no Neural Engine and no true time; "
            "use an arm64 Python (`python3 -c 'import platform; print(platform.machine())'` tells)"
        )
    return None


def is_mac() -> bool:
    """Return True on a Mac, or under its stand-in."""
    return sys.platform == "darwin" or stand_in.active() is not None


def facts() -> dict[str, object]:
    """{ane: {cores, architecture, vm_size_bytes}, xcode, translated} of this Mac; each value None where unknown."""
    return {"ane": ane(), "xcode": xcode(), "translated": translated()}


def ane() -> dict[str, object] | None:
    """Return the Neural Engine as the I/O registry shows it, or None if it shows no engine."""
    listed = tools.text("/usr/sbin/ioreg", "-rlw0", "-d", "1", "-c", "H11ANEIn")
    if listed is None:
        return None
    sizes = (vm_size(tools.text("/usr/sbin/ioreg", "-rlw0", "-n", name) or "") for name in _DART)
    return {**engine(listed), "vm_size_bytes": next((size for size in sizes if size), None)}


def engine(listed: str) -> dict[str, object]:
    """Return cores and architecture ("h16g") from `ioreg -c H11ANEIn`; the cores of several engines are added up."""
    cores = re.findall(r'"ANEDevicePropertyNumANECores"\s*=\s*(\d+)', listed)
    kinds = re.findall(r'"ANEDevicePropertyTypeANEArchitectureTypeStr"\s*=\s*"([^"]+)"', listed)
    return {"cores": sum(map(int, cores)) or None, "architecture": kinds[0] if kinds else None}


def vm_size(listed: str) -> int | None:
    """Return the bytes of address space that the engine can map, from a device tree's `"vm-size" = <000000e0>`: little endian."""
    found = re.search(r'"vm-size"\s*=\s*<([0-9a-fA-F]+)>', listed)
    return int.from_bytes(bytes.fromhex(found[1]), "little") or None if found and len(found[1]) % 2 == 0 else None


def xcode() -> str | None:
    """`16.3 (16E140)`; None without Xcode (its command line tools alone have no version to say). Asked once a process."""
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
    """Asked of the hardware: `sysctl.proc_translated` is that of the sysctl process, not ours."""
    return tools.text("/usr/sbin/sysctl", "-n", "hw.optional.arm64") == "1"
