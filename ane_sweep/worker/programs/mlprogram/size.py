"""Sizes of packages that coremltools wrote, and removal of random parts from them."""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ane_sweep.worker.pymil import Block, Operation, PymilProgram

MLMODEL = Path("Data", "com.apple.CoreML", "model.mlmodel")
WEIGHTS = Path("Data", "com.apple.CoreML", "weights", "weight.bin")


def measure_bytes(program: Path) -> int:
    """Return the bytes of a package on disk."""
    return sum(path.stat().st_size for path in program.rglob("*") if path.is_file())


def compute_bits_per_weight(program: Path, numbers: int) -> float:
    """Return the bits of the weight file (tables, scales, masks, alignment included) per dense number."""
    path = program / WEIGHTS
    return 8 * path.stat().st_size / numbers if path.exists() and numbers else 0.0


def count_float_numbers(program: PymilProgram) -> int:
    """Count the floating-point numbers in the constants of a coremltools program."""
    values = [op.outputs[0].val for op in list_ops(program) if op.op_type == "const"]
    return sum(v.size for v in values if isinstance(v, (np.ndarray, np.generic)) and v.dtype.kind == "f")


def list_ops(program: PymilProgram) -> list[Operation]:
    """Return all ops of a coremltools program, those in loops and branches included."""
    found: list[Operation] = []
    pending: list[Block] = [*program.functions.values()]
    while pending:
        for op in pending.pop().operations:
            found.append(op)
            pending += op.blocks
    return found


def make_deterministic(package: Path, notes: Mapping[str, str] = MappingProxyType({})) -> None:
    """Rewrite a package so that equal parameters give equal bytes: the order of protobuf maps, and identifiers in the manifest.

    notes: further user-defined metadata.
    """
    from coremltools.proto import Model_pb2

    path = package / MLMODEL
    spec = Model_pb2.Model()
    spec.ParseFromString(path.read_bytes())
    spec.description.metadata.userDefined.update(notes)
    path.write_bytes(spec.SerializeToString(deterministic=True))
    manifest_path = package / "Manifest.json"
    manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
    items: dict[str, dict[str, str]] = manifest["itemInfoEntries"]
    names = {old: str(uuid.uuid5(uuid.NAMESPACE_URL, item["path"])).upper() for old, item in items.items()}
    manifest["itemInfoEntries"] = {names[old]: item for old, item in items.items()}
    manifest["rootModelIdentifier"] = names[manifest["rootModelIdentifier"]]
    manifest_path.write_text(json.dumps(manifest, indent=4, sort_keys=True) + "\n", encoding="utf-8")
