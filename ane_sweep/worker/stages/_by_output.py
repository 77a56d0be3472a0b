"""Scores of a model of which nothing is known but its outputs: each by itself, at every shape that its reference keeps.

psnr_db and cosine are those of all outputs together. There an output of large numbers hides the others: of several,
psnr_worst_db is that of the worst. Whole numbers (indices, classes) are counted where they are equal.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ane_sweep.bridge.figures import Metric
from ane_sweep.stats import psnr
from ane_sweep.worker.runtimes._runtime import Runtime
from ane_sweep.worker.stages import StageResult, _metrics
from ane_sweep.worker.stages._arrays import Inputs, StackWriter, further_shapes, stacks

Checked = Callable[[str, dict[str, Any], tuple[int, ...], int], Any]


def score(runtime: Runtime, reference: Path, out: Path, checked: Checked) -> StageResult:
    """Leaves outputs.npz, of the default shape. In `realised`: `outputs`, and `shapes` where there are several."""
    whole = _Outputs()
    shapes: dict[str, Any] = {}
    for shape in ["", *further_shapes(reference)]:
        part = _Outputs()
        at = f"@{shape}" if shape else ""
        expected = stacks(reference / f"outputs{at}.npz")
        feeds = Inputs(reference, f"inputs{at}.npz")
        with StackWriter(out / f"outputs{at}.npz", len(feeds)) as stack:
            for index in range(len(feeds)):
                runtime.reset()
                got = runtime.predict(runtime.prepare(feeds[index]))
                got = {name: checked(name, got, array[index].shape, index) for name, array in expected.items()}
                stack.put(index, got)
                for name, array in expected.items():
                    for scores in (whole, part):
                        scores.add(name, array[index], got[name])
        shapes[shape or "default"] = part.figures()
    realised = {**runtime.realised, "outputs": whole.each(), **({"shapes": shapes} if len(shapes) > 1 else {})}
    return StageResult(metrics=whole.metrics(), realised=realised)


class _Outputs:
    """What is added up of each output."""

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
            self.top += _metrics.same_top1(**rows).tolist()
            self.kl += _metrics.kl_rows(**rows).tolist()

    def each(self) -> dict[str, Any]:
        return self.close.by_name() | {name: {"equal_values": share} for name, share in self._equal_shares().items()}

    def _equal_shares(self) -> dict[str, float]:
        return {name: same / count for name, (same, count) in self.equal.items()}

    def figures(self) -> dict[str, float]:
        """Return the figures of the outputs that are no whole numbers, and of the others the lowest share."""
        shares = self._equal_shares().values()
        return self.close.figures() | ({"equal_values": min(shares)} if shares else {})

    def metrics(self) -> list[Metric]:
        found = [Metric(name, value, _metrics.UNITS.get(name, "1")) for name, value in self.figures().items()]
        if self.kl:
            found.append(Metric("kl", float(np.mean(self.kl)), "nat"))
            found.append(Metric("top1_agreement", sum(self.top) / len(self.top), "1"))
        return found
