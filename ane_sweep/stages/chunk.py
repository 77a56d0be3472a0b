"""Stage `chunk`: one program becomes `count` programs in a chain, without a change in numerics."""

from pathlib import Path
from typing import Any

from ane_sweep.stages import StageResult


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """Leaves `chunk_01.mlpackage` ... in `out`.

    params   count
    facts    chunk_bytes, boundary_bytes, cut_points: see mil/chunker.py
    Raises errors.ChunkError when the program cannot be cut so often.
    """
    from ane_sweep.mil import chunker, package

    (source,) = package.program_paths(inputs["program"])
    return StageResult(facts=chunker.chunk(source, out, params["count"]))
