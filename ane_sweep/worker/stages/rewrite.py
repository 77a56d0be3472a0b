"""rewrite: rewrites a program for the Neural Engine, as `ane-sweep fix` does.

params  rewrites: names of ane_sweep/fix/rewrites in their order; chip, whose prediction decides which of them are kept
inputs  program: model.mlpackage
leaves  model.mlpackage, linked to the program's if no rewrite is kept, and rewrites.json with every change
"""

import json
import shutil
import time
from pathlib import Path

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.bridge.task import RewriteOutcome, RewritesDone
from ane_sweep.fix import driver
from ane_sweep.fix.trials import Report, RewriteTrial
from ane_sweep.mil import package
from ane_sweep.worker import params
from ane_sweep.worker.programs.mlprogram import size
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=37, many="rewritings", timeout_s=7200, base_gib=0.4, per_byte=1.7, base_s=0.3, per_gb_s=1, leaves="program",
    holds="kept weights", scores=3, artifact=True, reads=("placement/data/**/*",), limited=False,
    warm=("torch", "ane_sweep.fix.driver"), packages=True,
)  # fmt: skip

_SHOWN = 5  # places of a rewrite that the record names; rewrites.json has all


class Params(params.Params, frozen=True):
    """Parameters of this stage; see the module's docstring."""

    rewrites: list[str]
    chip: str


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Rewrite the program. Raises PackageError if it cannot be read.

    realised  `rewrites`: see RewritesDone (bridge/task.py)
    """
    began = time.perf_counter()
    settings = Params.read(params)
    (source,) = package.program_paths(inputs["program"])
    target = out / source.name
    report = driver.fix(source, target, settings.chip, tuple(settings.rewrites))
    if report.written is None:
        shutil.copytree(source, target, copy_function=package.link_or_copy)
    account = {**report.to_dict(), "path": source.name, "written": report.written and target.name}
    (out / "rewrites.json").write_text(json.dumps(account, indent=1, sort_keys=True), encoding="utf-8")
    return StageResult(
        metrics=[
            Metric("rewrite_s", time.perf_counter() - began, "s"),
            Metric("package_bytes", size.measure_bytes(target), "bytes"),
        ],
        realised={"rewrites": _describe(report, settings.rewrites)},
    )


def _describe(report: Report, names: list[str]) -> RewritesDone:
    tried = {trial.rewrite for trial in report.trials}
    return RewritesDone(
        chip=report.chip,
        applied=[_summarise(trial) for trial in report.applied],
        refused=[_summarise(trial) for trial in report.trials if trial.status != "applied"],
        unmatched=[name for name in names if name not in tried],
    )


def _summarise(trial: RewriteTrial) -> RewriteOutcome:
    at = [change.place for change in trial.changes[:_SHOWN]]
    unproven = sum(not change.proven for change in trial.changes)
    reason = f"{trial.reason}; {unproven} places not proven: {trial.unproven}" if unproven else trial.reason
    return RewriteOutcome(name=trial.rewrite, places=len(trial.changes), at=at, reason=reason)
