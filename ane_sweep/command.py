"""What the verbs share: exit codes, the grammar of their words, where outputs lie, a voice. Nothing heavy."""

import math
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ane_sweep.errors import ConfigError
from ane_sweep.schema import suggestion

OK, NOT_ALL_OK, BAD_CONFIGURATION, INTERRUPTED = 0, 1, 2, 130
IN_DOUBT = 3
EXIT_CODES = {  # one table for all verbs; those that only show end with 0 whatever they show
    OK: "all is well",
    NOT_ALL_OK: "something failed, or became worse",
    BAD_CONFIGURATION: "a wrong word or a file or folder that cannot be used; nothing was run",
    IN_DOUBT: "it ran, but the answer is in doubt: degraded or skipped cells, or nothing could be tested",
    INTERRUPTED: "interrupted",
}


def split(args: list[str], flags: Collection[str] = (), keys: Collection[str] = ()) -> tuple[dict[str, str], list[str]]:
    """A verb's words: flags, key=value pairs (`out=` everywhere), and the rest. Raises ConfigError."""
    options: dict[str, str] = {}
    words: list[str] = []
    for arg in args:
        key, equals, value = arg.partition("=")
        if arg in flags:
            options[arg] = ""
        elif equals and key in {"out", *keys}:
            options[key] = value
        elif arg.startswith("-") or (equals and ":" not in key):  # RUN:axis=value names cells of a run
            known = sorted({*flags, "out=PATH", *(f"{key}=" for key in keys)})
            raise ConfigError(f"{arg}: unknown here{suggestion(arg, known)}; known: {', '.join(known)}")
        else:
            words.append(arg)
    return options, words


def number(options: dict[str, str], key: str) -> float | None:
    """The value of a key, None where it was not given. Raises ConfigError unless it is finite and not negative."""
    if key not in options:
        return None
    try:
        value = float(options[key])
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ConfigError(f"{key}={options[key]}: expected a number of 0 or more")
    return value


def outputs_folder(asked: str | None) -> Path:
    return Path(asked or os.environ.get("ANE_SWEEP_OUT") or "outputs").expanduser().absolute()


def open_store(out: Path) -> Any:
    from ane_sweep.store import Store

    return Store(out / "cache")


def memory_budget(gib: float | None) -> int:
    """Bytes that all lanes may use together: what was asked for, or 85 % of the host's memory."""
    import psutil

    return int(gib * 2**30) if gib is not None else int(psutil.virtual_memory().total * 0.85)


def say(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr, flush=True)
