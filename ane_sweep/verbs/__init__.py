"""The verbs of the command line, one file each: the file's name is the verb, and its function of that name takes the
words after it and returns an exit code. The module's docstring begins with the verb's line in `ane-sweep --help`,
"`ane-sweep WORDS`: its purpose". Names that begin with `_` are helpers; names that end with it would be keywords of
Python. `STOPPED` is a verb's message after an interruption, if it needs a special one.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

from ane_sweep.terminal import EXIT_CODES, INTERRUPTED

_HERE = Path(__file__).parent


def names() -> list[str]:
    """Return all verbs, sorted."""
    return sorted(_stems())


def find(verb: str) -> Callable[[list[str]], int]:
    """Return a verb's function and import its module alone, so that each verb starts at once."""
    found: Callable[[list[str]], int] = getattr(_module(verb), _stems()[verb])
    return found


def interruption_message(verb: str) -> str:
    return str(getattr(_module(verb), "STOPPED", EXIT_CODES[INTERRUPTED]))


def lines() -> list[str]:
    """Return one help line for each verb except the sweep, from the module's first line, without importing it."""
    return [f"  {name:<11} {what}" for name, (_, what) in summaries().items() if name != "sweep"]


def summaries() -> dict[str, tuple[str, str]]:
    """Return {verb: (an example of its words, its purpose)}."""
    found = {}
    for verb, stem in sorted(_stems().items()):
        path = next(path for path in (_HERE / f"{stem}.py", _HERE / stem / "__init__.py") if path.exists())
        words, _, what = path.read_text(encoding="utf-8").partition("\n")[0].strip('"`').partition("`: ")
        found[verb] = (words, what)
    return found


def _module(verb: str) -> ModuleType:
    return import_module(f"{__name__}.{_stems()[verb]}")


def _stems() -> dict[str, str]:
    """Return the modules and packages of this folder that are no helpers, by their verbs."""
    modules = [path.stem for path in _HERE.glob("*.py")] + [path.parent.name for path in _HERE.glob("*/__init__.py")]
    return {stem.rstrip("_"): stem for stem in modules if not stem.startswith("_")}
