"""`ane-sweep version`: print the version"""

from ane_sweep import __version__
from ane_sweep.terminal import OK, tell
from ane_sweep.words import Parser


def version(args: list[str]) -> int:
    """Print the version."""
    parser = Parser("version", "[--json]", "Print the version.", "ane-sweep version")
    parser.json("version", "a line")
    tell(version=__version__) if parser.read(args).json else print(f"ane-sweep {__version__}")
    return OK
