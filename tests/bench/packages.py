"""packages that others made: each below the folders given is linted, run, and cut in two that compute the same bits"""

import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ane_sweep.bridge import protocol
from ane_sweep.bridge.cell import digest
from ane_sweep.errors import AneSweepError, ConfigError
from tests.bench import Row

TIMEOUT_S = 240
KINDS = ("mlProgram", "pipeline")
_WRITER = "com.github.apple.coremltools.version"
STEPS = ("lint", "run", "chunk")


def run(*folders: Path) -> list[Row]:
    """A row a package: its folder and name; then writer, ops, weights, licence, and what each verb came to."""
    if not folders:
        raise ConfigError("packages: give one or more folders; every .mlpackage and .mlmodelc below them is tried")
    rows: dict[str, Row] = {}
    for folder in folders:
        for path in _below(folder):
            if (content := _content(path)) not in rows:
                rows[content] = _tried(path, folder)
                print(f"{rows[content].what}: {rows[content].ours}", file=sys.stderr, flush=True)
    return list(rows.values())


def _below(folder: Path) -> list[Path]:
    return sorted(path for suffix in ("mlpackage", "mlmodelc") for path in folder.rglob(f"*.{suffix}") if path.is_dir())


def _content(path: Path) -> str:
    """Of its programs alone: the same package in two places of a repository is one."""
    files = [file for name in ("*.mlmodel", "model.mil") for file in sorted(path.rglob(name))]
    return digest([file.read_bytes().hex() for file in files] or [str(path)])


def _tried(path: Path, root: Path) -> Row:
    first, *rest = path.relative_to(root).parts
    what = f"{first.replace('+', '/')} {'/'.join(rest) or '.'}".replace(" /", "/")
    with tempfile.TemporaryDirectory() as folder:
        try:
            whole, weights, writer, ops = _whole(path, Path(folder))
        except AneSweepError as error:
            return Row(what, f"not read: {_plain(str(error), path)}")
        said = _trial(whole)
    marks = ", ".join(f"{step} {'yes' if one['ok'] else 'no'}" for step, one in said.items())
    told = "; ".join(f"{step}: {_plain(one['said'], whole)}" for step, one in said.items() if one["said"])
    return Row(what, f"writer {writer}; {ops} ops; weights {weights}; {_licence(root / first)}; {marks}; {told}")


