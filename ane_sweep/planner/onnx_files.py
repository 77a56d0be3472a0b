"""model=onnx: the inputs, content and unsupported ops of an ONNX file, read without converting or running it."""

import importlib.metadata
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from ane_sweep.bridge import onnx_ops, shapes
from ane_sweep.bridge.cell import digest
from ane_sweep.bridge.plan import Source
from ane_sweep.errors import ConfigError
from ane_sweep.planner.checkpoint_files import add_samples, file_digest, find_model

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

KIND = "onnx"  # of a Source
FILE = "file"  # the role that a worker finds it under
_OPSETS = (6, 21)
_LFS = b"version https://git-lfs.github.com/spec/"
_FLOATS, _BYTE, _BOOL = (1, 10, 11), 2, 9  # TensorProto.DataType: float, float16, double; uint8; bool
_DTYPES = dict.fromkeys(_FLOATS, "float32") | dict.fromkeys(range(2, 7), "int32") | {7: "int64", _BOOL: "bool"}
_PASSES = {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Add", "Where", "Transpose"}


def resolve(composed: Mapping[str, object], weights: str, seed: int, digests: Path) -> Source:
    """Return the source of an ONNX file. Raises ConfigError with every problem of the file."""
    option, path, what = find_model(composed, weights, "FILE.onnx", "file")
    model = read(path, what)
    entries = (entry for one in model.graph.initializer for entry in one.external_data if entry.key == "location")
    parts = {path.name: path, **{entry.value: path.parent / entry.value for entry in entries}}
    if lost := [str(part) for part in parts.values() if not part.is_file()]:
        raise ConfigError(
            f"{what}: its weights are in other files, which are missing: {', '.join(lost)}; copy them there"
        )
    inputs = _describe_inputs(model, dict(option.inputs or {}), what)
    digest_of = {name: file_digest(part, digests) for name, part in parts.items()}
    arch: dict[str, object] = {
        "path": str(option.path), "inputs": inputs, "files": digest_of,
        "packages": {name: importlib.metadata.version(name) for name in onnx_ops.NEEDED},
    }  # fmt: skip
    beside = {FILE: path}
    add_samples(option.samples, beside, arch, digests)
    return Source(
        kind=KIND, source=str(option.path), digest=digest(sorted(digest_of.values())), arch=arch, layers=1,
        max_seq_len=2**20, cut_points=999, parameter_bytes=4 * max(1, sum(math.prod(one.dims) for one in model.graph.initializer)),
        beside=beside, notes=_notes(model, what),
    )  # fmt: skip


def read(path: Path, what: str) -> "ModelProto":
    """Return the file's message without external data. Raises ConfigError if it is no ONNX file, or cannot be converted."""
    if not path.is_file() or not os.access(path, os.R_OK):
        raise ConfigError(f"{what}: {'cannot be read' if path.exists() else 'no such file'}: {path}; give a .onnx file")
    with path.open("rb") as file:
        if file.read(len(_LFS)) == _LFS:
            raise ConfigError(f"{what}: {path} is a pointer of git-lfs; fetch the file itself: git lfs pull")
    if missing := onnx_ops.find_missing():
        raise ConfigError(f"{what}: needs {', '.join(missing)}; install them: pip install 'ane-sweep[onnx]'")
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except (DecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{what}: {path} is no ONNX file ({error})") from None
    if not (model.ir_version and model.opset_import and model.graph.output):
        raise ConfigError(f"{what}: {path} is no ONNX file, or an empty one: it has no graph with outputs")
    if problems := _find_unsupported(model, what):
        raise ConfigError(problems)
    return model


def _find_unsupported(model: "ModelProto", what: str) -> list[str]:
    """Return a sentence for each type of op without a conversion, which names its nodes."""
    import onnx

    opset = max([one.version for one in model.opset_import if one.domain in ("", "ai.onnx")], default=0)
    if not _OPSETS[0] <= opset <= _OPSETS[1]:
        low, high = _OPSETS
        return [f"{what}: its opset is {opset}, and {low} to {high} are read; export it again with opset_version=17"]
    local = {(one.domain, one.name) for one in model.functions}
    by_numbers = _find_computed(model)

    def find_faulty(node: "NodeProto") -> list["NodeProto"]:
        if node.op_type in onnx_ops.BRANCHES and node.input[0] not in by_numbers:
            # shapes decide later which branch is taken
            found = [
                [bad for one in part.g.node for bad in find_faulty(one)]
                for part in node.attribute
                if part.HasField("g")
            ]
            return [bad for branch in found for bad in branch] if all(found) else []
        if node.domain in ("", "ai.onnx"):
            schema = onnx.defs.get_schema(node.op_type, opset, "") if onnx.defs.has(node.op_type) else None
            flags = ("has_function", "has_context_dependent_function")  # not in onnx's stubs
            is_function = any(getattr(schema, flag, False) for flag in flags)
            if node.op_type in onnx_ops.list_converted() | onnx_ops.FOLDED or is_function:
                return []
        return [] if (node.domain, node.op_type) in local else [node]

    lacking: dict[str, list[str]] = {}
    for number, node in enumerate([*model.graph.node, *(node for one in model.functions for node in one.node)]):
        for bad in find_faulty(node):
            kind = f"{bad.domain}.{bad.op_type}".lstrip(".")
            lacking.setdefault(kind, []).append(bad.name or f"number {number}")
    return [
        f"{what}: op {kind} has no conversion to torch; its nodes: {', '.join(names[:5])}"
        f"{f' and {len(names) - 5} more' if len(names) > 5 else ''}; export the net without it"
        for kind, names in lacking.items()
    ]


def _find_computed(model: "ModelProto") -> set[str]:
    """Return the names of values that depend on the inputs' numbers, not on their shapes alone."""
    found = {one.name for one in model.graph.input} - {one.name for one in model.graph.initializer}
    for node in model.graph.node:  # in order: what a node takes is made before it
        inner = {name for one in node.attribute for part in one.g.node for name in part.input}
        if node.op_type not in ("Shape", "Size") and (found & {*node.input} or inner & found):
            found.update(node.output)
    return found


def _guess_sizes(dims: list[int | str]) -> list[int]:
    """Return sizes as an example: 1 for a batch, 224 for the sides of a picture, 128 for a length."""
    side = 224 if len(dims) == 4 else 128
    return [size if isinstance(size, int) else side if axis else 1 for axis, size in enumerate(dims)]


def _describe_inputs(model: "ModelProto", asked: dict[str, object], what: str) -> dict[str, object]:
    """Return model.inputs in full: each input's shape, dtype and range. Raises ConfigError with every problem."""
    held = {one.name for one in model.graph.initializer}
    values = {onnx_ops.safe_name(one.name): one for one in model.graph.input if one.name not in held}
    problems = [f"model.inputs.{name}: {what} takes {', '.join(values)}" for name in asked if name not in values]
    tables = _find_table_sizes(model)
    found: dict[str, object] = {}
    for name, value in values.items():
        kind, dims = value.type.tensor_type.elem_type, _sizes(value)
        spec = asked.get(name, {})
        spec = {"dtype": _DTYPES.get(kind, ""), "shape": dims, **(spec if isinstance(spec, dict) else {"shape": spec})}
        if not spec["dtype"]:
            problems.append(f"{what}: input {name} holds no tensor of numbers; only these are drawn here")
        elif spec["shape"] is dims and (free := [size for size in dims if isinstance(size, str)]):
            example = ", ".join(f"{one}: {_guess_sizes(_sizes(values[one]))}" for one in values)
            problems.append(
                f"{what}: input {name} is [{', '.join(map(str, dims))}], with no size for {', '.join(free)}; "
                f"give sizes, as in 'model.inputs={{{example}}}'"
            )
        elif spec["dtype"] in ("int32", "int64"):
            spec.setdefault("range", [0, 256 if kind == _BYTE else tables.get(value.name, 2)])
        found[name] = spec
    if not problems:
        problems = [problem] if (problem := shapes.problem("model.inputs", found)) else []
    if problems:
        raise ConfigError(problems)
    return found


def _sizes(value: "ValueInfoProto") -> list[int | str]:
    dims = value.type.tensor_type.shape.dim
    return [one.dim_value or one.dim_param or f"axis {number}" for number, one in enumerate(dims)]


def _find_table_sizes(model: "ModelProto") -> dict[str, int]:
    """Return {input of indices: rows of the smallest table in which it is looked up}."""
    rows = {one.name: one.dims[0] for one in model.graph.initializer if one.dims}
    heads: dict[str, set[str]] = {one.name: {one.name} for one in model.graph.input}
    sizes: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type in _PASSES:
            heads[node.output[0]] = set().union(*(heads.get(name, set()) for name in node.input))
        elif node.op_type == "Gather" and node.input[0] in rows:
            for name in heads.get(node.input[1], ()):
                sizes[name] = min(rows[node.input[0]], sizes.get(name, rows[node.input[0]]))
    return sizes


def _notes(model: "ModelProto", what: str) -> list[str]:
    kinds = {one.data_type for one in model.graph.initializer}
    found = []
    if any(node.op_type in onnx_ops.FOLDED for node in model.graph.node):
        found.append(
            f"{what} is quantised (QDQ): its weights are taken as the numbers that they stand for, its activations are clipped to "
            "their range and not rounded; precision=int8_channel compresses the weights again. It is compared with the quantised net"
        )
    if kinds & {10, 11}:
        found.append(
            f"{what} holds fp16 or fp64 numbers: it is converted from fp32, and compared with the file as it is"
        )
    return found
