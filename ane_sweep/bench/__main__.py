"""`python -m ane_sweep.bench NAME... [--OPTION=VALUE]`; without a name, the list. Options are the benchmark's own."""

import importlib
import sys
from pathlib import Path

from ane_sweep.bench import show

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))


def main(words: list[str]) -> int:
    names = [word for word in words if not word.startswith("-")]
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
