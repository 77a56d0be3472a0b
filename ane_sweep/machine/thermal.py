"""The machine's temperature and thermal pressure, as far as macOS reports them without root.

Pressure level: the notification `com.apple.system.thermalpressurelevel`, read with notifyutil (0 nominal to 4
sleeping, OSThermalNotification.h). It is a hold-off state, not a temperature. Die temperatures are in the sensors
of the HID event system (usage page 0xff00, usage 5), a private interface that several monitors read (e.g.
vladkens/macmon): they are read in a separate process, which may die without harm.
"""

import ctypes
import json
import statistics
import sys
from collections import defaultdict

from ane_sweep.machine import tools

PRESSURE = ("nominal", "moderate", "heavy", "trapping", "sleeping")
NOTIFYUTIL = ["notifyutil", "-g", "com.apple.system.thermalpressurelevel"]
SENSORS = [sys.executable, "-P", "-m", "ane_sweep.machine.thermal"]
_PLAUSIBLE = (1.0, 130.0)  # degrees Celsius; unused sensors read 0 or far below
_TEMPERATURE = 15  # kIOHIDEventTypeTemperature; its value is the field 15 << 16
_UTF8 = 0x08000100  # kCFStringEncodingUTF8
_SINT32 = 3  # kCFNumberSInt32Type


def pressure() -> str:
    """Return the thermal pressure level as a word. Raises ValueError if notifyutil is missing or its output is unknown."""
    words = (tools.text(*NOTIFYUTIL) or "").split()
    if not words or not words[-1].isdigit() or int(words[-1]) >= len(PRESSURE):
        raise ValueError("notifyutil does not tell the thermal pressure level here")
    return PRESSURE[int(words[-1])]


def die_celsius() -> float:
    """Return the temperature of the hottest die sensor. Raises ValueError if the sensors cannot be read."""
    try:
        return hottest(json.loads(tools.text(*SENSORS) or "{}"))
    except (ValueError, AttributeError, TypeError):
        raise ValueError("no die temperature sensor could be read") from None


def hottest(sensors: dict[str, float]) -> float:
    """Return the highest plausible value of the die sensors ("PMU tdie3", "SOC MTR Temp Sensor1"), else of all.

    Raises ValueError without any.
    """
    real = {name: value for name, value in sensors.items() if _PLAUSIBLE[0] <= value <= _PLAUSIBLE[1]}
    die = {name: value for name, value in real.items() if "tdie" in name or "SOC" in name or "ANE" in name}
    return max((die or real).values())


def sensors() -> dict[str, float]:
    """Return {name: degrees Celsius (the median of sensors that share a name)}. Raises OSError off macOS."""
    cf = ctypes.CDLL("/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation")
    hid = ctypes.CDLL("/System/Library/Frameworks/IOKit.framework/IOKit")
    for function in (
        cf.CFStringCreateWithCString, cf.CFNumberCreate, cf.CFDictionaryCreate, cf.CFArrayGetValueAtIndex,
        hid.IOHIDEventSystemClientCreate, hid.IOHIDEventSystemClientCopyServices, hid.IOHIDServiceClientCopyProperty,
        hid.IOHIDServiceClientCopyEvent,
    ):  # fmt: skip
        function.restype = ctypes.c_void_p
    cf.CFArrayGetCount.restype = ctypes.c_long
    hid.IOHIDEventGetFloatValue.restype = ctypes.c_double
    client = ctypes.c_void_p(hid.IOHIDEventSystemClientCreate(None))
    wanted = {"PrimaryUsagePage": 0xFF00, "PrimaryUsage": 5}
    numbers = [ctypes.c_int32(value) for value in wanted.values()]
    pair = ctypes.c_void_p * len(wanted)
    keys = pair(*[_string(cf, name).value for name in wanted])
    boxed = pair(*[cf.CFNumberCreate(None, ctypes.c_long(_SINT32), ctypes.byref(number)) for number in numbers])
    types = [ctypes.byref(ctypes.c_byte.in_dll(cf, f"kCFTypeDictionary{kind}CallBacks")) for kind in ("Key", "Value")]
    matching = ctypes.c_void_p(cf.CFDictionaryCreate(None, keys, boxed, ctypes.c_long(len(wanted)), *types))
    hid.IOHIDEventSystemClientSetMatching(client, matching)
    services = ctypes.c_void_p(hid.IOHIDEventSystemClientCopyServices(client))
    found: dict[str, list[float]] = defaultdict(list)
    for index in range(cf.CFArrayGetCount(services) if services else 0):
        service = ctypes.c_void_p(cf.CFArrayGetValueAtIndex(services, ctypes.c_long(index)))
        name = ctypes.c_void_p(hid.IOHIDServiceClientCopyProperty(service, _string(cf, "Product")))
        event = ctypes.c_void_p(
            hid.IOHIDServiceClientCopyEvent(service, ctypes.c_int64(_TEMPERATURE), ctypes.c_int32(0), ctypes.c_int64(0))
        )
        if name and event:
            value = hid.IOHIDEventGetFloatValue(event, ctypes.c_int32(_TEMPERATURE << 16))
            text = ctypes.create_string_buffer(256)
            cf.CFStringGetCString(name, text, ctypes.c_long(256), _UTF8)
            found[text.value.decode("utf-8", "replace")].append(value)
    return {name: statistics.median(values) for name, values in found.items()}


def _string(cf: ctypes.CDLL, text: str) -> ctypes.c_void_p:
    return ctypes.c_void_p(cf.CFStringCreateWithCString(None, text.encode(), _UTF8))


if __name__ == "__main__":
    print(json.dumps(sensors()))
