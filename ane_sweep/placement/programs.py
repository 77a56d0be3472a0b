"""Read a package into op descriptions: every function, ops in file order, nested blocks after their parent.

Constants that are written into the program are decoded when a rule needs them. Weights in the weight file are read by
type and size alone, which must match the file (graph.check_record), so that a package that cannot run is not judged. A
package without its weight file can be judged too: see `without`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ane_sweep.errors import PackageError
from ane_sweep.mil import chain, graph, pipeline
from ane_sweep.mil import package as packages
from ane_sweep.mil.element_types import MOST_AXES, tensor_type
from ane_sweep.mil.modules import Modules, find_modules
from ane_sweep.mil.proto import MIL_pb2, Model_pb2
from ane_sweep.placement import defaults
from ane_sweep.placement.sites import Site, Tensor

Value = MIL_pb2.Value
_OLDEST = {6: "iOS 15", 7: "iOS 16", 8: "iOS 17", 9: "iOS 18", 10: "iOS 26"}  # by specification version
_SUB_BYTE_BITS = {"int4": 4, "uint4": 4, "uint1": 1, "uint2": 2, "uint3": 3, "uint6": 6}


@dataclass(frozen=True)
class Flexible:
    """An input that takes several shapes: "enumerated" ones (`shapes`) or a "range". `default` may be undeclared (None)."""

    name: str
    kind: str
    default: tuple[int, ...] | None
    shapes: tuple[tuple[int, ...], ...] = ()


@dataclass
class Program:
    """One package: its functions' ops at the default shape, and the facts that whole-program gates need.

    `without`: weight files that the program refers to but the package lacks. `others`: models of the same pipeline that
    are not ML Programs. `at_shapes`: the same program at each of its enumerated shapes, by input. `facts`: oldest OS, converter, and inputs
    of several shapes.
    """

    path: Path
    functions: dict[str, list[Site]] = field(default_factory=dict)
    weight_file_bytes: int = 0
    chunk: str = "model"
    flexible: list[Flexible] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    at_shapes: list[tuple[dict[str, tuple[int, ...]], "Program"]] = field(default_factory=list)
    modules: Modules | None = None
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def is_ranged(self) -> bool:
        """Return True if some input has no default shape, or takes a range, judged only at its default shape."""
        return any(one.kind == "range" or one.default is None for one in self.flexible)

    @property
    def sites(self) -> list[Site]:
        return [site for sites in self.functions.values() for site in sites]


def load(path: Path) -> Program:
    """Describe a package or .mlmodel. Raises errors.PackageError."""
    return describe_package(packages.read(path))


def describe_package(package: packages.Package, is_brief: bool = False) -> Program:
    """Describe a package. `is_brief`: at its default shape alone, without torch modules."""
    return (_at if is_brief else _describe)(package, package.path.stem, _largest_weight_file(package))


def load_chain(paths: list[Path]) -> list[Program]:
    """Describe programs in the order they run; a pipeline package counts as the ML Programs inside."""
    found = []
    for path in paths:
        package = packages.read(path, kinds=pipeline.KINDS)
        if package.spec.WhichOneof("Type") == "mlProgram":
            found.append(_describe(package, Path(path).stem, _largest_weight_file(package)))
            continue
        parts, others = pipeline.split(package)
        for index, part in enumerate(parts):
            file = pipeline.find_weight_file(part)
            name = Path(packages.chunk_name(index)).stem if len(parts) > 1 else Path(path).stem
            found.append(_describe(part, name, file.stat().st_size if file else 0))
        found[-1].others = others
    return found


def _largest_weight_file(package: packages.Package) -> int:
    files = (package.model_path.parent / "weights").glob("*")
    return max((item.stat().st_size for item in files if item.is_file()), default=0)


def _describe(package: packages.Package, chunk: str, weight_file_bytes: int) -> Program:
    """Describe a program at its default shape and at each enumerated shape (the first one of every input together, and so on)."""
    program = _at(package, chunk, weight_file_bytes)
    program.modules = find_modules(package)
    for site in program.sites:
        site.module = program.modules.paths.get((site.function, site.name), "")
    program.facts = _list_facts(package, program.flexible)
    listed = [one for one in program.flexible if one.shapes]
    for index in range(max((len(one.shapes) for one in listed), default=0)):
        chosen = {one.name: one.shapes[min(index, len(one.shapes) - 1)] for one in listed}
        program.at_shapes.append((chosen, _at(package, chunk, weight_file_bytes, chosen)))
    return program


def _at(
    package: packages.Package, chunk: str, weight_file_bytes: int, chosen: dict[str, tuple[int, ...]] | None = None
) -> Program:
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
        known, varying = inputs_at(package, name, chosen or {})
        program.flexible += [one for one in varying if one not in program.flexible]
        reader = _Reader(package, name, is_flexible=bool(varying))
        program.functions[name] = reader.block(function.block_specializations[function.opset], known)
        program.without = sorted({*program.without, *(file for file, is_there in reader.files.items() if not is_there)})
    if not program.functions:
        raise PackageError(f"{path}: its program has no function; convert the model again")
    return program


def _list_facts(package: packages.Package, flexible: list[Flexible]) -> dict[str, str]:
    """Return facts about how a program was made, by which a report tells what was changed beside its ops."""
    spec = package.spec
    prefix = "com.github.apple.coremltools."
    made = {
        key.removeprefix(prefix): value
        for key, value in spec.description.metadata.userDefined.items()
        if key.startswith(prefix)
    }
    kept = {"coremltools": made.get("version"), "frontend": made.get("source_dialect"), "source": made.get("source")}
    return {
        "oldest OS": _OLDEST.get(spec.specificationVersion, f"specification {spec.specificationVersion}"),
        **{name: value for name, value in kept.items() if value},
        **{f"input {one.name}": f"{one.kind} {one.shapes or one.default}" for one in flexible},
    }


def inputs_at(
    package: packages.Package, function: str, chosen: dict[str, tuple[int, ...]]
) -> tuple[dict[str, Tensor], list[Flexible]]:
    """Return a function's inputs by name, and the list of inputs that take several shapes.

    Inputs of several shapes get the chosen shape, else their default.
    """
    known = {value.name: _tensor(value.type) for value in package.spec.mlProgram.functions[function].inputs}
    features = {feature.name: feature for feature in chain.function_description(package.spec, function).input}
    return known, _at_shape(known, features, chosen)


def values_at(package: packages.Package, function: str, chosen: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Return every value of a function by name, with its inputs at the chosen shapes. Raises PackageError."""
    known, varying = inputs_at(package, function, chosen)
    found = package.spec.mlProgram.functions[function]
    _Reader(package, function, is_flexible=bool(varying)).block(found.block_specializations[found.opset], known)
    return known


