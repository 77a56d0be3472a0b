"""Stage `chunk`: one program becomes a chain of programs, without a change in numerics.

params  count (a number, or "auto"), by ("bytes" | "layers" | "time"), own ("none" | "embeddings" | "head" | "both"), pipeline
        ("manual" | "coreml" | "bisect"); cuts, places of one's own (mil/cut_words.py), where there are any; chip
        where by=time; program_bytes, mapped_bytes where count=auto
inputs  program: model.mlpackage
leaves  chunk_01.mlpackage ..., or with pipeline=coreml model.mlpackage: one Core ML pipeline package of them
"""

import shutil
from pathlib import Path
from typing import Any

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.mil import cut_words
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=60, many="chunkings", timeout_s=1800, base_gib=0.2, per_byte=0.2, guess_s=1, guess_per_gb=3,
    leaves="same program", compressed=True, artifact=True, reads=("placement/data/**/*",),
    warm=("ane_sweep.mil.chunker", "ane_sweep.placement.predict"),
)  # fmt: skip

PIPELINES = ("manual", "coreml", "bisect")


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """See the module's docstring.

    facts    chunks, chunk_bytes, boundary_bytes, cut_points, largest_tensor_bytes: see mil/chunker.py
    realised  chunks, and `cut` where the cut is uneven or far from what was asked: a sentence; of cuts of one's own chunk_bytes
              and cut_behind, the ops that they came to
    metrics  chunk_bytes_max, chunk_bytes_ideal (an equal share), boundary_bytes (all cuts together)
    Raises errors.ChunkError when the program cannot be cut so.
    """
    from ane_sweep.mil import chunker, package
    from ane_sweep.placement import flexible

    (source,) = package.program_paths(inputs["program"])
    if params["pipeline"] == "bisect":
        facts = _bisect_program(source, out)
    else:
        asked = {
            name: params[name] for name in ("count", "by", "own", "program_bytes", "mapped_bytes") if name in params
        }
        at = tuple(cut_words.parse_places(params.get("cuts", [])))
        request = chunker.ChunkRequest(**asked, times=_estimate_times(source, params), at=at, varying=flexible.varying)
        facts = chunker.chunk(source, out, request)
    if params["pipeline"] == "coreml" and facts["chunks"] > 1:
        _merge(out)
    said = {"cut": "; ".join(facts["notes"])} if facts.get("notes") else {}
    if params.get("cuts"):
        said |= {name: facts[name] for name in ("chunk_bytes", "cut_behind")}
    return StageResult(_list_metrics(facts), realised={"chunks": facts["chunks"], **said}, facts=facts)


def _estimate_times(source: Path, params: dict[str, Any]) -> dict[str, float]:
    if params["by"] != "time":
        return {}
    from ane_sweep.placement import times

    return times.op_times(source, params["chip"])


def _merge(out: Path) -> None:
    from ane_sweep.mil import package, pipeline

    chunks = package.program_paths(out)
    pipeline.merge(chunks, out / "model.mlpackage")
    for path in chunks:
        shutil.rmtree(path)


def _bisect_program(source: Path, out: Path) -> dict[str, Any]:
    """coremltools' own cut in two. Its check would run all three programs in Core ML; our stage `score` says as much."""
    from coremltools.models.utils import bisect_model

    from ane_sweep.mil import cuts, graph, line, package

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
