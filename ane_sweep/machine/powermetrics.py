"""Power per engine from `powermetrics -f plist`, which needs root: it is run through `sudo -n`, which never asks for a
password.

A stream is one plist after the other, with NUL bytes between. Each holds `elapsed_ns` and, under `processor`, energies
in mJ over that time (`cpu_energy`, `gpu_energy`, `ane_energy`) and, from macOS 13 on, mean powers in mW (`cpu_power`
...); some builds carry the GPU's energy under `gpu` only (fields as read by asitop and its forks, e.g. tlkh/asitop
parsers.py). Apple calls the figures estimates that do not compare between devices (powermetrics(1)).
"""

import plistlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from xml.parsers.expat import ExpatError

ENGINES = ("cpu", "gpu", "ane")
TOOL = "powermetrics"
INTERVAL_MS = 100
_END = b"</plist>"
SAMPLERS = "cpu_power,gpu_power,ane_power,thermal"
ALLOW = "%admin ALL=(root) NOPASSWD: /usr/bin/powermetrics"  # the line for /etc/sudoers.d that lets sudo -n run it


@dataclass(frozen=True)
class Sample:
    """Mean power of each engine in mW over `seconds`; None if this powermetrics lacks the channel."""

    seconds: float
    milliwatts: dict[str, float | None]
    thermal_pressure: str | None = None


@dataclass(frozen=True)
class Power:
    """The power of one engine under load compared with idle. `milliwatts`: mean excess over idle; `median`, `idle_max`: raw."""

    milliwatts: float
    median: float
    idle_max: float
    samples: int


def command(count: int, interval_ms: int = INTERVAL_MS) -> list[str]:
    """Return the command for `count` samples as plists on stdout. -n: sudo fails at once if it would need a password."""
    options = ["--samplers", SAMPLERS, "--sample-rate", str(interval_ms), "--sample-count", str(count)]
    return ["sudo", "-n", TOOL, *options, "--format", "plist"]


def parse(stream: bytes) -> list[Sample]:
    """Parse all complete samples of a stream; a truncated last plist is left out. Raises ValueError if none can be read."""
    blocks = [block.lstrip(b"\0\r\n ") + _END for block in stream.split(_END)[:-1]]
    samples = [sample for block in blocks if (sample := _sample(block))]
    if not samples:
        raise ValueError(f"powermetrics gave no readable sample in {len(stream)} bytes")
    return samples


def _sample(block: bytes) -> Sample | None:
    try:
        plist = plistlib.loads(block)
        seconds = plist["elapsed_ns"] / 1e9
    except (plistlib.InvalidFileException, ExpatError, ValueError, KeyError, TypeError):
        return None
    if seconds <= 0:
        return None
    milliwatts: dict[str, float | None] = dict.fromkeys(ENGINES)
    for engine in ENGINES:
        for place in (plist.get("gpu") or {}, plist.get("processor") or {}):  # the processor's figures win
            if (power := place.get(f"{engine}_power")) is not None:
                milliwatts[engine] = float(power)
            if (energy := place.get(f"{engine}_energy")) is not None:
                milliwatts[engine] = float(energy) / seconds
    return Sample(seconds, milliwatts, plist.get("thermal_pressure"))


def unreadable(engine: str, idle: Sequence[Sample], loaded: Sequence[Sample]) -> str | None:
    """Return why an engine's channel cannot be used, or None if it can.

    0 throughout means unavailable, not idle: on M5 with macOS 27 the channels read 0 during sustained inference
    (metaspartan/mactop#72), on some M2 Pro the channel is missing (kennss/SiliconScope#11).
    """
    values = [sample.milliwatts[engine] for sample in (*idle, *loaded)]
    if all(value is None for value in values):
        return f"powermetrics has no {engine} channel here"
    if not any(values):
        return f"the {engine} channel read 0 throughout, which some chips report under load too: it says neither yes nor no"
    return None


def excess(engine: str, idle: Sequence[Sample], loaded: Sequence[Sample]) -> Power:
    """Return the mean power under load minus that at idle, weighted by time; never below 0. Raises ValueError without samples."""
    return Power(
        milliwatts=max(0.0, _mean(engine, loaded) - _mean(engine, idle)),
        median=statistics.median(sample.milliwatts[engine] or 0.0 for sample in loaded),
        idle_max=max(sample.milliwatts[engine] or 0.0 for sample in idle),
        samples=len(loaded),
    )


def _mean(engine: str, samples: Sequence[Sample]) -> float:
    seconds = sum(sample.seconds for sample in samples)
    if not seconds:
        raise ValueError("no samples of power")
    return sum((sample.milliwatts[engine] or 0.0) * sample.seconds for sample in samples) / seconds


def refusal(returncode: int | None, stderr: str) -> str:
    """Return one sentence for a run without result, with a remedy."""
    said = stderr.strip().splitlines()[-1] if stderr.strip() else "no message"
    if "password is required" in stderr or "a terminal is required" in stderr:
        return (
            f"powermetrics needs root and sudo would have to ask for a password; to allow it: sudo visudo -f "
            f"/etc/sudoers.d/powermetrics, with the line `{ALLOW}`"
        )
    if "may not run sudo" in stderr or "not in the sudoers file" in stderr or "not allowed to execute" in stderr:
        return f"powermetrics needs root and this user may not use sudo for it; an administrator can add `{ALLOW}`"
    if "command not found" in stderr or "No such file" in stderr:
        return "powermetrics is not installed; it is part of macOS"
    return f"powermetrics ended with {returncode}: {said}"
