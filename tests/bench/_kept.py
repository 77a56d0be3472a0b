"""What the benches said, kept: a file each, the newest entry last; FIGURES.md shows the newest of each.

`python -m tests.bench NAME --keep` adds an entry and writes the topic's table anew.
"""

import dataclasses
import datetime
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ane_sweep.bridge import disk
from ane_sweep.machine import host
from tests.bench import Row

FOLDER = Path(__file__).parent / "kept"
TOPIC = Path(__file__).with_name("FIGURES.md")
_TABLE = re.compile(r"^\| benchmark \|.*\n(?:\|.*\n)+", re.MULTILINE)
OP_COUNTS = Path(__file__).with_name("OP_COUNTS.md")
_GRAPHS = re.compile(r"^\| graph \|.*\n(?:\|.*\n)+", re.MULTILINE)
ELSEWHERE = {"packages": "PACKAGES.md", "opcounts": "OP_COUNTS.md"}  # benches whose rows stand in a topic of their own
_VERSIONS = ("python", "torch", "coremltools", "transformers")


def keep(name: str, rows: Sequence[Row]) -> Path:
    """Add what a benchmark said today on this host, and write the topic's table anew."""
    path = FOLDER / f"{name}.json"
    toolchain = host.toolchain()
    entry = {
        "date": datetime.date.today().isoformat(),
        "host": _host(),
        "versions": {tool: toolchain[tool] for tool in _VERSIONS if tool in toolchain},
        "rows": [{key: said for key, said in dataclasses.asdict(row).items() if said} for row in rows],
    }
    disk.write_json(path, [*entries(name), entry])
    TOPIC.write_text(_TABLE.sub(lambda _: table(), TOPIC.read_text(encoding="utf-8")), encoding="utf-8")
    if name == "opcounts":
        OP_COUNTS.write_text(
            _GRAPHS.sub(lambda _: op_counts(), OP_COUNTS.read_text(encoding="utf-8")), encoding="utf-8"
        )
    return path


def replace(name: str, rows: Sequence[Row]) -> Path:
    """As `keep`, of a bench that is run in pieces: rows of other names stay as they were last kept on such a host."""
    last = entries(name)[-1:] if all(one["host"] == _host() for one in entries(name)[-1:]) else []
    said = {_subject(row.what) for row in rows}
    old = [Row(**{"ours": "", **row}) for one in last for row in one["rows"] if _subject(row["what"]) not in said]
    return keep(name, sorted([*old, *rows], key=lambda row: _subject(row.what)))


def _subject(what: str) -> str:
    """What a row is of, without how it was taken."""
    return what.split(" (")[0].split(":")[0]


def op_counts() -> str:
    """The table of the placement topic: the newest op counts, and why they differ from those published."""
    lines = ["| graph | ane-sweep | published | ratio | why they differ |", "| --- | --- | --- | ---: | --- |"]
    for row in entries("opcounts")[-1]["rows"]:
        if row["what"].endswith(", all"):  # as rows are told now; older ones were kept with a 0 that nothing predicted
            row = {**row, "ours": row.get("ours", "").replace(" 0 GPU", " GPU not predicted")}
        said = (row.get(key, "") for key in ("what", "ours", "theirs", "ratio", "why"))
        lines.append(" ".join(["|", *(f"{word.strip()} |" if word else "|" for word in said)]))
    return "\n".join(lines) + "\n"


def _host() -> str:
    said = host.fingerprint()
    return (
        f"{said['chip']}, {said['cores']['usable']} cores, {said['memory_bytes'] / 2**30:.0f} GiB, {said['os_version']}"
    )


def entries(name: str) -> list[dict[str, Any]]:
    """What one benchmark said so far, oldest first."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def table() -> str:
    """Markdown: the newest entry of every benchmark."""
    lines = [
        "| benchmark | what | ane-sweep | instead | ratio | bar | taken |",
        "| --- | --- | ---: | ---: | ---: | --- | --- |",
    ]
    for name in names():
        entry = entries(name)[-1]
        rows = entry["rows"]
        if name in ELSEWHERE:
            rows = [{"what": f"{len(rows)} rows", "ours": f"[{ELSEWHERE[name]}]({ELSEWHERE[name]})"}]
        for row in rows:
            said = (row.get(key, "") for key in ("what", "ours", "theirs", "ratio", "bar"))
            lines.append(
                " ".join(["|", *(f"{word} |" if word else "|" for word in (f"`{name}`", *said, entry["date"]))])
            )
    return "\n".join(lines) + "\n"
