"""iPhones and iPads on this Mac's USB ports, as `xcrun devicectl` lists them: for planning, without coremltools.

A device's identifiers (name, serial, UDID) are only used hashed.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache

from ane_sweep.machine import stand_in, tools

KINDS = ("iphone", "ipad")
_LIST_S = 20.0


@dataclass(frozen=True)
class Found:
    """A connected device. `identity` is a digest that distinguishes devices and reveals nothing else."""

    kind: str
    model: str | None
    os_version: str | None
    os_build: str | None
    identity: str

    def facts(self) -> dict[str, object]:
        """Return the device's facts for records."""
        return {"kind": self.kind, "model": self.model, "os_version": self.os_version, "os_build": self.os_build}


def connected() -> list[Found]:
    """Return the connected devices; empty without Xcode's devicectl. Cached per process, as a plan has many cells."""
    script = stand_in.active()
    return _connected(script.digest if script else None)


@lru_cache(maxsize=4)
def _connected(script: str | None) -> list[Found]:
    said = tools.ask(
        "xcrun", "devicectl", "list", "devices", "--quiet", "--json-output", "/dev/stdout", timeout_s=_LIST_S
    )
    return parse(said.stdout) if said is not None and said.ok else []


def parse(text: str) -> list[Found]:
    """Return the iPhones and iPads with a connected tunnel in devicectl's JSON, selected as in coremltools 9.0."""
    try:
        listed = json.loads(text[text.index("{") :])["result"]["devices"]
    except (ValueError, KeyError, TypeError):
        return []
    found = []
    for device in listed:
        hardware, properties = device.get("hardwareProperties", {}), device.get("deviceProperties", {})
        kind, state = hardware.get("deviceType", ""), device.get("connectionProperties", {}).get("tunnelState", "")
        if str(kind).lower() in KINDS and str(state).lower() == "connected":
            build = properties.get("osBuildUpdate")
            identity = hashlib.sha256(f"{hardware.get('udid')} {build}".encode()).hexdigest()[:16]
            model, version = hardware.get("productType"), properties.get("osVersionNumber")
            found.append(Found(str(kind).lower(), model, version, build, identity))
    return found


def refusal() -> str | None:
    """Return why device=usb is not available, with the next step; None if exactly one device is connected."""
    count = len(connected())
    if count == 1:
        return None
    if count:
        return f"device=usb: {count} devices are connected; unplug all but one"
    return (
        "device=usb: no iPhone or iPad is connected: plug one in, unlock it, trust this Mac, switch on Developer Mode "
        "(Settings, Privacy & Security); `xcrun devicectl list devices` shows what Xcode sees"
    )
