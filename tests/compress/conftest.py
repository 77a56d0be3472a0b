"""A tiny decoder converted for each OS, and what a recipe makes of it."""

from pathlib import Path

import numpy as np
import pytest
from shipped_recipes import SEQ

from ane_sweep.bridge import recipes
from ane_sweep.planner import options

RANDOM = {"kind": "random", "digest": "random:0", "seed": 0}


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """program(target) -> folder with the converted model.mlpackage."""
    made = {}

    def convert(target: str, **more) -> Path:
        key = target, *sorted(more.items())
        if key not in made:
            from ane_sweep.worker.stages import convert

            option = options.shipped("model", "tiny-gpt2")
            model = {name: option[name] for name in ("family", "task", "arch")}
            made[key] = tmp_path_factory.mktemp(target)
            params = {"model": model, "weights": RANDOM, "variant": "original", "seq_len": SEQ, "compute": "fp16"}
            convert.run({**params, "target": target, **more}, {}, made[key])
        return made[key]

    return convert


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """Folder of a reference task's calibration inputs."""
    from ane_sweep.worker.feeds.arrays import StackWriter

    folder = tmp_path_factory.mktemp("reference")
    ids = np.random.default_rng(3).integers(0, 900, (5, 1, SEQ)).astype(np.int32)
    with StackWriter(folder / "calibration.npz", len(ids)) as stack:
        for index, row in enumerate(ids):
            stack.put(index, {"input_ids": row, "valid": np.ones(SEQ, bool)})
    return folder


@pytest.fixture(scope="session")
def calibration(program, reference, tmp_path_factory):
    """calibration(recipe, target) -> folder with what the recipe must know; measured once."""
    made = {}

    def calibrate(how: dict, target: str = "iOS18") -> Path:
        from ane_sweep.worker.stages import calibrate

        wanted = recipes.calibration(how)
        key = repr(wanted), target
        if key not in made:
            made[key] = tmp_path_factory.mktemp("calibration")
            calibrate.run(wanted, {"program": program(target), "reference": reference}, made[key])
        return made[key]

    return calibrate


@pytest.fixture(scope="session")
def compressed(program, calibration, tmp_path_factory):
    """compressed(recipe, target) -> (StageResult, folder); equal ones are made once."""
    made = {}

    def compress(how: dict, target: str = "iOS18"):
        from ane_sweep.worker.stages import compress

        key = repr(sorted(how.items())), target
        if key not in made:
            folder = tmp_path_factory.mktemp(how["kind"])
            inputs = {"program": program(target)}
            if recipes.calibration(how):
                inputs["calibration"] = calibration(how, target)
            made[key] = compress.run({"recipe": how}, inputs, folder), folder
        return made[key]

    return compress
