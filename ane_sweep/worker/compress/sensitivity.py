"""Measures the error of the outputs that compressing each weight causes.

One weight at a time takes the values of its palette, the reference runtime predicts, and the outputs are compared with
those of the program as converted. Predictions take the time. Weights are therefore tried in the order in which the
program reads them: the part before a weight's first reader is computed once, and all widths go on from there, the inputs
in parallel. The figures equal those of complete predictions to the last bit.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

import msgspec
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
from ane_sweep.worker.compress.palettes import round_to_palettes, to_codes
from ane_sweep.worker.params import SensitivityParams

INPUTS = 4  # of the calibration inputs: each costs a prediction per weight and width
_AVERAGES = (8, 7, 6, 5, 4.5, 4, 3.5, 3, 2.5, 2, 1.5, 1)  # points of the curve, as far as the candidates reach

Values = dict[str, np.ndarray]


class Sensitivity(TypedDict):
    """The content of sensitivity.json. `peak`: the largest magnitude of the outputs; `inputs`: the number of inputs used."""

    candidates: list[int]
    inputs: int
    peak: float
    weights: dict[str, allot.WeightNoise]
    curve: list[allot.Point]


class SensitivityProbe:
    """A program whose weights can take other values, compared with the unchanged program."""

    def __init__(self, path: Path, feeds: list[Values], valid: np.ndarray):
        self.known: dict[str, Any] = {}
        self.model = Model(package.read(path), "", AS_DECLARED, True, self.known)
        self.plan, self.valid = self.model.plan, valid
        # A weight is called by the op that makes it, whose value's name may differ: op_7_w makes var_7_w.
        self.value_of = {op.name: op.outputs[0] for op in self.model.program.ops if op.outputs}
        self.pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // torch.get_num_threads()))
        self.feeds = [self.model.prepare_inputs(feed, None) for feed in feeds]
        self.reached, self.tables = 0, [self.plan.begin(feed) for feed in self.feeds]
        self.whole = [self._outputs(self.plan, index) for index in range(len(feeds))]
        self.sizes = psnr.Outputs()
        for name, value in ((name, value) for outputs in self.whole for name, value in outputs.items()):
            self.sizes.add(name, reference=value, candidate=value)

    def in_order(self, names: list[str]) -> list[str]:
        """Sort weights by the place where the program first reads them."""
        first = {name: op.index for op in reversed(self.model.program.ops) for name in op.reads}
        return sorted(names, key=lambda name: first[self.value_of[name]])

    def closeness(self, values: Values) -> psnr.Outputs:
        """Compare the outputs of the program with other `values` for the weights of those names; the result's cosines are unset."""
        bound = {self.value_of[name]: value for name, value in values.items()}
        changed, first = plan.rebind_constants(self.plan, self.model.program, self.known, bound)
        self._go_to(first)

        def errors(index: int) -> dict[str, list[float]]:
            whole, made = self.whole[index], self._outputs(changed, index)
            return {name: psnr.square_errors(reference=whole[name], candidate=made[name]) for name in whole}

        found = psnr.Outputs()
        for name, size in self.sizes.each.items():
            found.each[name] = psnr.Closeness()
            found.each[name].count, found.each[name].peak = size.count, size.peak
        for listed in self.pool.map(errors, range(len(self.feeds))):
            for name, each in listed.items():
                for error in each:
                    found.each[name].square_error += error
        return found

    def _go_to(self, step: int) -> None:
        """Advance the runs of the unchanged program to a step, or start them again if they are past it."""
        if step < self.reached:
            self.reached, self.tables = 0, [self.plan.begin(feed) for feed in self.feeds]
        list(self.pool.map(lambda table: self.plan.advance(table, self.reached, step), self.tables))
        self.reached = step

    def _outputs(self, changed: ExecutionPlan, index: int) -> Values:
        """Finish a run with other constants and return the outputs at text positions, as stage `score` compares them."""
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


def measure(path: Path, feeds: list[Values], valid: np.ndarray, params: SensitivityParams) -> Sensitivity:
    """Measure what compressing each weight costs the outputs, at each candidate width."""
    candidates = params.candidates
    recipe = recipes.canonical({"kind": "mixed", **msgspec.to_builtins(params), "bits": max(candidates)})
    assert recipe is not None
    found = settings.list_weights(passes.load_program(path))
    known = {weight.name: weight.value for weight in found}
    names = sorted(settings.resolve(found, recipe).settings)
    probe = SensitivityProbe(path, feeds, valid)
    tables = dict(zip(names, probe.pool.map(lambda name: round_to_palettes(known[name], candidates), names)))

    def closeness(bits: dict[str, int]) -> psnr.Outputs:
        """Compare outputs when each weight has its palette of the given width."""
        values = {
            name: tables[name][width][to_codes(known[name])].reshape(known[name].shape) for name, width in bits.items()
        }
        return probe.closeness(values)

    weights: dict[str, allot.WeightNoise] = {name: {"elements": known[name].size, "noise": {}} for name in names}
    for name in probe.in_order(names):
        for width in candidates:
            close = closeness({name: width}).together()
            weights[name]["noise"][str(width)] = close.square_error / close.count
    peak = probe.sizes.together().peak if names else 0.0
    curve = _measure_curve(closeness, weights, peak, candidates)
    return {"candidates": candidates, "inputs": len(feeds), "peak": peak, "weights": weights, "curve": curve}


def _measure_curve(
    closeness: Callable[[dict[str, int]], psnr.Outputs],
    weights: dict[str, allot.WeightNoise],
    peak: float,
    candidates: list[int],
) -> list[allot.Point]:
    """Measure PSNR against size, all weights compressed together; `expected_db` is the PSNR if the noises add up."""
    rows: list[allot.Point] = []
    for average in _AVERAGES:
        if not min(candidates) <= average <= max(candidates):
            continue
        bits = allot.allot_bits(weights, average)
        reached = closeness(bits).figures()
        row: allot.Point = {
            "average_bits": allot.compute_average_bits(weights, bits),
            "bytes": int(sum(weights[name]["elements"] * bits[name] for name in bits) / 8),
            "psnr_db": reached["psnr_db"],
            "expected_db": allot.estimate_db(weights, peak, bits),
            "bits": bits,
        }
        if "psnr_worst_db" in reached:
            row["psnr_worst_db"] = reached["psnr_worst_db"]
        rows.append(row)
    return rows
