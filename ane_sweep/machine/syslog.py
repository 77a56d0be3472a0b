"""Lines of the unified log that concern a program, limited in number, and their meanings (log_lines.csv, a source per
row).

`log stream --style ndjson` prints one JSON object a line: `eventMessage`, `processID`, `processImagePath`, `subsystem`,
`timestamp`. The daemons (aned, ANECompilerService) serve every process of the machine: their lines while a program
loads may concern another one. Lines of our own process, its stderr included, concern our program.
"""

import json
import re
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from ane_sweep.bridge import kept, plugins
from ane_sweep.csv_files import read_csv

TOOL = "log"
DAEMONS = ("aned", "ANECompilerService", "ANEStorageMaintainer")
SUBSYSTEMS = ("com.apple.coreml", "com.apple.espresso", "com.apple.e5rt", "com.apple.ane", "com.apple.ANECompiler")
KEPT_LINES = 200  # of those that mean something; the rest is only counted
LINE_CHARS = 400
# What a row of log_lines.csv says about where the program runs.
FAILED_ON_ANE = ("ane_failed", "memory", "limit")
SAYS = (*FAILED_ON_ANE, "plan", "op", "disk")


@dataclass(frozen=True)
class Meaning:
    """One row of log_lines.csv. `says`: ane_failed, memory, limit, op, plan or disk."""

    pattern: str
    says: str
    explanation: str
    source: str


@dataclass
class Finding:
    """A known line of the log: its count, its process and its meaning. `ours`: it came from our own process."""

    says: str
    line: str
    explanation: str
    source: str
    process: str
    ours: bool
    count: int = 1


def command(pid: int) -> list[str]:
    """Return the command that streams the log of our process's Core ML subsystems and of the daemons, from now on."""
    subsystems = " OR ".join(f'subsystem BEGINSWITH "{name}"' for name in SUBSYSTEMS)
    daemons = " OR ".join(f'process == "{name}"' for name in DAEMONS)
    predicate = f"(processID == {pid} AND ({subsystems})) OR {daemons}"
    return [TOOL, "stream", "--style", "ndjson", "--level", "info", "--predicate", predicate]


@cache
def meanings() -> list[Meaning]:
    """Return the table of meanings in the order in which rows are tried: ours, then those of plug-ins."""
    rows = _read(Path(__file__).parent / "log_lines.csv")
    for said in plugins.broken("log_lines"):
        kept.tell(said)
    for one in plugins.usable("log_lines").values():
        try:
            rows += _read(one.file)
        except (OSError, TypeError, ValueError, re.error) as error:
            kept.tell(f"log lines {one.name!r} of {one} cannot be used: {one.file}: {error}")
    return rows


def _read(path: Path) -> list[Meaning]:
    """Read a table of meanings. Raises TypeError for unknown columns, ValueError for an unknown `says`, re.error."""
    rows = [Meaning(**row) for row in read_csv(path)]
    for row in rows:
        re.compile(row.pattern)
        if row.says not in SAYS:
            raise ValueError(f"says={row.says!r}; choices: {', '.join(SAYS)}")
    return rows


def explain(text: str) -> Meaning | None:
    """Return the first row whose pattern is in the text, or None."""
    return next((row for row in meanings() if re.search(row.pattern, text)), None)


class Findings:
    """A collector of lines that have a known meaning: at most `limit` different ones."""

    def __init__(self, pid: int, limit: int = KEPT_LINES):
        self.pid, self.limit = pid, limit
        self.lines = self.unreadable = self.dropped = 0
        self._found: dict[tuple[str, str, bool], Finding] = {}

    def add_stream(self, line: bytes | str) -> None:
        """Add a line of `log stream --style ndjson`; the first line, which repeats the predicate and is no JSON, is skipped."""
        self.lines += 1
        try:
            entry = json.loads(line)
            text, process = str(entry["eventMessage"]), str(entry.get("processImagePath") or "")
        except (ValueError, TypeError, KeyError):
            self.unreadable += 1
            return
        self._add(text, Path(process).name or "unknown", entry.get("processID") == self.pid)

    def add_stderr(self, text: str) -> None:
        """Add the lines that frameworks printed inside our own process."""
        for line in text.splitlines():
            self._add(line, "stderr", True)

    def _add(self, text: str, process: str, ours: bool) -> None:
        meaning = explain(text)
        if meaning is None:
            return
        key = (meaning.pattern, process, ours)
        if key in self._found:
            self._found[key].count += 1
        elif len(self._found) < self.limit:
            short = text if len(text) <= LINE_CHARS else text[: LINE_CHARS - 3] + "..."
            self._found[key] = Finding(meaning.says, short, meaning.explanation, meaning.source, process, ours)
        else:
            self.dropped += 1

    def rank(self) -> list[dict[str, object]]:
        """Return the findings as JSON values: lines of our own process first, then the gravest."""
        order = {says: place for place, says in enumerate(SAYS)}
        ranked = sorted(self._found.values(), key=lambda f: (not f.ours, order.get(f.says, 99)))
        return [asdict(finding) for finding in ranked]
