"""One word of the command line a file: the file's name is the verb, its function of that name takes the words behind it
and returns an exit code. Its docstring begins with its line in `ane-sweep --help`, "`ane-sweep WORDS`: what it does". A name
that begins with `_` is a helper's; one that ends with it is a word of Python's own. `STOPPED` is what a verb says that was
interrupted, where that is more than the word.
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
    """Return one line for each verb but the sweep, from the first line of its module, which is not imported."""
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