def _at_shape(
    known: dict[str, Tensor], features: Mapping[str, Model_pb2.FeatureDescription], chosen: dict[str, tuple[int, ...]]
) -> list[Flexible]:
    """Give inputs of several shapes the chosen shape, else their default; return the list of these inputs."""
    found = []
    for name, tensor in known.items():
        if tensor.is_static:
            continue
        feature, kind, shape = features.get(name), None, chosen.get(name)
        shapes: tuple[tuple[int, ...], ...] = ()
        if feature is not None and (kind := defaults.flexibility(feature)):
            shapes = defaults.enumerated(feature, tensor.rank) if kind == "enumerated" else ()
            shape = shape or defaults.of_input(feature, tensor.rank)
        if shape is not None and any(declared not in (None, size) for declared, size in zip(tensor.shape, shape)):
            shape = None
        found.append(Flexible(name, kind or "range", shape, shapes))
        if shape is not None:
            known[name] = Tensor(tensor.dtype, shape, is_default=True)
    return found


class _Reader:
    """A walk through one function; `known` maps value names to tensors and grows in file order."""

    def __init__(self, package: packages.Package, function: str, is_flexible: bool):
        self.package = package
        self.function = function
        self.is_flexible = is_flexible
        self.files: dict[str, bool] = {}  # weight files by name: whether they are there

    def _check(self, value: Value) -> None:
        file = value.blobFileValue.fileName
        if file not in self.files:
            self.files[file] = self.package.has(file)
        if self.files[file]:
            graph.check_record(value, self.package)

    def block(self, block: MIL_pb2.Block, known: dict[str, Tensor], *, nested: bool = False) -> list[Site]:
        made: list[Site] = []
        for proto in block.operations:
            kind = proto.type.rpartition(".")[2]
            if kind == "const":
                known |= {value.name: self._literal(proto.attributes["val"], value.type) for value in proto.outputs}
            elif kind.startswith("constexpr"):
                self._compressed(kind, proto, known)
            else:
                site = self._site(kind, proto, known, nested)
                if not site.outputs or not all(tensor.const for tensor in site.outputs):
                    made.append(site)
            for value in proto.outputs:
                tensor = known[value.name]
                if tensor.elements > graph.MOST_ELEMENTS or tensor.rank >= MOST_AXES:
                    raise graph.size_error(self.package.path, value.name, tensor.dtype, tensor.shape)
            for inner in proto.blocks:
                scope = known | {value.name: _tensor(value.type) for value in inner.inputs}
                made += self.block(inner, scope, nested=True)
        return made

    def _site(self, kind: str, proto: MIL_pb2.Operation, known: dict[str, Tensor], nested: bool) -> Site:
        inputs: dict[str, list[Tensor]] = {}
        for parameter, argument in graph.in_order(proto.inputs):
            inputs[parameter] = [
                self._read(binding.name, known) if binding.name else self._literal(binding.value)
                for binding in argument.arguments
            ]
        names = [value.name for value in proto.outputs]
        site = Site(
            kind, inputs, [_tensor(value.type) for value in proto.outputs], name=names[0] if names else "",
            function=self.function, nested=nested,
        )  # fmt: skip
        if self.is_flexible:
            site.outputs = defaults.fill_in_sizes(site)
        known.update(zip(names, site.outputs))
        return site

    def _read(self, name: str, known: dict[str, Tensor]) -> Tensor:
        if name not in known:
            raise PackageError(f"{self.package.path}: an op reads {name!r}, which nothing makes; the file is damaged")
        return known[name]

    def _literal(self, value: Value, kind: MIL_pb2.ValueType | None = None) -> Tensor:
        """Return a constant's tensor; values in the weight file are never read."""
        found = _tensor(kind if kind is not None else value.type)
        if value.WhichOneof("value") == "blobFileValue":
            self._check(value)
            return Tensor(found.dtype, found.shape, const=True)
        return Tensor(found.dtype, found.shape, const=True, decode=lambda: _plain(value, self.package))

    def _compressed(self, kind: str, proto: MIL_pb2.Operation, known: dict[str, Tensor]) -> None:
        """Add the output of a constexpr op as a constant whose stored size is the size of the op's parameters."""
        bits = 0
        parts: dict[str, Tensor] = {}
        for _, attribute in graph.in_order(proto.attributes):
            if attribute.WhichOneof("value") == "blobFileValue":
                self._check(attribute)
                bits += _bits(_tensor(attribute.type))
        for parameter, argument in graph.in_order(proto.inputs):
            for binding in argument.arguments:
                read = known.get(binding.name) if binding.name else self._literal(binding.value)
                if read is not None:
                    parts[parameter] = read
                    bits += read.stored_bytes * 8 if read.stored_bytes is not None else _bits(read)
        for value in proto.outputs:
            tensor = _tensor(value.type)
            stored, packing = (bits + 7) // 8, _packing(kind, tensor, parts)
            known[value.name] = Tensor(tensor.dtype, tensor.shape, const=True, stored_bytes=stored, packing=packing)


