"""The ops of a Core AI asset, read in a process of its own: coreai-core 1.0.0b3 kills its process if it cannot read one.

for op in asset_ops.read(Path("model.aimodel")):
    print(op.name, op.takes, op.gives)
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ane_sweep.errors import PackageError
from ane_sweep.machine import coreai

LIMIT_S = 600
_TENSOR = re.compile(r"tensor<((?:[\d?]+x)*)(\w+)")


@dataclass(frozen=True)
class AssetOp:
    """An op: its name without the dialect, its function, the types that it takes and gives as MLIR writes them
    ("tensor<8x8xf16>"), and the names of the ops that make what it takes ("" for an input) and use what it gives.
    """

    name: str
    function: str
    takes: list[str] = field(default_factory=list)
    gives: list[str] = field(default_factory=list)
    makers: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)


def split_type(text: str) -> tuple[tuple[int, ...], str]:
    """Return the shape and the element type of a tensor; an unknown length is -1.

    >>> split_type("tensor<64x2xf8E8M0FNU>")
    ((64, 2), 'f8E8M0FNU')
    """
    if (found := _TENSOR.match(text)) is None:
        return (), text
    return tuple(-1 if part == "?" else int(part) for part in found[1].split("x")[:-1]), found[2]


def read(path: Path) -> list[AssetOp]:
    """Return an asset's ops in order, constants among them. Raises PackageError as `ask` does."""
    return [AssetOp(**one) for one in json.loads(ask("ane_sweep.machine.asset_ops", path))]


def ask(module: str, *words: object) -> str:
    """Run a module of ours in a process of its own and return the JSON text that it prints.

    Errors name the paths among `words`. Raises PackageError without Core AI's packages, or if they cannot read an asset or
    need over LIMIT_S.
    """
    about = ", ".join(str(word) for word in words if isinstance(word, Path))
    if missing := coreai.find_missing():
        raise PackageError(f"{about}: reading Core AI's assets {missing}")
    given = [str(word.absolute()) if isinstance(word, Path) else str(word) for word in words]
    command = [sys.executable, "-P", "-m", module, *given]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise PackageError(f"{about}: coreai-core did not read it within {LIMIT_S} s") from None
    if done.returncode != 0:
        lines = done.stderr.splitlines()
        said = next((line for line in lines if "error" in line.lower()), "".join(lines[-1:]))
        said = said.removeprefix("error: ")[:300]
        if said.startswith("Core AI's runtime"):  # it was read
            raise PackageError(f"{about}: {said}")
        why = said if done.returncode > 0 else f"signal {-done.returncode} ended it; {said}".removesuffix("; ")
        raise PackageError(f"{about}: coreai-core does not read it: {why}; is the folder whole? Copy it again")
    return done.stdout


def _list_ops(path: Path) -> Iterator[AssetOp]:
    from coreai.authoring import AIModelAsset

    module = AIModelAsset.load(path).program._module._mlir_module.operation
    pending = [(module, "")]
    while pending:
        op, function = pending.pop()
        name = shorten(op.name)
        if name == "graph":
            function = str(op.attributes["sym_name"]).strip('"')
        elif name != "builtin.module":
            takes, gives = list(op.operands), list(op.results)
            yield AssetOp(
                name, function, [str(value.type) for value in takes], [str(value.type) for value in gives],
                [shorten(getattr(getattr(value, "owner", None), "name", "")) for value in takes],
                sorted({shorten(use.owner.name) for value in gives for use in value.uses}),
            )  # fmt: skip
        inner = [child for region in op.regions for block in region.blocks for child in block.operations]
        pending += [(child.operation, function) for child in reversed(inner)]


def shorten(name: str) -> str:
    """Return an op's name without its dialect: coreai.decomposable.add -> add."""
    return name.removeprefix("coreai.").removeprefix("decomposable.")


if __name__ == "__main__":
    json.dump([asdict(op) for op in _list_ops(Path(sys.argv[1]))], sys.stdout)
