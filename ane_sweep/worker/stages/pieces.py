"""pieces: makes a separate program from some chunks of a chain, with inputs and outputs to run and score it.

params  first, last (numbers of chunks, from 1), pipeline ("manual" | "coreml")
inputs  program: the whole chain; reference
leaves  chunk_01.mlpackage and on, model.mlpackage of one, or with pipeline=coreml model.mlpackage: one pipeline of them;
        inputs.npz: the outputs of the earlier chunks for the reference's inputs; outputs.npz: the pieces' outputs for
        these inputs. The reference runtime computes both in fp32, rounded to the type that passes between chunks
"""

import shutil
from pathlib import Path

import numpy as np

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.mil import chain, package, pipeline
from ane_sweep.worker import params
from ane_sweep.worker.feeds.arrays import Inputs, StackWriter
from ane_sweep.worker.programs.mlprogram import size as packages
from ane_sweep.worker.runtimes.reference import ReferenceRuntime
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=65, many="choices of pieces", timeout_s=3600, base_gib=0.6, per_byte=1.2, base_s=1, per_gb_s=3,
    leaves="same program", compressed=True, artifact=True, limited=False, packages=True,
)  # fmt: skip


class Params(params.Params, frozen=True):
    """Parameters of this stage; see the module's docstring."""

    first: int
    last: int
    pipeline: str


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Extract the pieces. Raises errors.ChunkError for a number beyond the chain, errors.UnsupportedOp for unknown ops."""
    settings = Params.read(params)
    first, last = settings.first, settings.last
    paths = package.program_paths(inputs["program"])
    made = chain.take_pieces(paths, first, last, out)
    _write_reference(paths[: first - 1], made, inputs["reference"], out)
    if settings.pipeline == "coreml" and len(made) > 1:
        pipeline.merge(made, out / "model.mlpackage")
        for path in made:
            shutil.rmtree(path)
    size = sum(packages.measure_bytes(path) for path in package.program_paths(out))
    pieces = f"{first}-{last} of {len(paths)}" if last > first else f"{first} of {len(paths)}"
    return StageResult(
        [Metric("package_bytes", size, "bytes")], realised={"pieces": pieces, "chunks": last - first + 1}
    )


def _write_reference(before: list[Path], pieces: list[Path], reference: Path, out: Path) -> None:
    """Write inputs and outputs of the pieces; each chunk processes all inputs before the next, so one chunk is in memory at a time."""
    values = list(Inputs(reference))
    for path in before:
        runtime = ReferenceRuntime([path], "fp32")
        for known in values:
            known |= runtime.predict({name: known[name] for name in runtime.models[0].inputs})
    runtime = ReferenceRuntime(pieces, "fp32")
    names = list(runtime.inputs)
    with (
        StackWriter(out / "inputs.npz", len(values)) as feeds,
        StackWriter(out / "outputs.npz", len(values)) as results,
    ):
        for index, known in enumerate(values):
            taken = {name: known[name] for name in names}
            feeds.put(index, {**taken, "valid": np.ones(1, bool)})
            results.put(index, runtime.predict(taken))
