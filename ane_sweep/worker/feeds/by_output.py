"""Scores of a model with unknown outputs: each output by itself, at every shape that the reference has.

psnr_db and cosine are of all outputs together. An output of large numbers hides the others there, so psnr_worst_db is that
of the worst output if there are several. Of integers (indices, classes) the share of equal values is counted.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ane_sweep.bridge import metrics
from ane_sweep.bridge.figures import Metric
from ane_sweep.stats import psnr
from ane_sweep.worker.feeds import agreement
from ane_sweep.worker.feeds.arrays import Inputs, StackWriter, list_further_shapes, map_arrays
from ane_sweep.worker.runtimes._runtime import Runtime
from ane_sweep.worker.stages import StageResult

Check = Callable[[str, dict[str, np.ndarray], tuple[int, ...], int], np.ndarray]
OutputFigures = dict[str, float]


def score_outputs(runtime: Runtime, reference: Path, out: Path, check: Check) -> StageResult:
    """Score a runtime against a reference, output by output, and leave outputs.npz of the default shape.

    In `realised`: `outputs`, and `shapes` if there are several.
    """
    total = _OutputScores()
    shapes: dict[str, OutputFigures] = {}
    for shape in ["", *list_further_shapes(reference)]:
        part = _OutputScores()
        at = f"@{shape}" if shape else ""
        expected = map_arrays(reference / f"outputs{at}.npz")
        feeds = Inputs(reference, f"inputs{at}.npz")
        with StackWriter(out / f"outputs{at}.npz", len(feeds)) as stack:
            for index in range(len(feeds)):
                runtime.reset()
                got = runtime.predict(runtime.prepare(feeds[index]))
                got = {name: check(name, got, array[index].shape, index) for name, array in expected.items()}
                stack.put(index, got)
                for name, array in expected.items():
                    for scores in (total, part):
                        scores.add(name, array[index], got[name])
        shapes[shape or "default"] = part.figures()
    realised = {**runtime.realised, "outputs": total.by_name(), **({"shapes": shapes} if len(shapes) > 1 else {})}
    return StageResult(metrics=total.metrics(), realised=realised)


class _OutputScores:
    """Running sums of the scores of each output."""

    def __init__(self) -> None:
        self.close = psnr.Outputs()
        self.equal: dict[str, list[int]] = {}
        self.top: list[bool] = []
        self.kl: list[float] = []

    def add(self, name: str, reference: np.ndarray, candidate: np.ndarray) -> None:
        if reference.dtype.kind != "f":
            same = self.equal.setdefault(name, [0, 0])
            same[0] += int((reference == candidate).sum())
            same[1] += reference.size
            return
        self.close.add(name, reference=reference, candidate=candidate)
        if name == "logits" and reference.ndim:
            rows = {
                "reference": reference.reshape(-1, reference.shape[-1]),
                "candidate": candidate.reshape(-1, reference.shape[-1]),
            }
            self.top += agreement.same_top1(**rows).tolist()
            self.kl += agreement.kl_rows(**rows).tolist()

    def by_name(self) -> dict[str, OutputFigures]:
        """Return the figures of each output."""
        return self.close.by_name() | {name: {"equal_values": share} for name, share in self._equal_shares().items()}

    def figures(self) -> OutputFigures:
        """Return the figures of all outputs of floats, and the lowest share of equal integers."""
        shares = self._equal_shares().values()
        return self.close.figures() | ({"equal_values": min(shares)} if shares else {})

    def _equal_shares(self) -> dict[str, float]:
        return {name: same / count for name, (same, count) in self.equal.items()}

    def metrics(self) -> list[Metric]:
        found = [Metric(name, value, metrics.unit(name)) for name, value in self.figures().items()]
        if self.kl:
            found.append(Metric("kl", float(np.mean(self.kl)), "nat"))
            found.append(Metric("top1_agreement", sum(self.top) / len(self.top), "1"))
        return found
