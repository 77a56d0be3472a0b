"""From a package to op descriptions: every function, ops in file order, nested blocks after their parent.

Only the protobuf is read. Constants that are written into the program are decoded when a rule asks for them; weights in
the weight file are known by type and size alone.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ane_sweep.errors import PackageError
from ane_sweep.mil import graph, pipeline
from ane_sweep.mil import package as packages
from ane_sweep.placement.sites import Site, Tensor

_SUB_BYTE_BITS = {"int4": 4, "uint4": 4, "uint1": 1, "uint2": 2, "uint3": 3, "uint6": 6}
_UNKNOWN = Tensor("unknown", ())


@dataclass
class Program:
    """One package: its functions' ops, and what the whole-program gates look at."""

    path: Path
    functions: dict[str, list[Site]] = field(default_factory=dict)
    weight_file_bytes: int = 0
    chunk: str = "model"

    @property
    def sites(self) -> list[Site]:
        return [site for sites in self.functions.values() for site in sites]


def load(path: Path) -> Program:
    """Describe a package or .mlmodel. Raises errors.PackageError."""
    package = packages.read(path)
    return _described(package, Path(path).stem, _largest_weight_file(package))


def load_chain(paths: list[Path]) -> list[Program]:
    """Describe programs in the order they run; a pipeline package counts as the programs it holds."""
    found = []
    for path in paths:
        parts = pipeline.parts(path)
        if len(parts) == 1:
            found.append(_described(parts[0], Path(path).stem, _largest_weight_file(parts[0])))
            continue
        for index, part in enumerate(parts):
            file = pipeline.weight_file(part)
            name = Path(packages.chunk_name(index)).stem
            found.append(_described(part, name, file.stat().st_size if file else 0))
    return found


def _largest_weight_file(package: packages.Package) -> int:
    weights = package.model_path.parent / "weights"
    return (
        max((item.stat().st_size for item in weights.iterdir() if item.is_file()), default=0) if weights.is_dir() else 0
    )


def _described(package: packages.Package, chunk: str, weight_file_bytes: int) -> Program:
    path = package.path
    program = Program(path, weight_file_bytes=weight_file_bytes, chunk=chunk)
    functions = package.spec.mlProgram.functions
    default = package.spec.description.defaultFunctionName
    for name in sorted(functions, key=lambda name: (name != default, name != "main", name)):
        function = functions[name]
        if function.opset not in function.block_specializations:
            raise PackageError(
                f"{path}: function {name!r} has no block for opset {function.opset!r}; the file is damaged"
            )
        known = {value.name: _tensor(value.type) for value in function.inputs}
        program.functions[name] = list(
            _Reader(package, name).block(function.block_specializations[function.opset], known)
        )
    if not program.functions:
        raise PackageError(f"{path}: its program has no function; convert the model again")
    return program


class _Reader:
    """Walks one function; `known` maps value names to tensors and grows in file order."""

    def __init__(self, package: packages.Package, function: str):
        self.package = package
        self.function = function

    def block(self, block: Any, known: dict[str, Tensor], *, nested: bool = False) -> list[Site]:
        made: list[Site] = []
        for proto in block.operations:
            kind = proto.type.rpartition(".")[2]
            if kind == "const":
                self._constant(proto, known)
                continue
            if kind.startswith("constexpr"):
                self._compressed(kind, proto, known)
                continue
            made.append(self._site(kind, proto, known, nested))
            for inner in proto.blocks:
                scope = known | {value.name: _tensor(value.type) for value in inner.inputs}
                made += self.block(inner, scope, nested=True)
        return made

    def _site(self, kind: str, proto: Any, known: dict[str, Tensor], nested: bool) -> Site:
        inputs: dict[str, list[Tensor]] = {}
        for parameter, argument in proto.inputs.items():
            inputs[parameter] = [
                known.get(binding.name, _UNKNOWN) if binding.name else self._literal(binding.value)
                for binding in argument.arguments
            ]
        outputs = []
        for value in proto.outputs:
            tensor = known[value.name] = _tensor(value.type)
            outputs.append(tensor)
        name = proto.outputs[0].name if proto.outputs else ""
        return Site(kind, inputs, outputs, name=name, function=self.function, nested=nested)

    def _constant(self, proto: Any, known: dict[str, Tensor]) -> None:
        for value in proto.outputs:
            known[value.name] = self._literal(proto.attributes["val"], value.type)

    def _literal(self, value: Any, kind: Any = None) -> Tensor:
        """A constant; values in the weight file are never read."""
        found = _tensor(kind if kind is not None else value.type)
        if value.WhichOneof("value") == "blobFileValue":
            return Tensor(found.dtype, found.shape, const=True)
        return Tensor(found.dtype, found.shape, const=True, decode=lambda: _plain(value, self.package))

    def _compressed(self, kind: str, proto: Any, known: dict[str, Tensor]) -> None:
        """A constexpr op is a constant with a smaller body: what its own parameters take."""
        bits = 0
        parts: dict[str, Tensor] = {}
        for value in proto.attributes.values():
            if value.WhichOneof("value") == "blobFileValue":
                bits += _bits(_tensor(value.type))
        for parameter, argument in proto.inputs.items():
            for binding in argument.arguments:
                read = known.get(binding.name) if binding.name else _tensor(binding.value.type)
                if read is not None:
                    parts[parameter] = read
                    bits += read.stored_bytes * 8 if read.stored_bytes is not None else _bits(read)
        for value in proto.outputs:
            tensor = _tensor(value.type)
            stored, packing = (bits + 7) // 8, _packing(kind, tensor, parts)
            known[value.name] = Tensor(tensor.dtype, tensor.shape, const=True, stored_bytes=stored, packing=packing)


def _packing(kind: str, made: Tensor, parts: dict[str, Tensor]) -> str:
    """ "constexpr_lut_to_dense", or with blocks "constexpr_blockwise_shift_scale int4 32"."""
    data, scale = parts.get("data"), parts.get("scale")
    if data is None or scale is None or scale.rank != made.rank:
        return kind
    blocks = [(whole or 1) // (count or 1) for whole, count in zip(made.shape[1:], scale.shape[1:])]
    return f"{kind} {data.dtype} {max(blocks, default=0)}"


def _bits(tensor: Tensor) -> int:
    return tensor.elements * _SUB_BYTE_BITS[tensor.dtype] if tensor.dtype in _SUB_BYTE_BITS else tensor.bytes * 8


def _tensor(value_type: Any) -> Tensor:
    """States are seen as the tensor they hold; lists and dictionaries as what they are."""
    kind = value_type.WhichOneof("type")
    if kind == "stateType":
        value_type = value_type.stateType.wrappedType
        kind = value_type.WhichOneof("type")
    if kind != "tensorType":
        return Tensor(str(kind or "unknown").removesuffix("Type"), ())
    found = value_type.tensorType
    # an unknown size has no `constant`, which reads as 0: quicker than asking, over some 100,000 sizes
    shape = tuple([size.constant.size or None for size in found.dimensions])
    return Tensor(graph.DTYPE_NAMES.get(found.dataType, f"type {found.dataType}"), shape)


def _plain(value: Any, package: packages.Package) -> Any:
    """A decoded constant as number, text or flat tuple; None when this reader has no word for it."""
    try:
        decoded = graph.decode(value, package)
    except PackageError:
        return None
    if isinstance(decoded, np.ndarray):
        return decoded.item() if decoded.ndim == 0 else tuple(decoded.ravel().tolist())
    return decoded
