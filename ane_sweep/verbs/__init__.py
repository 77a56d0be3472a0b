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
    return sorted(stem.rstrip("_") for stem in _stems())


def find(verb: str) -> Callable[[list[str]], int]:
    """Return a verb's function and import its module alone, so that each verb starts at once."""
    module = _module(verb)
    found: Callable[[list[str]], int] = getattr(module, module.__name__.rpartition(".")[2])
    return found


def interruption_message(verb: str) -> str:
    """Return the message of an interrupted verb."""
    return str(getattr(_module(verb), "STOPPED", EXIT_CODES[INTERRUPTED]))


def lines() -> list[str]:
    """Return one line for each verb but the sweep, from the first line of its module, which is not imported."""
    return [f"  {name:<11} {what}" for name, (_, what) in summaries().items() if name != "sweep"]


def summaries() -> dict[str, tuple[str, str]]:
    """Return {verb: (an example of its words, its purpose)}."""
    found = {}
    for stem in sorted(_stems()):
        path = next(path for path in (_HERE / f"{stem}.py", _HERE / stem / "__init__.py") if path.exists())
        words, _, what = path.read_text(encoding="utf-8").partition("\n")[0].strip('"`').partition("`: ")
        found[stem.rstrip("_")] = (words, what)
    return found


def _module(verb: str) -> ModuleType:
    stem = next(stem for stem in _stems() if stem.rstrip("_") == verb)
    return import_module(f"{__name__}.{stem}")


def _stems() -> list[str]:
    """Return the names of this folder's modules and packages that are no helpers."""
    modules = [path.stem for path in _HERE.glob("*.py")] + [path.parent.name for path in _HERE.glob("*/__init__.py")]
    return [stem for stem in modules if not stem.startswith("_")]
