"""`ane-sweep version`: print the version"""

from ane_sweep import __version__
from ane_sweep.terminal import OK
from ane_sweep.words import Parser


def version(args: list[str]) -> int:
    """Print the version."""
    Parser("version", "", "Print the version.", "ane-sweep version").read(args)
    print(f"ane-sweep {__version__}")
    return OK
