"""What each weight's compression costs the outputs: one weight at a time takes the values that its palette would give
it, the reference runtime predicts, and the outputs are compared with those of the program as it was converted.

Predictions are what takes the time. Weights are therefore tried in the order in which the program reads them: what comes
before a weight's first reader is computed once, and all widths go on from there, the inputs side by side. The figures
are those of whole predictions, to the last bit.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ane_sweep.bridge import recipes
from ane_sweep.mil import package
from ane_sweep.reference import plan
from ane_sweep.reference.layout import ExecutionPlan
from ane_sweep.reference.model import Model
from ane_sweep.reference.numerics import AS_DECLARED
from ane_sweep.stats import psnr
from ane_sweep.worker.compress import allot, passes, settings
from ane_sweep.worker.compress.palettes import codes_of, rounded

INPUTS = 4  # of the calibration inputs: each costs a prediction per weight and width
_AVERAGES = (8, 7, 6, 5, 4.5, 4, 3.5, 3, 2.5, 2, 1.5, 1)  # points of the curve, as far as the candidates reach

Values = dict[str, np.ndarray]


class Probe:
    """A program whose weights can be given other values, compared with itself as it was."""

    def __init__(self, path: Path, feeds: list[dict[str, Any]], valid: np.ndarray):
        self.known: dict[str, Any] = {}
        self.model = Model(package.read(path), "", AS_DECLARED, True, self.known)
        self.plan, self.valid = self.model.plan, valid
        # A weight is called by the op that makes it, whose value's name may differ: op_7_w makes var_7_w.
        self.value_of = {op.name: op.outputs[0] for op in self.model.program.ops if op.outputs}
        self.pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // torch.get_num_threads()))
        self.feeds = [self.model.prepare_inputs(feed, None) for feed in feeds]
        self.reached, self.tables = 0, [self.plan.begin(feed) for feed in self.feeds]
        self.whole = [self._outputs(self.plan, index) for index in range(len(feeds))]
        self.sizes = psnr.Closeness()
        for value in (value for outputs in self.whole for value in outputs.values()):
            self.sizes.add(reference=value, candidate=value)

    def in_order(self, names: list[str]) -> list[str]:
        """Weights as the program reads them first."""
        first = {name: op.index for op in reversed(self.model.program.ops) for name in op.reads}
        return sorted(names, key=lambda name: first[self.value_of[name]])

    def closeness(self, values: Values) -> psnr.Closeness:
        """How close the outputs come with `values` in place of the weights of those names; its cosine means nothing."""
        bound = {self.value_of[name]: value for name, value in values.items()}
        changed, first = plan.rebind_constants(self.plan, self.model.program, self.known, bound)
        self._go_to(first)

        def errors(index: int) -> list[float]:
            whole, made = self.whole[index], self._outputs(changed, index)
            return [e for name in whole for e in psnr.square_errors(reference=whole[name], candidate=made[name])]

        found = psnr.Closeness()
        found.count, found.peak = self.sizes.count, self.sizes.peak
        for error in (error for listed in self.pool.map(errors, range(len(self.feeds))) for error in listed):
            found.square_error += error
        return found

    def _go_to(self, step: int) -> None:
        """Bring the runs of the program as it was to a step, from where they are or anew."""
        if step < self.reached:
            self.reached, self.tables = 0, [self.plan.begin(feed) for feed in self.feeds]
        list(self.pool.map(lambda table: self.plan.advance(table, self.reached, step), self.tables))
        self.reached = step

    def _outputs(self, changed: ExecutionPlan, index: int) -> Values:
        """Of a run that goes on with other constants: the positions that hold text, as stage `score` compares them."""
        valid = self.valid[index]
        table = [value if constant is None else constant for constant, value in zip(changed.start, self.tables[index])]
        changed.advance(table, self.reached, len(changed.steps))
        made = {
            name: np.asarray(value) for name, value in self.model.to_outputs(changed.collect_outputs(table)).items()
        }
        return {
            name: value[0][valid] if value.ndim == 3 and value.shape[1] == len(valid) else value
            for name, value in made.items()
        }


def measure(path: Path, feeds: list[dict[str, Any]], valid: np.ndarray, wanted: dict[str, Any]) -> dict[str, Any]:
    """See allot.py for the form. `wanted`: candidates, min_elements, skip of the recipe."""
    recipe = recipes.canonical({"kind": "mixed", **wanted, "bits": max(wanted["candidates"])})
    assert recipe is not None
    found = settings.weights_of(passes.program_of(path))
    known = {weight.name: weight.value for weight in found}
    names = sorted(settings.resolve(found, recipe).settings)
    probe = Probe(path, feeds, valid)
    tables = dict(zip(names, probe.pool.map(lambda name: rounded(known[name], wanted["candidates"]), names)))

    def closeness(bits: dict[str, int]) -> psnr.Closeness:
        """With each weight under the table of its width."""
        values = {
            name: tables[name][width][codes_of(known[name])].reshape(known[name].shape) for name, width in bits.items()
        }
        return probe.closeness(values)

    weights: dict[str, Any] = {name: {"elements": known[name].size, "noise": {}} for name in names}
    for name in probe.in_order(names):
        for width in wanted["candidates"]:
            close = closeness({name: width})
            weights[name]["noise"][str(width)] = close.square_error / close.count
    peak = probe.sizes.peak if names else 0.0
    curve = _curve(closeness, weights, peak, wanted["candidates"])
    return {"candidates": wanted["candidates"], "inputs": len(feeds), "peak": peak, "weights": weights, "curve": curve}


def _curve(
    closeness: Callable[[dict[str, int]], psnr.Closeness],
    weights: dict[str, Any],
    peak: float,
    candidates: list[int],
) -> list[dict[str, Any]]:
    """PSNR against size, all weights compressed together; `expected_db` is what adding up the noises would say."""
    rows = []
    for average in _AVERAGES:
        if not min(candidates) <= average <= max(candidates):
            continue
        bits = allot.allotted(weights, average)
        rows.append(
            {
                "average_bits": allot.average_bits(weights, bits),
                "bytes": int(sum(weights[name]["elements"] * bits[name] for name in bits) / 8),
                "psnr_db": psnr.recorded_db(closeness(bits).psnr_db()),
                "expected_db": allot.expected_db(weights, peak, bits),
                "bits": bits,
            }
        )
    return rows
