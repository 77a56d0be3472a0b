"""What one package of others goes through, in a process of its own: lint, one prediction, a cut in two that computes the same.

A line of JSON after each step, so that what was done is told though a later step crashes or is over its time.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ane_sweep.errors import AneSweepError

CHIP, UNITS = "m4", "all"
_COUNT = 2


def main(path: Path) -> None:
    made: dict[str, Any] = {}
    steps: list[tuple[str, Callable[[], str]]] = [
        ("lint", lambda: _lint(path)),
        ("run", lambda: _run(path, made)),
        ("chunk", lambda: _cut(path, made)),
    ]
    for name, step in steps:
        try:
            said = {"ok": True, "said": step()}
        except AneSweepError as error:
            said = {"ok": False, "said": str(error)}
        print(json.dumps({name: said}), flush=True)


def _lint(path: Path) -> str:
    """How many ops are predicted to run on the Neural Engine."""
    from ane_sweep.placement import chips, predict, programs

    ops = predict.predict_chain(programs.load_chain([path]), chips.get(CHIP), UNITS).summary().ops
    return f"{ops.ane} of {ops.total} on the ANE"


def _run(path: Path, made: dict[str, Any]) -> str:
    """One prediction on seeded inputs; what goes in and comes out is kept for the cut."""
    import numpy as np

    from ane_sweep import reference
    from ane_sweep.verbs.run import read_inputs

    model = reference.load(path)
    made["given"] = read_inputs([], model.inputs, 0)
    made["whole"] = model.predict(made["given"])
    numbers = [value for value in made["whole"].values() if isinstance(value, np.ndarray) and value.dtype.kind == "f"]
    return "" if all(np.isfinite(value).all() for value in numbers) else "some outputs are not finite"


def _cut(path: Path, made: dict[str, Any]) -> str:
    """Two chunks, and whether every output that they give is the whole's, bit by bit (a pipeline's last model is left out, so
    its program alone is run beside them).
    """
    from ane_sweep.mil import chunker, package
    from ane_sweep.placement import flexible

    with tempfile.TemporaryDirectory() as folder:
        facts = chunker.chunk(path, Path(folder), chunker.ChunkRequest(_COUNT, varying=flexible.varying))
        chunks = package.program_paths(Path(folder))
        held = ", ".join(f"{size / 1e6:.1f}" for size in facts["chunk_bytes"])
        if "whole" not in made:
            return f"{held} MB, not run"
        whole = made["whole"]
        if facts.get("left_out"):
            whole = _chain([chunker.extract_program(path, Path(folder) / "alone.mlpackage")], made["given"])
        _compare(whole, _chain(chunks, made["given"]))
        return f"{held} MB"


def _chain(paths: list[Path], given: dict[str, Any]) -> dict[str, Any]:
    from ane_sweep import reference

    values = dict(given)
    for path in paths:
        model = reference.load(path)
        values |= model.predict({name: values[name] for name in model.inputs if name in values})
    return values


def _compare(whole: dict[str, Any], cut: dict[str, Any]) -> None:
    import numpy as np

    differ = [name for name, value in whole.items() if not _same(np, value, cut.get(name))]
    if differ:
        raise AneSweepError(f"its chunks give another {', '.join(differ)} than the whole")


def _same(np: Any, one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return other is not None and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return bool(one == other)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
