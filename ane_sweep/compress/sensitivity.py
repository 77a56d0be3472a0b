"""What each weight's compression costs the outputs: one weight at a time takes the values that its palette would give
it, the reference runtime predicts, and the outputs are compared with those of the program as it was converted."""

from pathlib import Path
from typing import Any

import numpy as np

from ane_sweep import recipes
from ane_sweep.compress import allot, passes, settings
from ane_sweep.compress.palettes import kmeans
from ane_sweep.mil import graph, package
from ane_sweep.mil.weights import BlobFile
from ane_sweep.runtimes import _reference
from ane_sweep.stages import _metrics

INPUTS = 4  # of the calibration inputs: each costs a prediction per weight and width
_AVERAGES = (8, 7, 6, 5, 4.5, 4, 3.5, 3, 2.5, 2, 1.5, 1)  # points of the curve, as far as the candidates reach


class Swapped(BlobFile):
    """A weight file with some payloads replaced."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.swaps: dict[int, np.ndarray] = {}

    def payload(self, offset: int) -> np.ndarray:
        swap = self.swaps.get(offset)
        return super().payload(offset) if swap is None else swap.reshape(-1).view(np.uint8)


class Probe:
    """A program whose weights can be given other values, compared with itself as it was."""

    def __init__(self, path: Path, feeds: list[dict[str, Any]], valid: np.ndarray):
        self.package, self.feeds, self.valid = package.read(path), feeds, valid
        self.blobs = Swapped(self.package.blobs(package.WEIGHTS_NAME).path)
        self.package._blobs[package.WEIGHTS_NAME] = self.blobs
        consts = [op.proto for op in graph.program(self.package).ops if op.type == "const"]
        self.offsets = {proto.outputs[0].name: proto.attributes["val"].blobFileValue.offset for proto in consts}
        self.whole = self._outputs()

    def closeness(self, values: dict[str, np.ndarray]) -> _metrics.Closeness:
        """How close the outputs come with `values` in place of the weights of those names."""
        self.blobs.swaps = {self.offsets[name]: np.ascontiguousarray(value) for name, value in values.items()}
        found = _metrics.Closeness()
        for reference, candidate in zip(self.whole, self._outputs()):
            for name in reference:
                found.add(reference=reference[name], candidate=candidate[name])
        return found

    def _outputs(self) -> list[dict[str, np.ndarray]]:
        model = _reference.load(self.package)
        made = (model.predict(feed, model.new_state() if model.states else None) for feed in self.feeds)
        return [
            {name: self._rows(np.asarray(value), valid) for name, value in outputs.items()}
            for outputs, valid in zip(made, self.valid)
        ]

    @staticmethod
    def _rows(value: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """The positions that hold text, as stage `score` compares them."""
        return value[0][valid] if value.ndim == 3 and value.shape[1] == len(valid) else value


def measure(path: Path, feeds: list[dict[str, Any]], valid: np.ndarray, wanted: dict[str, Any]) -> dict[str, Any]:
    """See allot.py for the form. `wanted`: candidates, min_elements, skip of the recipe."""
    recipe = recipes.canonical({"kind": "mixed", **wanted, "bits": max(wanted["candidates"])})
    assert recipe is not None
    known = {weight.name: weight for weight in settings.weights_of(passes.program_of(path))}
    names = sorted(settings.resolve(list(known.values()), recipe).settings)
    probe = Probe(path, feeds, valid)
    weights: dict[str, Any] = {}
    peak = 0.0
    for name in names:
        noise = {}
        for bits in wanted["candidates"]:
            close = probe.closeness({name: palettized(known[name].value, bits)})
            noise[str(bits)], peak = close.square_error / close.count, close.peak
        weights[name] = {"elements": known[name].value.size, "noise": noise}
    found = {"candidates": wanted["candidates"], "inputs": len(feeds), "peak": peak, "weights": weights}
    return found | {"curve": _curve(probe, known, weights, peak, wanted["candidates"])}


def palettized(value: np.ndarray, bits: int) -> np.ndarray:
    """The values of a weight under a table of its own."""
    table, index = kmeans(value, bits)
    return table[index].reshape(value.shape)


def _curve(
    probe: Probe, known: dict[str, Any], weights: dict[str, Any], peak: float, candidates: list[int]
) -> list[dict[str, Any]]:
    """PSNR against size, all weights compressed together; `expected_db` is what adding up the noises would say."""
    rows = []
    for average in _AVERAGES:
        if not min(candidates) <= average <= max(candidates):
            continue
        bits = allot.allotted(weights, average)
        close = probe.closeness({name: palettized(known[name].value, bits[name]) for name in bits})
        rows.append(
            {
                "average_bits": allot.average_bits(weights, bits),
                "bytes": int(sum(weights[name]["elements"] * bits[name] for name in bits) / 8),
                "psnr_db": _metrics.recorded_db(close.psnr_db()),
                "expected_db": allot.expected_db(weights, peak, bits),
                "bits": bits,
            }
        )
    return rows
