"""View an ML Program: its ops in order, the values that each reads and writes, and the constants.

The protobuf messages are never changed; viewing a program of 16,500 ops takes well under a second.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ane_sweep.errors import PackageError
from ane_sweep.mil import package as packages
from ane_sweep.mil.element_types import MOST_AXES, NUMPY, PACKED_BITS, FlexibleShape, TensorType, tensor_type
from ane_sweep.mil.proto import MIL_pb2, Model_pb2
from ane_sweep.mil.weights import BlobRecord

_SPLAT_ELEMENTS = 1 << 28  # more than this from one value is damage, not economy
MOST_ELEMENTS = 1 << 40  # no machine that runs this holds more in one tensor
# element types whose immediate values are kept as raw bytes rather than as lists of numbers
_RAW = {"fp16", "int8", "uint8", "int16", "uint16", "uint32", "uint64"}


T = TypeVar("T")


@dataclass(slots=True)
class Op:
    """One operation. `inputs` maps a parameter to its arguments: names of values, or literal Value messages."""

    index: int
    type: str
    inputs: dict[str, list[str | MIL_pb2.Value]]
    outputs: list[str]
    proto: MIL_pb2.Operation

    @property
    def name(self) -> str:
        return own_name(self.proto)

    @property
    def reads(self) -> set[str]:
        """Return the names of all values that this op needs, those of its nested blocks included."""
        names = {argument for arguments in self.inputs.values() for argument in arguments if isinstance(argument, str)}
        for block in self.proto.blocks:
            names |= free_names(block)
        return names

    def names(self, parameter: str) -> list[str]:
        """Return the names of the values given for a parameter; literal arguments have none."""
        return [argument for argument in self.inputs.get(parameter, []) if isinstance(argument, str)]

    def __str__(self) -> str:
        made = self.outputs[0] if self.outputs else self.name
        return f"op {self.index} `{self.type}` making `{made}`"


@dataclass
class Program:
    """One function of a package: `ops` in order, value types by name, and the package for its weights.

    varying: sizes of the values whose types leave some sizes open, as far as the caller computed them.
    """

    package: packages.Package
    function: MIL_pb2.Function
    block: MIL_pb2.Block
    opset: str
    varying: Mapping[str, FlexibleShape] = field(default_factory=dict)

    @property
    def spec(self) -> Model_pb2.Model:
        return self.package.spec

    @cached_property
    def ops(self) -> list[Op]:
        return [view_op(index, proto) for index, proto in enumerate(self.block.operations)]

    @cached_property
    def types(self) -> dict[str, MIL_pb2.ValueType]:
        """Return the ValueType message of every value, by name: inputs of the function and outputs of ops."""
        made = {value.name: value.type for proto in self.block.operations for value in proto.outputs}
        return {value.name: value.type for value in self.function.inputs} | made

    @property
    def inputs(self) -> list[str]:
        return [value.name for value in self.function.inputs]

    @property
    def outputs(self) -> list[str]:
        return list(self.block.outputs)

    def tensor_type(self, name: str) -> TensorType | None:
        """Return the type of a value, or None if it is no tensor (a state, list or dictionary)."""
        return tensor_type(self.types[name])

    def default_type(self, name: str) -> TensorType | None:
        """Return the type of a value at the default shape, or None if its sizes are unknown there."""
        kind = self.tensor_type(name)
        if kind is None or kind.is_static or name not in self.varying:
            return kind
        return TensorType(kind.dtype, self.varying[name].default)

    def constant(self, op: Op) -> Any:
        """Return the decoded value of a `const` op: see `decode`."""
        return decode(op.proto.attributes["val"], self.package)


def load(path: Path) -> Program:
    """Read a package of one function and view its program. Raises errors.PackageError."""
    package = packages.read(path)
    functions = package.spec.mlProgram.functions
    if len(functions) != 1:
        raise PackageError(
            f"{path}: has {len(functions)} functions ({', '.join(sorted(functions)) or 'none'}); programs with exactly one are read here"
        )
    return view_program(package)


def view_program(package: packages.Package, function: str = "") -> Program:
    """View one function of a package; "" is its declared default.

    Raises errors.PackageError if there is no such function, or no default function.
    """
    functions = package.spec.mlProgram.functions
    name = function or default_function(package.spec)
    if name not in functions:
        known = ", ".join(sorted(functions)) or "none"
        raise PackageError(f"{package.path}: has no function {name!r}; its functions: {known}")
    chosen = functions[name]
    if chosen.opset not in chosen.block_specializations:
        raise PackageError(f"{package.path}: its program has no block for opset {chosen.opset!r}; the file is damaged")
    return Program(package, chosen, chosen.block_specializations[chosen.opset], chosen.opset)


def default_function(spec: Model_pb2.Model) -> str:
    """Return the name of the function that runs when none is named."""
    functions = spec.mlProgram.functions
    return spec.description.defaultFunctionName or (next(iter(functions)) if len(functions) == 1 else "main")


def view_op(index: int, proto: MIL_pb2.Operation) -> Op:
    """Return the Op that wraps an Operation message."""
    inputs = {
        parameter: [binding.name or binding.value for binding in argument.arguments]
        for parameter, argument in in_order(proto.inputs)
    }
    return Op(index, proto.type, inputs, [value.name for value in proto.outputs], proto)


def own_name(proto: MIL_pb2.Operation) -> str:
    """Return the name attribute of an Operation message, else the name of its first output, else ""."""
    named = proto.attributes["name"].immediateValue.tensor.strings.values if "name" in proto.attributes else ()
    return next(iter([*named, *(value.name for value in proto.outputs)]), "")


def in_order(held: Mapping[str, T]) -> list[tuple[str, T]]:
    """Return the entries of a protobuf map sorted by name, as the map's own order changes from process to process."""
    return [(name, held[name]) for name in sorted(held)]


