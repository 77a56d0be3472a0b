"""The command line: it chooses the verb and returns the exit code. Only the verb's module is imported, for a quick start."""

import sys

try:
    import gc
    import os

    if "" in (os.environ.get("PYTHONPATH") or "-").split(os.pathsep) and os.path.exists("."):
        # an empty entry is the working folder to Python: no code of ours is there
        sys.path[:] = [one for one in sys.path if one and not (os.path.exists(one) and os.path.samefile(one, "."))]
    import re
    import signal
    from collections.abc import Sequence

    from ane_sweep import terminal, verbs
    from ane_sweep.errors import AneSweepError, ConfigError, TrackingError, Unfinished, nearest, suggestion
    from ane_sweep.native_errors import explain
    from ane_sweep.terminal import BAD_CONFIGURATION, INTERRUPTED, NOT_ALL_OK, OK, asks_help, say
    from ane_sweep.verbs import _pages
except KeyboardInterrupt:  # Ctrl-C in the first tenth of a second; nothing of ours is there yet
    print("interrupted", file=sys.stderr)
    raise SystemExit(130) from None


def cli() -> None:
    """Run the process of the command line: a failing output stream ends no run, and an interruption always prints a message."""
    try:
        terminal.protect_streams()
        args = sys.argv[1:]
        code = main(args)
        if (why := terminal.find_lost_output()) is not None:
            say(f"doubt: standard output could not be written ({why}); what was printed is lost")
            # what a sweep leaves is on disk; elsewhere it was all
            code = code or (OK if is_sweep(args) else NOT_ALL_OK)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # from here on Python only takes itself down
    except KeyboardInterrupt:
        say("interrupted")
        code = INTERRUPTED
    gc.freeze()  # Python's last collections would walk all that MLflow has loaded: 1.5 s
    sys.exit(code)


def main(args: Sequence[str]) -> int:
    """Run one command; return its exit code (ane_sweep/docs/errors.md)."""
    args = ["version"] if list(args) == ["--version"] else list(args)
    if not args:
        print(_pages.START)
        return OK
    verb, rest = (args[0], args[1:]) if args and args[0] in verbs.names() else ("sweep", args)
    try:
        reject_unknown_verb(args)
        if verb != "version" and not asks_help(rest):
            reject_deleted_folder()
        return verbs.find(verb)(rest)
    except ConfigError as error:
        say("error:", *(f"  {problem}" for problem in error.problems), "nothing was run")
        return BAD_CONFIGURATION
    except AneSweepError as error:
        say(f"error: {error}")
        return NOT_ALL_OK if isinstance(error, (TrackingError, Unfinished)) else BAD_CONFIGURATION
    except OSError as error:
        say(f"error: {explain(error)}")
        return BAD_CONFIGURATION
    except SystemExit as ended:  # argparse, after a help text
        return ended.code if isinstance(ended.code, int) else OK
    except KeyboardInterrupt:
        say(verbs.interruption_message(verb))
        return INTERRUPTED


def is_sweep(args: Sequence[str]) -> bool:
    return (bool(args) and args[0] not in verbs.names()) or args[:1] == ["sweep"]


def reject_unknown_verb(args: list[str]) -> None:
    first = args[0] if args else ""
    if first and first not in verbs.names() and "=" not in first and first[0] not in "-+~":
        if first == "last" or re.fullmatch(r"\d{8}-\d{6}(-\d+)?", first):
            raise ConfigError(
                f"{first}: that is a run; `ane-sweep report {first}` shows it, `ane-sweep list` all of them"
            )
        raise ConfigError(
            f"{first}: unknown word{suggestion(first, verbs.names())}; verbs: {nearest(first, verbs.names(), 'ane-sweep --help')}; "
            "a sweep is asked for with key=value"
        )


def reject_deleted_folder() -> None:
    try:
        os.getcwd()
    except OSError:
        raise ConfigError("the working folder is gone or may not be entered: cd to another one") from None


if __name__ == "__main__":
    cli()
