"""Measures the error of the outputs that compressing each weight causes.

One weight at a time takes the values of its palette, the reference runtime predicts, and the outputs are compared with
those of the program as converted. Predictions take the time. Weights are therefore tried in the order in which the
program reads them: the part before a weight's first reader is computed once, and all widths go on from there. The figures
equal those of complete predictions to the last bit.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import numpy as np
import torch

from ane_sweep.bridge import recipes
from ane_sweep.mil import package
from ane_sweep.reference import plan
from ane_sweep.reference.constants import Constant
from ane_sweep.reference.layout import ExecutionPlan
from ane_sweep.reference.model import Model
from ane_sweep.reference.numerics import AS_DECLARED
from ane_sweep.stats import psnr
from ane_sweep.worker.compress import allot, passes, settings, streaming
from ane_sweep.worker.compress.palettes import find_centres, round_to_centres
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
        self.pool = ThreadPoolExecutor(os.cpu_count())
        self.feeds = [self.model.prepare_inputs(feed, None) for feed in feeds]
        self.reached, self.tables = 0, [self.plan.begin(feed) for feed in self.feeds]
        self.whole, self.sizes = self._finish(self.plan), psnr.Outputs()
        for name, value in ((name, value) for outputs in self.whole for name, value in outputs.items()):
            self.sizes.add(name, reference=value, candidate=value)

    def in_order(self, names: list[str]) -> list[str]:
        """Sort weights by the place where the program first reads them."""
        first = {name: op.index for op in reversed(self.model.program.ops) for name in op.reads}
        return sorted(names, key=lambda name: first[self.value_of[name]])

    def closeness(self, values: Mapping[str, np.ndarray | Constant]) -> psnr.Outputs:
        """Compare the outputs of the program with other `values` for the weights of those names; the result's cosines are unset."""
        bound = {self.value_of[name]: value for name, value in values.items()}
        changed, first = plan.rebind_constants(self.plan, self.model.program, self.known, bound)
        if first < self.reached:
            self.reached, self.tables = 0, [self.plan.begin(feed) for feed in self.feeds]
        self.plan.advance_each(self.tables, self.reached, first)
        self.reached = first
        found = psnr.Outputs()
        for name, size in self.sizes.each.items():
            found.each[name] = psnr.Closeness()
            found.each[name].count, found.each[name].peak = size.count, size.peak
        for listed in self.pool.map(_measure_errors, self.whole, self._finish(changed)):
            for name, each in listed.items():
                for error in each:
                    found.each[name].square_error += error
        return found

    def _finish(self, changed: ExecutionPlan) -> list[Values]:
        """Finish all runs with other constants and return their outputs."""
        tables = [
            [value if constant is None else constant for constant, value in zip(changed.start, table)]
            for table in self.tables
        ]
        changed.advance_each(tables, self.reached, len(changed.steps))
        return [self._outputs(changed, table, index) for index, table in enumerate(tables)]

    def _outputs(self, changed: ExecutionPlan, table: list[object], index: int) -> Values:
        """Return the outputs of a run at text positions, as stage `score` compares them."""
        valid = self.valid[index]
        made = {name: np.asarray(one) for name, one in self.model.to_outputs(changed.collect_outputs(table)).items()}
        return {
            name: value[0][valid] if value.ndim == 3 and value.shape[1] == len(valid) else value
            for name, value in made.items()
        }


def _measure_errors(whole: Values, made: Values) -> dict[str, list[float]]:
    """Return the parts of the square error of each output, piece by piece."""
    return {name: psnr.square_errors(reference=value, candidate=made[name]) for name, value in whole.items()}


def measure(path: Path, feeds: list[Values], valid: np.ndarray, params: SensitivityParams) -> Sensitivity:
    """Measure what compressing each weight costs the outputs, at each candidate width."""
    candidates = params.candidates
    recipe = recipes.canonical({"kind": "mixed", **msgspec.to_builtins(params), "bits": max(candidates)})
    assert recipe is not None
    with streaming.stream_weights() as scratch:
        found = settings.list_weights(passes.load_program(path))
    known = {weight.name: weight.value for weight in found}
    names = sorted(settings.resolve(found, recipe, release=scratch.give_back).settings)
    probe = SensitivityProbe(path, feeds, valid)

    def find_all(name: str) -> dict[int, np.ndarray]:
        centres = find_centres(known[name], candidates)
        scratch.give_back()
        return centres

    centres = dict(zip(names, probe.pool.map(find_all, names)))

    def closeness(bits: dict[str, int]) -> psnr.Outputs:
        """Compare outputs when each weight has its palette of the given width."""
        values = {n: _compress(known[n], centres[n][width], scratch.give_back) for n, width in bits.items()}
        found = probe.closeness(values)
        for value in values.values():
            value.forget_forms()
        return found

    weights: dict[str, allot.WeightNoise] = {name: {"elements": known[name].size, "noise": {}} for name in names}
    for name in probe.in_order(names):
        for width in candidates:
            close = closeness({name: width}).together()
            weights[name]["noise"][str(width)] = close.square_error / close.count
    peak = probe.sizes.together().peak if names else 0.0
    curve = _measure_curve(closeness, weights, peak, candidates)
    return {"candidates": candidates, "inputs": len(feeds), "peak": peak, "weights": weights, "curve": curve}


def _compress(weight: np.ndarray, centres: np.ndarray, release: Callable[[], None]) -> Constant:
    """Return a weight with its numbers rounded to the centres as a constant, which is computed whenever it is read."""
    dtype = torch.float16 if weight.dtype == np.float16 else torch.float32
    return Constant(weight.shape, dtype, lambda: torch.from_numpy(round_to_centres(weight, centres)), release)


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
