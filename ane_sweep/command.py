"""What the verbs share: exit codes, the grammar of their words, where outputs lie, a voice. Nothing heavy."""

import os
import sys
from pathlib import Path
from typing import Any

from ane_sweep.errors import ConfigError

OK, NOT_ALL_OK, BAD_CONFIGURATION, INTERRUPTED = 0, 1, 2, 130


def split(
    args: list[str],
    known: set[str],
    keys: set[str] = frozenset(("uri", "experiment")),  # type: ignore[assignment]
) -> tuple[dict[str, str], list[str]]:
    """A verb's words: flags, key=value pairs (`out=` everywhere), and the rest. Raises ConfigError."""
    options: dict[str, str] = {}
    words: list[str] = []
    for arg in args:
        key, equals, value = arg.partition("=")
        if arg in known:
            options[arg] = ""
        elif equals and key in {"out", *keys}:
            options[key] = value
        elif arg.startswith("-") or (equals and ":" not in key):  # RUN:axis=value names cells of a run
            raise ConfigError(
                f"{arg}: unknown here; known: {', '.join(sorted({*known, 'out=PATH', *(f'{k}=' for k in keys)}))}"
            )
        else:
            words.append(arg)
    return options, words


def number(options: dict[str, str], key: str) -> float | None:
    try:
        return float(options[key]) if key in options else None
    except ValueError:
        raise ConfigError(f"{key}={options[key]}: expected a number") from None


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
