"""Read net.plist: the list of layers from which a program was compiled, on systems that pass one (macOS 11 to 15 and on).

Networks   names of networks, each a dictionary of that name
a network  Inputs, Outputs, Units (names, in order), Weights (files), and a dictionary under each of these names
"""

import plistlib
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.parsers.expat import ExpatError

from ane_sweep.errors import PackageError
from ane_sweep.hwx.container import read_content

MAX_BYTES = 64 << 20
_SIZES = ("BatchSize", "InputChannels", "InputHeight", "InputWidth")
_BROKEN = (
    plistlib.InvalidFileException, ExpatError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip


@dataclass(frozen=True)
class Unit:
    name: str
    type: str
    inputs: list[str]
    output_channels: int | None
    output_type: str | None
    params: dict[str, object]


@dataclass(frozen=True)
class Network:
    name: str
    inputs: dict[str, dict[str, object]]
    outputs: dict[str, dict[str, object]]
    weights: list[str]
    units: list[Unit]


@dataclass(frozen=True)
class NetPlist:
    path: Path
    version: str | None
    networks: list[Network]

    def to_dict(self) -> dict[str, object]:
        return {**asdict(self), "path": str(self.path)}


def read(path: Path) -> NetPlist:
    """Read the net.plist at `path`. Raises PackageError if it is no property list, or names no network."""
    content = read_content(path, MAX_BYTES)
    try:
        found = plistlib.loads(content)
    except _BROKEN as error:
        raise PackageError(f"{path}: not a property list: {type(error).__name__} {error}".rstrip()) from None
    if not isinstance(found, dict) or not _as_names(found.get("Networks")):
        raise PackageError(f"{path}: a property list without Networks: not what the Neural Engine's compiler takes")
    networks = [_read_network(name, _as_dict(found.get(name))) for name in _as_names(found["Networks"])]
    return NetPlist(path, str(found["Version"]) if "Version" in found else None, networks)


def _read_network(name: str, found: dict[str, object]) -> Network:
    def described(key: str) -> dict[str, dict[str, object]]:
        return {item: _to_json_dict(found.get(item)) for item in _as_names(found.get(key))}

    units = [_read_unit(item, _as_dict(found.get(item))) for item in _as_names(found.get("Units"))]
    return Network(name, described("Inputs"), described("Outputs"), _as_names(found.get("Weights")), units)


def _read_unit(name: str, found: dict[str, object]) -> Unit:
    below = found.get("Bottom")
    inputs = [str(below)] if isinstance(below, str) else _as_names(below)
    channels = found.get("OutputChannels")
    params = _to_json_dict(found.get("Params"))
    return Unit(
        name, str(found.get("Type", "?")), inputs, channels if isinstance(channels, int) else None,
        str(found["OutputType"]) if "OutputType" in found else None, params,
    )  # fmt: skip


def format_text(found: NetPlist) -> str:
    lines = [f"{found.path}: net.plist, version {found.version or '?'}"]
    for network in found.networks:
        types = Counter(unit.type for unit in network.units)
        kinds = ", ".join(f"{count} {kind}" for kind, count in types.most_common())
        lines.append(f"  network {network.name}: {len(network.units)} units ({kinds or 'none'})")
        for name, item in network.inputs.items():
            shape = "x".join(str(item.get(size, "?" if size != "BatchSize" else 1)) for size in _SIZES)
            lines.append(f"    input   {name} {shape} {item.get('InputType', '')}".rstrip())
        for unit in network.units:
            kernel = "x".join(str(unit.params[key]) for key in ("KernelHeight", "KernelWidth") if key in unit.params)
            what = [
                unit.type,
                *([f"kernel {kernel}"] if kernel else []),
                *([f"{unit.output_channels} channels"] if unit.output_channels else []),
            ]
            lines.append(f"    unit    {unit.name} = {', '.join(what)} of {', '.join(unit.inputs) or '?'}")
        lines += [f"    output  {name} = {item.get('Bottom', '?')}" for name, item in network.outputs.items()]
        lines += [f"    weights {name}" for name in network.weights]
    return "\n".join(lines)


def _as_dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _as_names(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _to_json_dict(value: object) -> dict[str, object]:
    return {str(key): _to_json(item, 1) for key, item in _as_dict(value).items()}


def _to_json(value: object, depth: int = 0) -> object:
    """Convert a value to JSON: bytes and dates become text, and excessively deep nesting is cut off."""
    if depth > 16:
        return "..."
    if isinstance(value, dict):
        return {str(key): _to_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_json(item, depth + 1) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
