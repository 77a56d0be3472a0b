"""p4 and int8_channel of gpt2-xl (random weights) beside coremltools' own: time and memory, a process each (some 15 minutes)

`ANE_SWEEP_MODELS=gpt2` compresses another option instead.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ane_sweep.bridge import protocol
from ane_sweep.machine import processes
from tests.bench import Row

MODEL, RECIPES, LIMIT_S = "gpt2-xl", ("p4", "int8_channel"), 1800
RATIO = 1.2  # of the largest weight, plus a constant: what memory may come to


def run() -> list[Row]:
    """A row a recipe and model; memory is what cannot be reclaimed (pages of mapped files can), read ten times a second."""
    return [row for name in os.environ.get("ANE_SWEEP_MODELS", MODEL).split(",") for row in _rows(name)]


def _rows(name: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        _child(["tests.bench.conversions", name, "original", folder], out)
        rows = []
        for recipe in RECIPES:
            ours, theirs = (_child([__name__, side, recipe, folder], out) for side in ("ours", "coremltools"))
            ratio = f"{ours['cpu_s'] / theirs['cpu_s']:.2f} of the CPU time" if "cpu_s" in theirs else ""
            bar = f"{RATIO} x the largest weight ({ours['largest_bytes'] / 2**20:.0f} MiB) and a constant"
            rows.append(Row(f"{name} {recipe}", _told(ours), _told(theirs), ratio, bar))
        return rows


def _told(said: dict[str, Any]) -> str:
    if "cpu_s" not in said:
        return f"not done after {LIMIT_S} s"
    gib = [said[kind] / 2**30 for kind in ("most_bytes", "imported_bytes")]
    return f"{said['wall_s']:.0f} s, {said['cpu_s']:.0f} s of CPU, {gib[0]:.2f} GiB ({gib[1]:.2f} once imported)"


def _child(command: list[str], tmp: Path) -> dict[str, Any]:
    """One process: what it says, and what it took. Raises CalledProcessError where it fails."""
    began, used = time.perf_counter(), _children_s()
    env = {**protocol.python_environment(), "TMPDIR": str(tmp)}
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([sys.executable, "-P", "-m", *command], stdout=said, stderr=errors, env=env)
        most = 0
        with processes.ProcessExit(process.pid) as gone:
            while not gone.wait(0.1):
                most = max(most, processes.tree_bytes(process.pid))
                if time.perf_counter() - began > LIMIT_S:
                    process.kill()
        if process.wait() == -9:
            return {}
        said.seek(0)
        errors.seek(0)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, stderr=errors.read()[-2000:])
        told = json.loads(said.read().splitlines()[-1])
    return {**told, "wall_s": time.perf_counter() - began, "cpu_s": _children_s() - used, "most_bytes": most}


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compress_one(side: str, name: str, folder: str) -> dict[str, int]:
    """Compress what was converted into `folder`, by this side, in this process."""
    import coremltools as ct
    import coremltools.optimize.coreml as cto
    import torch  # noqa: F401 (coremltools brings it in any case)

    from ane_sweep.worker.stages import compress

    imported = processes.tree_bytes(os.getpid())
    source, out = Path(folder, "out"), Path(folder, f"{side}-{name}")
    out.mkdir()
    if side == "ours":
        compress.run({"recipe": _recipe(name)}, {"program": source}, out)
    else:
        config: Any = (
            cto.OpPalettizerConfig(nbits=4, weight_threshold=2048)
            if name == "p4"
            else cto.OpLinearQuantizerConfig(weight_threshold=2048)
        )
        through = cto.palettize_weights if name == "p4" else cto.linear_quantize_weights
        model = ct.models.MLModel(str(source / "model.mlpackage"), skip_model_load=True)
        through(model, cto.OptimizationConfig(global_config=config)).save(str(out / "model.mlpackage"))
    return {"imported_bytes": imported, "largest_bytes": _largest(source / "model.mlpackage")}


def _recipe(name: str) -> Any:

    from ane_sweep.bridge import recipes
    from ane_sweep.bridge.settings import read_precision
    from ane_sweep.planner import options

    option = options.shipped("precision", name)
    return recipes.canonical(read_precision(option).weights)


def _largest(path: Path) -> int:
    from ane_sweep.mil import graph, package
    from ane_sweep.mil.weights import BlobFile

    ops = graph.view_program(package.read(path)).ops
    values = [value for op in ops for value in op.proto.attributes.values() if value.HasField("blobFileValue")]
    file = BlobFile(path / "Data" / "com.apple.CoreML" / "weights" / "weight.bin")
    return max(file.record(value.blobFileValue.offset).size for value in values)


if __name__ == "__main__":
    print(json.dumps(compress_one(*sys.argv[1:])))