def _trial(path: Path) -> dict[str, dict[str, Any]]:
    """What each step came to, whatever ended the process."""
    command = [sys.executable, "-P", "-m", "tests.bench._trial", str(path)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        try:
            code = subprocess.run(
                command, stdout=out, stderr=errors, timeout=TIMEOUT_S, env=protocol.python_environment(), check=False
            ).returncode
            end = f"its process ended with {code}"
        except subprocess.TimeoutExpired:
            end = f"over {TIMEOUT_S} s here"
        out.seek(0)
        errors.seek(0)
        said: dict[str, dict[str, Any]] = {}
        for line in out:
            said |= json.loads(line)
        last = (errors.read().strip().splitlines() or [""])[-1]
    for index, step in enumerate(STEPS):
        why = f"{end} {last}".strip() if index == len(said) else "not reached"
        said.setdefault(step, {"ok": False, "said": why})
    return said


def _plain(text: str, path: Path) -> str:
    """A reason without the paths of this host."""
    short = text.removeprefix("error: ").replace(f"{path}/", "").replace(str(path), path.name)
    return " ".join(re.sub(r"/tmp/\S*/", "", short).replace("|", "/").split())[:300]


def _licence(folder: Path) -> str:
    """The first line of the licence that lies beside the packages."""
    files = sorted(folder.glob("LICEN[SC]E*"))
    lines = files[0].read_text(encoding="utf-8", errors="replace").split("\n") if files else []
    return next(
        (" ".join(line.strip("# ").replace("|", "/").split())[:40] for line in lines if line.strip()),
        "licence not said",
    )


def _whole(path: Path, folder: Path) -> tuple[Path, str, str, int]:
    """(a package with all its weights, whose they are, who wrote it, ops that compute)."""
    from ane_sweep.mil import package

    found = package.read(path, kinds=KINDS)
    specs = list(_programs(found.spec))
    ops = sum(op.type != "const" and not op.type.startswith("constexpr_") for spec in specs for op in _operations(spec))
    missing = _missing(found, specs)
    if not missing:
        return path, "own", _writer(found.spec, specs), ops
    target = folder / path.name
    shutil.copytree(path, target)
    for name, records in missing.items():
        base = target / found.model_path.parent.relative_to(path)
        _make_weights(base / name.removeprefix("@model_path/"), records)
    return target, "made here", _writer(found.spec, specs), ops


def _programs(spec: Any) -> Iterator[Any]:
    if spec.WhichOneof("Type") == "mlProgram":
        yield spec
    for model in spec.pipeline.models if spec.WhichOneof("Type") == "pipeline" else []:
        yield from _programs(model)


def _operations(spec: Any) -> Iterator[Any]:
    for function in spec.mlProgram.functions.values():
        for block in function.block_specializations.values():
            yield from block.operations


def _writer(spec: Any, specs: list[Any]) -> str:
    for one in (spec, *specs):
        said = one.description.metadata.userDefined.get(_WRITER)
        built = one.mlProgram.attributes.get("buildInfo")
        for pair in built.immediateValue.dictionary.values if built is not None and not said else []:
            if "coremltools-version" in str(pair.key):
                said = pair.value.immediateValue.tensor.strings.values[0]
        if said:
            return str(said)
    return "not said"


def _missing(found: Any, specs: list[Any]) -> dict[str, dict[int, Any]]:
    """By weight file that is not there, or of which git-lfs left a pointer: the tensor type at each offset."""
    from ane_sweep.mil.element_types import tensor_type
    from ane_sweep.mil.weights import blob_values

    records: dict[str, dict[int, Any]] = defaultdict(dict)
    for value in (value for spec in specs for op in _operations(spec) for value in blob_values(op)):
        records[value.blobFileValue.fileName][value.blobFileValue.offset] = tensor_type(value.type)
    return {name: kinds for name, kinds in records.items() if not _is_there(found, name)}


def _is_there(found: Any, name: str) -> bool:
    try:
        return bool(found.has(name) and found.blobs(name).size > 0)
    except AneSweepError:
        return False


def _make_weights(target: Path, records: dict[int, Any]) -> None:
    """A weight file with seeded numbers at the offsets that a program refers to: of a matrix about 1 over the root of its
    columns, of a vector from 0.25 to 0.75; whole numbers are 0.
    """
    import numpy as np

    from ane_sweep.mil import weights
    from ane_sweep.mil.element_types import NUMPY

    codes = {name: (code, bits) for code, (name, bits) in weights.DTYPES.items()}
    generator = np.random.default_rng(0)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as file:
        file.write(struct.pack("<II", len(records), weights.VERSION).ljust(weights.ALIGNMENT, b"\0"))
        for offset, kind in sorted(records.items()):
            code, bits = codes["uint8" if kind.dtype == "bool" else kind.dtype]
            size, start = -(-kind.count * bits // 8), offset + weights.ALIGNMENT
            record = struct.pack("<IIQQQ", weights.SENTINEL, code, size, start, 0)
            numbers = bytes(size)
            if kind.dtype in ("fp16", "fp32"):
                drawn = generator.random(kind.count, np.float32)
                columns = max(1, kind.count // (kind.shape[0] or 1))
                drawn = (2 * drawn - 1) / np.sqrt(columns) if len(kind.shape) > 1 else drawn / 2 + 0.25
                numbers = drawn.astype(NUMPY[kind.dtype]).tobytes()
            file.seek(offset)
            file.write(record.ljust(weights.ALIGNMENT, b"\0") + numbers)
        file.write(bytes(weights.ALIGNMENT))
