"""chunk: cuts one program into a chain of programs that compute the same bits, and proves it op by op.

params  count (a number, or "auto"), by ("bytes" | "layers" | "time"), own ("none" | "embeddings" | "head" | "both"), pipeline
        ("manual" | "coreml" | "bisect"); cuts, the user's own places (mil/cut_words.py), if any; chip with by=time;
        program_bytes, mapped_bytes with count=auto
inputs  program: model.mlpackage
leaves  chunk_01.mlpackage ..., or with pipeline=coreml model.mlpackage: one Core ML pipeline package of them
"""

import shutil
from pathlib import Path
from typing import Any, Literal

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.mil import chunker, cut_words, cuts, graph, line, package, pipeline
from ane_sweep.placement import flexible, predict
from ane_sweep.worker import params
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=60, many="chunkings", timeout_s=1800, base_gib=0.15, per_byte=0.0, base_s=0.5, per_gb_s=1,
    leaves="same program", compressed=True, artifact=True, reads=("placement/data/**/*",),
    warm=("ane_sweep.mil.chunker", "ane_sweep.placement.predict"), packages=True, holds="nothing",
)  # fmt: skip

PIPELINES = ("manual", "coreml", "bisect")


class Params(params.Params, frozen=True):
    """Parameters of this stage; see the module's docstring."""

    count: int | Literal["auto"]
    by: str
    own: str
    pipeline: str
    cuts: list[str | int | float] = []
    chip: str = ""
    program_bytes: int | None = None
    mapped_bytes: int | None = None


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Cut the program. Raises errors.ChunkError if it cannot be cut as requested.

    facts    chunks, chunk_bytes, boundary_bytes, cut_points, largest_tensor_bytes: see mil/chunker.py
    realised  chunks, and `cut`, a sentence, if the cut is uneven or far from the request; for cuts that the user chose
              also chunk_bytes and cut_behind, the ops before the cuts
    metrics  chunk_bytes_max, chunk_bytes_ideal (an equal share), boundary_bytes (all cuts together)
    """
    settings = Params.read(params)
    (source,) = package.program_paths(inputs["program"])
    if settings.pipeline == "bisect":
        facts = _bisect_program(source, out)
    else:
        request = chunker.ChunkRequest(
            count=settings.count,
            by=settings.by,
            own=settings.own,
            program_bytes=settings.program_bytes,
            mapped_bytes=settings.mapped_bytes,
            times=predict.op_times(source, settings.chip) if settings.by == "time" else {},
            at=tuple(cut_words.parse_places(settings.cuts)),
            varying=flexible.varying,
        )
        facts = chunker.chunk(source, out, request)
    if settings.pipeline == "coreml" and facts["chunks"] > 1:
        chunks = package.program_paths(out)
        pipeline.merge(chunks, out / "model.mlpackage")
        for path in chunks:
            shutil.rmtree(path)
    notes = {"cut": "; ".join(facts["notes"])} if facts.get("notes") else {}
    if settings.cuts:
        notes |= {name: facts[name] for name in ("chunk_bytes", "cut_behind")}
    return StageResult(_list_metrics(facts), realised={"chunks": facts["chunks"], **notes}, facts=facts)


def _bisect_program(source: Path, out: Path) -> dict[str, Any]:
    """Cut with coremltools' bisect_model, without its check, which would run all programs in Core ML, as stage `score` does."""
    from coremltools.models.utils import bisect_model

    bisect_model(str(source), str(out), merge_chunks_to_pipeline=False, check_output_correctness=False)
    lines = []
    for index in range(2):
        made = out / package.chunk_name(index)
        (out / f"{source.stem}_chunk{index + 1}.mlpackage").rename(made)
        lines.append(line.line_up(graph.load(made)))
    first, second = (chunk.program for chunk in lines)
    kinds = [second.tensor_type(name) for name in second.inputs if name in first.outputs]
    return {
        "chunks": 2,
        "chunk_bytes": [cuts.weight_bytes(chunk, [])[0] for chunk in lines],
        "boundary_bytes": [sum(kind.byte_count for kind in kinds if kind is not None)],
        "largest_tensor_bytes": max(chunk.largest for chunk in lines),
    }


def _list_metrics(facts: dict[str, Any]) -> list[Metric]:
    figures = {
        "chunk_bytes_max": max(facts["chunk_bytes"]),
        "chunk_bytes_ideal": sum(facts["chunk_bytes"]) / facts["chunks"],
        "boundary_bytes": sum(facts["boundary_bytes"]),
    }
    return [Metric(name, value, "bytes") for name, value in figures.items()]
