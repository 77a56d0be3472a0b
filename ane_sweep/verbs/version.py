"""`ane-sweep version`: print the version"""

from ane_sweep import __version__
from ane_sweep.terminal import print_result
from ane_sweep.words import Parser


def version(args: list[str]) -> int:
    parser = Parser("version [--json]", "Print the version.", "ane-sweep version")
    parser.json("version", "a line")
    return print_result(parser.read(args).json, f"ane-sweep {__version__}", version=__version__)
