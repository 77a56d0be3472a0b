"""`python -m tests.bench NAME... [FOLDER...] [--keep]`; without a name, the list. Folders are for `packages`."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from ane_sweep.terminal import BAD_CONFIGURATION, NOT_ALL_OK, OK, format_path
from tests.bench import _kept, show

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py") if not path.stem.startswith("test_"))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.bench", description=__doc__, allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--keep", action="store_true", help="add what they say to tests/bench/kept/ and FIGURES.md")
    parser.add_argument(
        "--phases", action="store_true", help="of conversions: where the time goes (the benchmark phases)"
    )
    given = parser.parse_known_args(words)[0]
    if given.phases:
        given.names = ["phases" if name == "conversions" else name for name in given.names]
    folders = [Path(name) for name in given.names if name not in NAMES and Path(name).is_dir()]
    names = [name for name in given.names if name in NAMES or not Path(name).is_dir()]
    unknown = [name for name in names if name not in NAMES]
    if not names or unknown:
        for name in NAMES:
            print(f"  {name:<12} {importlib.import_module(f'tests.bench.{name}').__doc__}")
        print(f"unknown: {', '.join(unknown)}" if unknown else "give one or more names")
        return BAD_CONFIGURATION
    code = OK
    for name in names:
        module = importlib.import_module(f"tests.bench.{name}")
        rows = module.run(*folders) if folders else module.run()
        print(f"{name}: {module.__doc__}\n{show(rows)}\n", flush=True)
        if given.keep:
            print(f"kept: {format_path(module.keep(rows) if hasattr(module, 'keep') else _kept.keep(name, rows))}")
        if hasattr(module, "slower") and module.slower(rows):
            code = NOT_ALL_OK
    return code


if __name__ == "__main__":
    sys.exit(main())