def _packing(kind: str, made: Tensor, parts: dict[str, Tensor]) -> str:
    """Return the name of a weight's packing: "constexpr_lut_to_dense", or with blocks "constexpr_blockwise_shift_scale int4 32"."""
    data, scale = parts.get("data"), parts.get("scale")
    if data is None or scale is None or scale.rank != made.rank:
        return kind
    blocks = [(whole or 1) // (count or 1) for whole, count in zip(made.shape[1:], scale.shape[1:])]
    return f"{kind} {data.dtype} {max(blocks, default=0)}"


def _bits(tensor: Tensor) -> int:
    return tensor.elements * _SUB_BYTE_BITS[tensor.dtype] if tensor.dtype in _SUB_BYTE_BITS else tensor.bytes * 8


def _tensor(value_type: MIL_pb2.ValueType) -> Tensor:
    """Return the tensor of a MIL type: for a state the tensor inside, for a list or dictionary only the kind."""
    if value_type.WhichOneof("type") == "stateType":
        value_type = value_type.stateType.wrappedType
    found = tensor_type(value_type)
    if found is None:
        return Tensor(str(value_type.WhichOneof("type") or "unknown").removesuffix("Type"), ())
    return Tensor(found.dtype, tuple([size or None for size in found.shape]))


def _plain(value: Value, package: packages.Package) -> object:
    """Convert a decoded constant to a number, text or flat tuple; None if it cannot be decoded."""
    try:
        decoded = graph.decode(value, package)
    except PackageError:
        return None
    if isinstance(decoded, np.ndarray):
        return decoded.item() if decoded.ndim == 0 else tuple(decoded.ravel().tolist())
    return decoded
