"""Read analytics.mil: the notes of Core ML's e5 compiler about each op, with the reason why an op is not on the ANE.

    ~/Library/Caches/<process>/com.apple.e5rt.e5bundlecache/<OS build>/<hash>/<hash>.bundle/<arch>.bundle/analytics.mil

The file is a program as text, in which every op carries `BackendSupport`, `EstimatedRuntime` (milliseconds, the planner's
belief), `SelectedBackend` and, if a backend refuses it, `ValidationMessage`. The format is not documented: this reads
what a study of an M4 (751K, macOS 27, MIT licence) published, and leaves out the rest.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

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


class OpNote(TypedDict):
    """The compiler's notes about one op. `backend` and `unit` are None if the file does not name them."""

    name: str
    op_type: str
    backend: str | None
    unit: str | None
    supported: list[str]
    estimated_ms: dict[str, float]
    why_not_ane: str | None


def find_files(home: Path) -> list[Path]:
    """Return every analytics.mil under a home folder, oldest first."""
    return sorted((path for path in home.glob(GLOB) if path.is_file()), key=lambda path: path.stat().st_mtime_ns)


def read(path: Path) -> list[OpNote]:
    """Return the notes in a file; an empty list if it cannot be read or is unreasonably large."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return []
        with open(path, encoding="utf-8", errors="replace") as file:
            return parse(file)
    except OSError:
        return []


def parse(lines: Iterable[str]) -> list[OpNote]:
    """Return one note for each op, in file order; other lines are skipped."""
    rows: list[OpNote] = []
    for line in lines:
        match = _OP.match(line)
        start = line.find("[BackendSupport")
        if not match or start < 0 or match[2].startswith("const"):
            continue
        notes = line[start:]
        backend = _find_group(r'SelectedBackend = [^(\n]*\("(\w+)"\)', notes)
        outputs = _OUTPUT.findall(match[1])
        supported = re.findall(r'"(\w+)"', _find_group(r"BackendSupport = [^(\n]*\(\[([^\]]*)\]\)", notes) or "")
        messages = dict(_TEXT_PAIR.findall(_find_dictionary(notes, "ValidationMessage")))
        estimates = _PAIR.findall(_find_dictionary(notes, "EstimatedRuntime"))
        rows.append(
            {
                "name": outputs[0].removesuffix(_INTERNAL) if outputs else "",
                "op_type": match[2],
                "backend": backend,
                "unit": UNITS.get(backend or ""),
                "supported": [name for name in supported if name != "unsupported"],
                # numbers are decimal or hexadecimal, as MIL text has both
                "estimated_ms": {name: (float.fromhex if "0x" in text else float)(text) for name, text in estimates},
                "why_not_ane": messages["ane"].replace('\\"', '"') if "ane" in messages else None,
            }
        )
    return rows


def _find_group(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match[1] if match else None


def _find_dictionary(notes: str, key: str) -> str:
    """Return the text between the braces of `key = dict<...>({...})`."""
    return _find_group(rf"{key} = [^(\n]*\((\{{.*?\}}\}})\)", notes) or ""
