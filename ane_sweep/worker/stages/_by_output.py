"""Scores of a model of which nothing is known but its outputs: each by itself, at every shape that its reference keeps.

psnr_db and cosine are those of the output that fares worst: together, one of large numbers would hide the others. Whole
numbers (indices, classes) are counted where they are equal.
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
        shapes[shape or "default"] = part.worst()
    realised = {**runtime.realised, "outputs": whole.each(), **({"shapes": shapes} if len(shapes) > 1 else {})}
    return StageResult(metrics=whole.metrics(), realised=realised)


class _Outputs:
    """What is added up of each output."""

    def __init__(self) -> None:
        self.close: dict[str, psnr.Closeness] = {}
        self.equal: dict[str, list[int]] = {}
        self.top: list[bool] = []
        self.kl: list[float] = []

    def add(self, name: str, reference: np.ndarray, candidate: np.ndarray) -> None:
        if reference.dtype.kind != "f":
            same = self.equal.setdefault(name, [0, 0])
            same[0] += int((reference == candidate).sum())
            same[1] += reference.size
            return
        self.close.setdefault(name, psnr.Closeness()).add(reference=reference, candidate=candidate)
        if name == "logits" and reference.ndim:
            rows = {
                "reference": reference.reshape(-1, reference.shape[-1]),
                "candidate": candidate.reshape(-1, reference.shape[-1]),
            }
            self.top += _metrics.same_top1(**rows).tolist()
            self.kl += _metrics.kl_rows(**rows).tolist()

    def each(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            name: {"psnr_db": psnr.recorded_db(one.psnr_db()), "cosine": one.cosine()}
            for name, one in self.close.items()
        }
        return found | {name: {"equal_values": same / count} for name, (same, count) in self.equal.items()}

    def worst(self) -> dict[str, float]:
        """Of the outputs that are no whole numbers the lowest PSNR and cosine; of the others the lowest share."""
        each = self.each()
        kinds = ("psnr_db", "cosine", "equal_values")
        return {
            kind: min(one[kind] for one in each.values() if kind in one)
            for kind in kinds
            if any(kind in one for one in each.values())
        }

    def metrics(self) -> list[Metric]:
        found = [Metric(name, value, "dB" if name == "psnr_db" else "1") for name, value in self.worst().items()]
        if self.kl:
            found.append(Metric("kl", float(np.mean(self.kl)), "nat"))
            found.append(Metric("top1_agreement", sum(self.top) / len(self.top), "1"))
        return found