def decode(value: MIL_pb2.Value, package: packages.Package) -> Any:
    """Return a Value message as numpy array (tensors, rank 0 included), str or array of str, list, or dict.

    Blobs are views into the mapped file. Element types of less than a byte come unpacked, one byte each. Raises
    errors.PackageError for a damaged value.
    """
    if value.WhichOneof("value") == "blobFileValue":
        return _decode_blob(value, package)
    immediate = value.immediateValue
    kind = immediate.WhichOneof("value")
    if kind == "tensor":
        return _decode_tensor(value, package)
    if kind in ("list", "tuple"):
        return [decode(item, package) for item in getattr(immediate, kind).values]
    if kind == "dictionary":
        return {str(decode(one.key, package)): decode(one.value, package) for one in immediate.dictionary.values}
    raise PackageError(f"{package.path}: a constant holds no value; the file is damaged")


def _decode_tensor(value: MIL_pb2.Value, package: packages.Package) -> np.ndarray | str:
    kind = tensor_type(value.type)
    tensor = value.immediateValue.tensor
    field = tensor.WhichOneof("value")
    if kind is None or field is None or not kind.is_static:
        raise PackageError(f"{package.path}: an immediate constant has no tensor type or no value; the file is damaged")
    if kind.dtype == "string":
        strings = list(tensor.strings.values)
        if not kind.shape and len(strings) == 1:
            return strings[0]
        return _reshape(np.array(strings, dtype=object), kind, package, "an immediate constant")
    if kind.dtype in PACKED_BITS and field == "bytes":
        raw = np.frombuffer(tensor.bytes.values, np.uint8)
        return _reshape(unpack(raw, kind.dtype, kind.count), kind, package, "an immediate constant")
    if kind.dtype not in NUMPY:
        raise PackageError(f"{package.path}: immediate constants of type {kind.dtype} are not read here")
    dtype = NUMPY[kind.dtype]
    if field == "bytes":
        data = tensor.bytes.values
        if kind.dtype not in _RAW or len(data) % dtype.itemsize:
            raise PackageError(
                f"{package.path}: an immediate {kind.dtype} constant has {len(data)} bytes; it is damaged"
            )
        flat = np.frombuffer(data, dtype=dtype)
    else:
        try:
            flat = np.array(getattr(tensor, field).values).astype(dtype)
        except (ValueError, OverflowError, TypeError) as error:
            raise PackageError(f"{package.path}: a constant says {kind.dtype} and holds {field}: {error}") from error
    return _reshape(flat, kind, package, "an immediate constant")


