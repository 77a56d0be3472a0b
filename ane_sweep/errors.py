"""Every error that ane-sweep raises on purpose.

    AneSweepError                  one sentence for a person: what, where, the choices, the next step
    ├── ConfigError                a wrong word: unknown option, key, type, range      -> exit 2, nothing ran
    │   └── Away                   a model's weights are on a hub that is out of reach
    ├── StoreError                 the outputs folder, or a bundle, cannot be used      -> exit 2, nothing ran
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

from typing import Literal

End = Literal[
    "ok", "unavailable", "failed", "crashed", "timeout", "out_of_memory"
]  # how a task ended, as its result says


class AneSweepError(Exception):
    """Base of all errors whose text is meant for the user."""


class ConfigError(AneSweepError):
    """One or more problems in what the user asked for; `problems` lists each as one sentence."""

    def __init__(self, problems: str | list[str]):
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class Away(ConfigError):
    """Weights that are not on this disk, and cannot be had now: `where` is their repository, `why` what it answered."""

    def __init__(self, problem: str, model: str, where: str, why: str):
        super().__init__(problem)
        self.model, self.where, self.why = model, where, why


class StoreError(AneSweepError):
    pass


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
    """`status` is how the process ended."""

    def __init__(self, status: End, reason: str):
        super().__init__(reason)
        self.status = status


class Unavailable(StageError):
    pass
