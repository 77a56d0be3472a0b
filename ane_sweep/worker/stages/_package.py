"""What stages do with a package that coremltools has just written."""

import json
import uuid
from pathlib import Path
from typing import Any

MLMODEL = Path("Data", "com.apple.CoreML", "model.mlmodel")
WEIGHTS = Path("Data", "com.apple.CoreML", "weights", "weight.bin")


def size(package: Path) -> int:
    """Bytes on disk."""
    return sum(path.stat().st_size for path in package.rglob("*") if path.is_file())


def bits_per_weight(package: Path, numbers: int) -> float:
    """Bits of the weight file (tables, scales, masks and alignment included) for each of `numbers` dense numbers."""
    path = package / WEIGHTS
    return 8 * path.stat().st_size / numbers if path.exists() and numbers else 0.0


def float_numbers(program: Any) -> int:
    """How many floating-point numbers the constants of a coremltools program hold."""
    values = [
        op.outputs[0].val
        for function in program.functions.values()
        for op in function.operations
        if op.op_type == "const"
    ]
    return sum(value.size for value in values if getattr(getattr(value, "dtype", None), "kind", "") == "f")


def settle(package: Path) -> None:
    """Rewrite what coremltools leaves to chance, so that equal parameters give equal bytes: order of protobuf maps,
    random identifiers in the manifest."""
    from coremltools.proto import Model_pb2

    path = package / MLMODEL
    spec = Model_pb2.Model()
    spec.ParseFromString(path.read_bytes())
    path.write_bytes(spec.SerializeToString(deterministic=True))
    manifest_path = package / "Manifest.json"
    manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
    names = {old: str(uuid.uuid5(uuid.NAMESPACE_URL, item["path"])).upper() for old, item in _items(manifest)}
    manifest["itemInfoEntries"] = {names[old]: item for old, item in _items(manifest)}
    manifest["rootModelIdentifier"] = names[manifest["rootModelIdentifier"]]
    manifest_path.write_text(json.dumps(manifest, indent=4, sort_keys=True) + "\n", encoding="utf-8")


def _items(manifest: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return list(manifest["itemInfoEntries"].items())
