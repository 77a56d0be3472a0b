"""`python -m ane_sweep.bench NAME...`; without a name, the list."""

import importlib
import sys
from pathlib import Path

from ane_sweep.bench import show

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in NAMES]
    if not names or unknown:
        for name in NAMES:
            print(f"  {name:<12} {importlib.import_module(f'ane_sweep.bench.{name}').__doc__}")
        print(f"unknown: {', '.join(unknown)}" if unknown else "give one or more names")
        return 2
    for name in names:
        module = importlib.import_module(f"ane_sweep.bench.{name}")
        print(f"{name}: {module.__doc__}\n{show(module.run())}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