def unpack(raw: np.ndarray, dtype: str, count: int) -> np.ndarray:
    """Return `count` elements of less than a byte, packed lowest bits first, as one byte each (int4: signed)."""
    bits = PACKED_BITS[dtype]
    if raw.size < -(-count * bits // 8):
        count = raw.size * 8 // bits  # too few: the caller sees that the shape is not filled
    if bits == 4:
        flat: np.ndarray = np.empty(raw.size * 2, np.uint8)
        flat[0::2], flat[1::2] = raw & 15, raw >> 4
    elif bits == 2:
        flat = ((raw[:, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3).reshape(-1)
    elif bits == 1:
        flat = np.unpackbits(raw, bitorder="little")
    else:
        single = np.unpackbits(raw, bitorder="little")[: count * bits].reshape(count, bits)
        flat = (single << np.arange(bits, dtype=np.uint8)).sum(1, dtype=np.uint8)
    return ((flat[:count] ^ 8).view(np.int8) - 8).astype(np.int8) if dtype == "int4" else flat[:count]


def check_record(value: MIL_pb2.Value, package: packages.Package) -> BlobRecord:
    """Return the weight record that a Value message refers to, checked against the program's declaration.

    Raises PackageError. The payload is not read. Viewing and running a program both call this, so they refuse the same
    files.
    """
    kind = tensor_type(value.type)
    reference = value.blobFileValue
    record = package.blobs(reference.fileName).record(reference.offset)
    where = _describe_place(value, package)
    if kind is None or not kind.is_static or (kind.dtype not in NUMPY and kind.dtype not in PACKED_BITS):
        raise PackageError(f"{package.path}: {where} has type {kind.dtype if kind else 'none'}, which is not read here")
    if record.dtype_name != kind.dtype and not (kind.dtype == "bool" and record.dtype in (3, 4)):
        raise PackageError(f"{package.path}: the program says {kind.dtype}, {where} says {record.dtype_name}")
    if kind.dtype in PACKED_BITS:
        if kind.count * PACKED_BITS[kind.dtype] > record.size * 8:
            raise PackageError(
                f"{package.path}: the program needs {kind.count} {kind.dtype}, {where} has {record.size} bytes"
            )
    elif record.size != kind.byte_count:
        raise PackageError(f"{package.path}: the program needs {kind.byte_count} bytes, {where} has {record.size}")
    return record


def _describe_place(value: MIL_pb2.Value, package: packages.Package) -> str:
    reference = value.blobFileValue
    return f"the weight record at byte {reference.offset} of {package.blobs(reference.fileName).path}"


def _decode_blob(value: MIL_pb2.Value, package: packages.Package) -> np.ndarray:
    check_record(value, package)
    kind = tensor_type(value.type)
    assert kind is not None  # `stored` refuses the rest
    payload = package.blobs(value.blobFileValue.fileName).payload(value.blobFileValue.offset)
    flat = unpack(payload, kind.dtype, kind.count) if kind.dtype in PACKED_BITS else payload.view(NUMPY[kind.dtype])
    return _reshape(flat, kind, package, _describe_place(value, package))


def _reshape(flat: np.ndarray, kind: TensorType, package: packages.Package, what: str) -> np.ndarray:
    shape = tuple(length or 0 for length in kind.shape)
    count = math.prod(shape)
    if len(shape) > 32:
        raise PackageError(f"{package.path}: {what} has {len(shape)} dimensions; the file is damaged")
    if flat.size == count:
        return flat.reshape(shape)
    if flat.size == 1 and count <= _SPLAT_ELEMENTS:  # MIL lets one value stand for a whole tensor
        return np.broadcast_to(flat, shape)
    raise PackageError(f"{package.path}: {what} of shape {kind.shape} holds {flat.size} values; the file is damaged")


def check_sizes(block: MIL_pb2.Block, where: object) -> None:
    """Refuse declared tensors that cannot exist, in a block and the blocks nested in it. Raises errors.PackageError.

    They come from damage, or from an attack on the reader's memory. `where` is named in the message.
    """
    for proto in block.operations:
        for value in proto.outputs:
            kind = tensor_type(value.type)
            if kind is None:
                continue
            if len(kind.shape) >= MOST_AXES or math.prod(length or 1 for length in kind.shape) > MOST_ELEMENTS:
                raise size_error(where, value.name, kind.dtype, kind.shape)
        for inner in proto.blocks:
            check_sizes(inner, where)


def size_error(where: object, name: str, dtype: str, shape: Sequence[int | None]) -> PackageError:
    """Return the error for a declared tensor that cannot exist."""
    sizes = list(shape) if len(shape) < MOST_AXES else f"of {MOST_AXES} axes or more"
    return PackageError(
        f"{where}: `{name}` is declared as {dtype} {sizes}, which no machine can hold; the file is damaged"
    )


def free_names(block: MIL_pb2.Block) -> set[str]:
    """Return the names of outside values that a nested block reads."""
    ops = [view_op(index, proto) for index, proto in enumerate(block.operations)]
    made = {value.name for value in block.inputs}.union(*(op.outputs for op in ops))
    return set(block.outputs).union(*(op.reads for op in ops)) - made
