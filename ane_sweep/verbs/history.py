"""`ane-sweep history [N] [--json]`: steps in the latency of each cell over the last N runs"""

from ane_sweep.compare.history import RUNS, as_json, as_text, examine, read, slower
from ane_sweep.errors import ConfigError
from ane_sweep.terminal import IN_DOUBT, NOT_ALL_OK, OK
from ane_sweep.words import Parser


def history(args: list[str]) -> int:
    """Print latency steps and return 0, 1 if a cell became slower, or 3 for too few runs. Raises RunNotFound, ConfigError."""
    parser = Parser(
        "history [N] [--json] [out=PATH]",
        "Steps in the latency of each cell over the last N runs, what changed with them, and whether the last run stands out.",
        "ane-sweep history 30",
        {OK: "nothing became slower", NOT_ALL_OK: "something became slower", IN_DOUBT: "too few runs to tell"},
    )
    parser.add("words [N]", f"how many runs to look at, 2 or more (default: {RUNS})", nargs="*")
    parser.json("cells, each with its series and steps, and notes", "lines of text")
    parser.outputs()
    given = parser.read(args)
    words = given.words
    if len(words) > 1 or (words and not (words[0].isdecimal() and len(words[0]) < 10 and int(words[0]) > 1)):
        raise ConfigError(f"history {' '.join(words)}: expected how many runs to look at (2 or more), or nothing")
    cells, notes = read(given.out, int(words[0]) if words else RUNS)
    notes += examine(cells)
    print(as_json(cells, notes) if given.json else as_text(cells, notes), end="")
    if any(slower(cell) for cell in cells):
        return NOT_ALL_OK
    return OK if any(cell.tested for cell in cells) else IN_DOUBT
