"""analytics.mil: what the compiler of a program for Core ML's e5 runtime noted about each op, and why not the ANE.

    ~/Library/Caches/<process>/com.apple.e5rt.e5bundlecache/<OS build>/<hash>/<hash>.bundle/<arch>.bundle/analytics.mil

It is a program as text, in which every op carries `BackendSupport`, `EstimatedRuntime` (milliseconds, the planner's
belief), `SelectedBackend` and, where a backend refuses it, `ValidationMessage`. Not a documented format: this reads what
a study of an M4 (751K, macOS 27, MIT licence) published, and leaves out what it does not know.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# backend -> unit; names from coremltools' own list of intended backends and from the study's files
UNITS = {
    "ane": "ane", "mps_graph": "gpu", "bnns": "cpu", "classic_cpu": "cpu", "e5_minimal_cpu": "cpu",
}  # fmt: skip
GLOB = "Library/Caches/*/com.apple.e5rt.e5bundlecache/*/*/*.bundle/*.bundle/analytics.mil"
LARGEST_BYTES = 256 << 20
_INTERNAL = "_4D454D5F4F5054"  # what the compiler appends to a name of its own copy of a value ("MEM_OPT" in hex)
_OP = re.compile(r"^\s*(\S.*?) = (\w+)(?:<\w+>)?\(")
_OUTPUT = re.compile(r"(?:>|^\s*\w+) (\w+)(?=,|$)")
_PAIR = re.compile(r'\{"(\w+)", (-?[\w.+-]+)\}')
_TEXT_PAIR = re.compile(r'\{"(\w+)", "((?:[^"\\]|\\.)*)"\}')


def find_files(home: Path) -> list[Path]:
    """Every analytics.mil under a home folder, oldest first."""
    return sorted((path for path in home.glob(GLOB) if path.is_file()), key=lambda path: path.stat().st_mtime_ns)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; empty when it cannot be read or is unreasonably large."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return []
        with open(path, encoding="utf-8", errors="replace") as file:
            return parse(file)
    except OSError:
        return []


def parse(lines: Iterable[str]) -> list[dict[str, Any]]:
    """One row an op, in file order: name, op_type, backend, unit, supported (backends), estimated_ms, why_not_ane."""
    rows = []
    for line in lines:
        found = _OP.match(line)
        start = line.find("[BackendSupport")
        if not found or start < 0 or found[2].startswith("const"):
            continue
        notes = line[start:]
        backend = _one(r'SelectedBackend = [^(\n]*\("(\w+)"\)', notes)
        outputs = _OUTPUT.findall(found[1])
        rows.append(
            {
                "name": outputs[0].removesuffix(_INTERNAL) if outputs else "",
                "op_type": found[2],
                "backend": backend,
                "unit": UNITS.get(backend or ""),
                "supported": [name for name in _listed(notes) if name != "unsupported"],
                "estimated_ms": {name: _number(text) for name, text in _PAIR.findall(_dict(notes, "EstimatedRuntime"))},
                "why_not_ane": _messages(notes).get("ane"),
            }
        )
    return rows


def _one(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text)
    return found[1] if found else None


def _listed(notes: str) -> list[str]:
    return re.findall(r'"(\w+)"', _one(r"BackendSupport = [^(\n]*\(\[([^\]]*)\]\)", notes) or "")


def _dict(notes: str, key: str) -> str:
    """The text between the braces of `key = dict<...>({...})`."""
    return _one(rf"{key} = [^(\n]*\((\{{.*?\}}\}})\)", notes) or ""


def _messages(notes: str) -> dict[str, str]:
    return {name: text.replace('\\"', '"') for name, text in _TEXT_PAIR.findall(_dict(notes, "ValidationMessage"))}


def _number(text: str) -> float:
    """Decimal or hexadecimal, as MIL text has both."""
    return float.fromhex(text) if "0x" in text else float(text)
