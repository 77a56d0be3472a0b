"""Differences between two assets, in a process of its own: outputs in Apple's CPU runtime, ops, planned units, measured durations.

    python -m ane_sweep.worker.programs.coreai.differ describe a.aimodel
    python -m ane_sweep.worker.programs.coreai.differ compare a.aimodel b.aimodel FOLDER UNITS RUNS

The first prints the inputs as JSON; the second takes FOLDER/inputs.npz, writes a.npz and b.npz there, and prints
the rest. Ops are paired by coreai-torch's own graph diff, plans and durations by its plan_diff and timing_diff (0.4.3).
Units and durations exist on macOS 27 alone, and were run here with scripted answers only.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from ane_sweep.errors import StageError
from ane_sweep.machine import stand_in
from ane_sweep.machine.asset_ops import shorten
from ane_sweep.worker.programs.coreai import place
from ane_sweep.worker.programs.coreai.run import CoreAIRuntime

# larger assets pair ops without their weights' values, as each value would be printed into memory
_PRINTED_BYTES = 1 << 30


def _predict(a: Path, b: Path, folder: Path) -> dict[str, np.ndarray]:
    """Write the outputs of both; return the inputs of A."""
    with np.load(folder / "inputs.npz") as file:
        inputs = dict(file)
    taken = {}
    for name, path in (("a", a), ("b", b)):
        model = CoreAIRuntime(path)
        taken[name] = {one: inputs[one].astype(dtype) for one, (dtype, _) in model.take().items()}
        np.savez(folder / f"{name}.npz", **model.predict(taken[name]))  # type: ignore[arg-type]
    return taken["a"]


def _compare(a: Path, b: Path, inputs: dict[str, np.ndarray], units: str, runs: int) -> dict[str, object]:
    from coreai.authoring import AIModelAsset
    from coreai.runtime import SpecializationOptions
    from coreai_torch.debugging.debug_info import _build_coreai_op_map
    from coreai_torch.debugging.graph_diff import op_id_alignment
    from coreai_torch.debugging.graph_match import WeightPolicy
    from coreai_torch.debugging.plan_diff import compare_compute_plans
    from coreai_torch.debugging.timing_diff import compare_runs

    is_large = any(sum(file.stat().st_size for file in path.rglob("*")) > _PRINTED_BYTES for path in (a, b))
    weights = WeightPolicy.IGNORE if is_large else WeightPolicy.DIGEST_PORTABLE
    first, second = (AIModelAsset.load(path).program for path in (a, b))
    found = op_id_alignment(first, second, weights=weights)
    names = [{number: shorten(op.name) for number, op in _build_coreai_op_map(one).items()} for one in (first, second)]
    answer: dict[str, object] = {
        "same": found.identical, "paired": len(found.mapping), "unsure": found.ambiguity.to_dict()["count"], "weights": not is_large,
        "changed": _count(names[0], found.modified), "only_a": _count(names[0], found.removed), "only_b": _count(names[1], found.added),
    }  # fmt: skip
    if not SpecializationOptions.is_supported():
        return answer
    options = place.choose_options(units)
    plan = asyncio.run(compare_compute_plans(first, second, specialization_options=options, weights=weights))
    answer["placement"] = plan.to_dict()
    if runs:
        try:
            timing = asyncio.run(
                compare_runs(first, second, inputs, runs, specialization_options=options, weights=weights)
            )
            answer["timing"] = timing.to_dict()
        except (ValueError, RuntimeError) as error:  # a profile names no op, or B takes other inputs
            answer["untimed"] = str(error)
    return answer


def _count(names: Mapping[int, str], numbers: Iterable[int]) -> dict[str, int]:
    return dict(Counter(names.get(number, "?") for number in numbers).most_common())


def main(command: str, *words: str) -> None:
    """Answer on stdout. A StageError or PackageError ends the process with its text as the last line of stderr."""
    a, *others = map(Path, words[:3])
    try:
        if command == "describe":
            taken = CoreAIRuntime(a).take()
            made: dict[str, object] = {name: [str(dtype), list(shape)] for name, (dtype, shape) in taken.items()}
        else:
            inputs = _predict(a, *others)
            if script := stand_in.active():
                script.install()  # it plans and profiles; the CPU runtime is real
            made = _compare(a, others[0], inputs, words[3], int(words[4]))
    except (StageError, RuntimeError, ValueError) as error:
        sys.exit(f"error: {error}")
    json.dump(made, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
