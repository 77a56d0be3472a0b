"""Every error that ane-sweep raises on purpose.

    AneSweepError                  one sentence for a person: what, where, the choices, the next step
    ├── ConfigError                a wrong word: unknown option, key, type, range      -> exit 2, nothing ran
    │   └── Away                   a model's weights are on a hub that is out of reach
    ├── StoreError                 the outputs folder, or a bundle, cannot be used      -> exit 2, nothing ran
    │   └── Unfit                  a file of a shared store is too long, or no file
    ├── TrackingError              the tracker cannot be reached; records are kept     -> a doubt, never a lost record
    ├── Unfinished                 a sweep that had begun could not go on               -> exit 1, it can be gone on with
    ├── RunNotFound                a verb was asked for a run that is not there        -> exit 2
    └── StageError                 raised inside a worker: this task failed            -> Status.FAILED
        ├── WeightsError           a checkpoint is missing, corrupt or of another shape
        ├── PackageError           an ML Program cannot be read
        │   └── UnsupportedOp      the reference runtime lacks an op of the program
        ├── ChunkError             a program cannot be cut as asked
        ├── Died                   a process that a stage started was killed           -> crashed, out_of_memory ...
        └── Unavailable            this host cannot do it                              -> stage status `unavailable`

Anything else that escapes is a bug of ours and keeps its traceback.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Literal

# how a task ended, as its result says
End = Literal["ok", "unavailable", "failed", "crashed", "timeout", "out_of_memory"]


class AneSweepError(Exception):
    """Base class of errors whose text is meant for the user."""


class ConfigError(AneSweepError):
    """Raised for one or more problems in the user's request; `problems` lists each as one sentence."""

    def __init__(self, problems: str | list[str]):
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class Away(ConfigError):
    """Raised for weights that are not on this disk and cannot be downloaded now: `where` is their repository, `why` the error."""

    def __init__(self, problem: str, model: str, where: str, why: str):
        super().__init__(problem)
        self.model, self.where, self.why = model, where, why


class StoreError(AneSweepError):
    pass


class Unfit(StoreError):
    """Raised for a file of a shared store that is too long, or is no regular file (a pipe, say)."""


class TrackingError(AneSweepError):
    pass


class Unfinished(AneSweepError):
    pass


class RunNotFound(AneSweepError):
    pass


class StageError(AneSweepError):
    pass


class WeightsError(StageError):
    pass


class PackageError(StageError):
    pass


class UnsupportedOp(PackageError):
    pass


class ChunkError(StageError):
    pass


class Died(StageError):
    """Raised for a process that died; `status` is the way it ended."""

    def __init__(self, status: End, reason: str):
        super().__init__(reason)
        self.status = status


class Unavailable(StageError):
    pass


# What other tools call it; where it is no choice of ours it is not suggested.
_ELSEWHERE = {"float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
_SHOWN = 8  # choices that a sentence bears


def suggestion(word: object, choices: Iterable[object]) -> str:
    """Return ` (did you mean 'chunks'?)`, or '' if no choice is close."""
    close = _close(str(word), [str(choice) for choice in choices])
    return f" (did you mean {close[0]!r}?)" if close else ""


def nearest(word: object, choices: Iterable[object], where: str) -> str:
    """Return the choices if they are few; else the nearest ones, the number of others and the command that lists them."""
    known = [str(choice) for choice in choices]
    if len(known) <= _SHOWN + 2:
        return ", ".join(known)
    first = list(dict.fromkeys([*_close(str(word), known), *known]))[:_SHOWN]
    return f"{', '.join(first)} and {len(known) - _SHOWN} more (`{where}`)"


def _close(word: str, choices: list[str]) -> list[str]:
    """Return the choices that a word may mean, likeliest first: other tools' spellings, other cases, typos, prefixes."""
    plain = word.lower().rpartition(".")[2] or word.lower()  # ct.ComputeUnit.CPU_AND_NE
    same = [choice for choice in choices if choice.lower() in (plain, _ELSEWHERE.get(plain))]
    begin = [choice for choice in choices if len(plain) > 2 and choice.lower().startswith(plain)]
    slips = get_close_matches(word, choices, n=_SHOWN) + get_close_matches(plain, choices, n=_SHOWN)
    return list(dict.fromkeys([*same, *slips, *begin]))
