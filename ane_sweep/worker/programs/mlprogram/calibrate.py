"""Measurements of an ML Program on real inputs, for recipes that need them before they compress."""

from pathlib import Path

import numpy as np

from ane_sweep.mil import package
from ane_sweep.worker.compress import ranges, sensitivity
from ane_sweep.worker.params import SensitivityParams


def measure_ranges(program: Path, samples: list[dict[str, np.ndarray]]) -> ranges.Ranges:
    """Return the smallest and largest value of each activation."""
    (path,) = package.program_paths(program)
    return ranges.measure(path, samples)


def measure_sensitivity(
    program: Path, samples: list[dict[str, np.ndarray]], valid: np.ndarray, wanted: SensitivityParams
) -> sensitivity.Sensitivity:
    """Return the outputs' error for each weight at each width, over the first few samples."""
    (path,) = package.program_paths(program)
    count = sensitivity.INPUTS
    return sensitivity.measure(path, samples[:count], valid[:count], wanted)
