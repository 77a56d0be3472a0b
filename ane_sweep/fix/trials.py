"""The account of rewrites: places changed, each rewrite tried, and the report of a package."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from ane_sweep.fix.figures import Figures
from ane_sweep.fix.proof import Proof


@dataclass(frozen=True)
class PlaceChange:
    """A place that a rewrite changed: the types of the ops removed and added, constants left out."""

    rewrite: str
    place: str
    removed: list[str]
    added: list[str]
    proven: bool


@dataclass
class RewriteTrial:
    """One rewrite tried on a program: kept ("applied") or not ("refused"), with the reason; `unproven` says why places
    were not run.
    """

    rewrite: str
    status: str
    reason: str
    before: Figures
    after: Figures
    changes: list[PlaceChange] = field(default_factory=list)
    worst: Proof | None = None
    unproven: str | None = None


@dataclass
class Report:
    """The result for one package. `whole` tells the proof of the whole program; `written` stays empty if nothing changed."""

    path: Path
    chip: str
    before: Figures
    after: Figures
    trials: list[RewriteTrial]
    whole: str
    written: Path | None = None

    @property
    def applied(self) -> list[RewriteTrial]:
        return [trial for trial in self.trials if trial.status == "applied"]

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return {
            "path": str(self.path), "chip": self.chip, "before": asdict(self.before), "after": asdict(self.after),
            "trials": [asdict(trial) for trial in self.trials], "whole": self.whole,
            "written": self.written and str(self.written),
        }  # fmt: skip
