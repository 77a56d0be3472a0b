"""The command line: which verb, and which exit code. Verbs are imported when asked for, so that each starts at once."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from ane_sweep import __version__
from ane_sweep.command import BAD_CONFIGURATION, INTERRUPTED, NOT_ALL_OK, OK, say
from ane_sweep.errors import AneSweepError, ConfigError, TrackingError
from ane_sweep.schema import suggestion

VERBS = {
    "sweep": "sweep:sweep",
    "plan": "sweep:plan",
    "report": "report.verb:report",
    "compare": "compare.verb:compare",
    "history": "compare.history:history",
    "nightly": "nightly.verb:nightly",
    "log": "stored:log",
    "export": "stored:export",
    "import": "stored:import_bundle",
    "prune": "stored:prune",
    "lint": "lint:lint",
    "devices": "devices:devices",
    "doctor": "doctor:doctor",
    "run": "run:run",
    "diff": "diff:diff",
    "version": "__main__:version",
}


def cli() -> None:
    sys.exit(main(sys.argv[1:]))


def main(args: Sequence[str]) -> int:
    """Run one command; returns its exit code (README, "Exit codes")."""
    args = ["version"] if list(args) == ["--version"] else list(args)
    verb, rest = (args[0], args[1:]) if args and args[0] in VERBS else ("sweep", args)
    try:
        reject_unknown_verb(args)
        module, _, function = VERBS[verb].partition(":")
        code: int = getattr(import_module(f"ane_sweep.{module}"), function)(rest)
        return code
    except ConfigError as error:
        say("error:", *(f"  {problem}" for problem in error.problems), "nothing was run")
        return BAD_CONFIGURATION
    except AneSweepError as error:
        say(f"error: {error}")
        return NOT_ALL_OK if isinstance(error, TrackingError) else BAD_CONFIGURATION
    except KeyboardInterrupt:
        say("interrupted; the same command goes on where it stopped")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def version(args: list[str]) -> int:
    """Print the version."""
    print(f"ane-sweep {__version__}")
    return OK


def reject_unknown_verb(args: list[str]) -> None:
    first = args[0] if args else ""
    if first and first not in VERBS and "=" not in first and first[0] not in "-+~":
        raise ConfigError(
            f"{first}: unknown word{suggestion(first, VERBS)}; verbs: {', '.join(VERBS)}; a sweep is asked for with key=value"
        )


if __name__ == "__main__":
    cli()
