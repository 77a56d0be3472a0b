"""Parse MIL text into a Model message: `model.mil` of a compiled model (.mlmodelc), as Core ML's compiler leaves it.

    program(1.0) [buildInfo = dict<...>(...)] {
        func main<ios16>(tensor<fp16, [1, 8]> x) {
            tensor<fp16, [1, 8]> y = relu(x = x)[name = tensor<string, []>("y")];
        } -> (y);
    }

Apple has not published the grammar: this one is read off compiled models, in the dialects of `program(1.0)` and
`program(1.3)` (in which rank 0 has types of its own). Nested blocks are known from this project's own writer alone
(coreml_anywhere/miltext.py). Inputs and outputs are the program's own: arrays, and a classifier's label and probabilities;
a size that the text calls `?` may be anything from 1 up. compiled.py adds the rest of a compiled model's description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ane_sweep.errors import PackageError
from ane_sweep.mil import text_values
from ane_sweep.mil.proto import MIL_pb2, Model_pb2

if TYPE_CHECKING:  # these types stand in proto.pyi alone
    from ane_sweep.mil.proto import MessageMap, Messages

OPSETS = {"ios15": "CoreML5", "ios16": "CoreML6", "ios17": "CoreML7", "ios18": "CoreML8", "ios26": "CoreML9"}
_TOKEN = re.compile(
    r"""\s*(?://[^\n]*\s*)*(->|[()\[\]{}<>=,;?]|"(?:\\.|[^"\\])*"|[+-]?0[xX][0-9a-fA-F.]+(?:[pP][+-]?\d+)?"""
    r"""|[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|inf|nan)\b|[A-Za-z_][\w.:/@%$-]*)"""
)


def read(path: Path) -> Model_pb2.Model:
    """Return the Model message of a model.mil. Raises PackageError, with the line, for text that is not understood."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PackageError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise PackageError(f"{path}: no text; the model is encrypted or damaged, give the .mlpackage") from error
    parser = _Parser(path, text)
    try:
        return parser.parse_model()
    except (ValueError, TypeError, OverflowError, IndexError, KeyError, RecursionError) as error:
        raise parser.error_at(str(error) or type(error).__name__) from error


class _Parser:
    """A recursive-descent parser over a list of tokens; `at` is the index of the next token."""

    def __init__(self, path: Path, text: str):
        self.path, self.text, self.at = path, text, 0
        self.tokens: list[str] = []
        self.places: list[int] = []
        place, end = 0, len(text.rstrip())
        while place < end:
            found = _TOKEN.match(text, place)
            if found is None:
                self.at = len(self.places)
                self.places.append(place)
                raise self.error_at(f"{text[place : place + 20]!r} is no MIL")
            self.tokens.append(found.group(1))
            self.places.append(found.start(1))
            place = found.end()
        self.tokens += ["", ""]  # looked at, never taken
        self.places += [end, end]

    def error_at(self, why: str) -> PackageError:
        line = self.text.count("\n", 0, self.places[min(self.at, len(self.places) - 1)]) + 1
        return PackageError(f"{self.path}: line {line}: {why}; give the .mlpackage that the model was compiled from")

    @property
    def next(self) -> str:
        return self.tokens[self.at]

    def take(self, wanted: str | None = None) -> str:
        token = self.next
        if not token or (wanted is not None and token != wanted):
            raise ValueError(f"expected {wanted or 'more'}, found {token or 'the end'}")
        self.at += 1
        return token

    def accept(self, wanted: str) -> bool:
        is_next = self.next == wanted
        self.at += is_next
        return is_next

    def elements(self, first: str, last: str) -> Iterator[None]:
        """Yield once for each element of a list between brackets, with or without a comma at its end."""
        self.take(first)
        while not self.accept(last):
            yield
            if not self.accept(",") and self.next != last:
                raise ValueError(f"expected , or {last}, found {self.next or 'the end'}")

    def parse_model(self) -> Model_pb2.Model:
        spec = Model_pb2.Model()
        self.take("program")
        for _ in self.elements("(", ")"):
            self.take()
        self.attributes(spec.mlProgram.attributes)
        self.take("{")
        while not self.accept("}"):
            self.function(spec)
        spec.specificationVersion = 1 + max(int(f.opset[6:]) for f in spec.mlProgram.functions.values())
        text_values.describe(spec)
        return spec

    def function(self, spec: Model_pb2.Model) -> None:
        self.take("func")
        function = spec.mlProgram.functions[self.take()]
        self.take("<")
        opset = self.take()
        if opset not in OPSETS:
            raise ValueError(f"the opset {opset} is not known; known: {', '.join(OPSETS)}")
        function.opset = OPSETS[opset]
        self.take(">")
        self.named_values(function.inputs)
        self.attributes(function.attributes)
        self.body(function.block_specializations[function.opset])
        self.accept(";")

    def named_values(self, into: Messages[MIL_pb2.NamedValueType]) -> None:
        for _ in self.elements("(", ")"):
            self.typed_name(into)

    def typed_name(self, into: Messages[MIL_pb2.NamedValueType]) -> None:
        value = into.add()
        self.type(value.type)
        value.name = self.take()

    def body(self, block: MIL_pb2.Block) -> None:
        self.take("{")
        while not self.accept("}"):
            self.operation(block.operations.add())
        self.take("->")
        block.outputs.extend(self.take() for _ in self.elements("(", ")"))

    def operation(self, proto: MIL_pb2.Operation) -> None:
        """Parse `type a, type b = op(x = a)[name = ...];`, with nested blocks `(inputs) {...} -> (outputs)` behind it."""
        if self.tokens[self.at + 1] != "(":
            self.typed_name(proto.outputs)
            while self.accept(","):
                self.typed_name(proto.outputs)
            self.take("=")
        proto.type = self.take()
        for _ in self.elements("(", ")"):
            parameter = self.take()
            self.take("=")
            self.argument(proto.inputs[parameter])
        self.attributes(proto.attributes)
        while self.next == "(":
            block = proto.blocks.add()
            self.named_values(block.inputs)
            self.body(block)
            if not self.accept(","):
                self.accept(";")
        if not proto.blocks:
            self.take(";")

    def argument(self, argument: MIL_pb2.Argument) -> None:
        if self.next == "(":
            for _ in self.elements("(", ")"):
                self.argument(argument)
        elif self.tokens[self.at + 1] in ("<", "("):
            self.value(argument.arguments.add().value)
        else:
            argument.arguments.add(name=self.take())

    def attributes(self, into: MessageMap[MIL_pb2.Value]) -> None:
        if self.next == "[":
            for _ in self.elements("[", "]"):
                name = self.take()
                self.take("=")
                self.value(into[name])

    def type(self, kind: MIL_pb2.ValueType) -> None:
        word = self.take()
        if word not in ("tensor", "list", "dict", "tuple", "state"):
            kind.tensorType.dataType = text_values.find_dtype_number(word)
            return
        self.take("<")
        if word == "tensor":
            kind.tensorType.dataType = text_values.find_dtype_number(self.take())
            self.take(",")
            for _ in self.elements("[", "]"):
                self.size(kind.tensorType.dimensions.add())
            kind.tensorType.rank = len(kind.tensorType.dimensions)
        elif word == "list":
            self.type(kind.listType.type)
            self.take(",")
            self.size(kind.listType.length)
        elif word == "dict":
            self.type(kind.dictionaryType.keyType)
            self.take(",")
            self.type(kind.dictionaryType.valueType)
        elif word == "tuple":
            self.type(kind.tupleType.types.add())
            while self.accept(","):
                self.type(kind.tupleType.types.add())
        else:
            self.type(kind.stateType.wrappedType)
        self.take(">")

    def size(self, dimension: MIL_pb2.Dimension) -> None:
        if self.accept("?"):
            dimension.unknown.variadic = False
        else:
            dimension.constant.size = int(self.take())

    def value(self, value: MIL_pb2.Value) -> None:
        self.type(value.type)
        self.take("(")
        if self.next == "BLOBFILE":
            self.take()
            held = MIL_pb2.Argument()
            found = {}
            for _ in self.elements("(", ")"):
                name = self.take()
                self.take("=")
                self.argument(held)
                found[name] = held.arguments[-1].value.immediateValue.tensor
            value.blobFileValue.fileName = found["path"].strings.values[0]
            value.blobFileValue.offset = int(np.frombuffer(found["offset"].bytes.values, np.uint64)[0])
        else:
            self.content(value)
        self.take(")")

    def content(self, value: MIL_pb2.Value) -> None:
        """Parse the text between the brackets of a value whose type is known."""
        kind, held = value.type, value.immediateValue
        which = kind.WhichOneof("type")
        if which == "tensorType":
            text_values.fill(kind, held.tensor, list(self.numbers()))
        elif which == "dictionaryType":
            held.dictionary.SetInParent()
            for _ in self.elements("{", "}"):
                pair = held.dictionary.values.add()
                pair.key.type.CopyFrom(kind.dictionaryType.keyType)
                pair.value.type.CopyFrom(kind.dictionaryType.valueType)
                self.take("{")
                self.content(pair.key)
                self.take(",")
                self.content(pair.value)
                self.take("}")
        else:
            into: MIL_pb2.ListValue | MIL_pb2.TupleValue = held.list if which == "listType" else held.tuple
            into.SetInParent()
            for index, _ in enumerate(self.elements(*("[]" if self.next == "[" else "()"))):
                item = into.values.add()
                item.type.CopyFrom(kind.listType.type if which == "listType" else kind.tupleType.types[index])
                self.content(item)

    def numbers(self) -> Iterator[str]:
        """Yield the elements of a tensor in order; nested brackets only repeat its shape."""
        if self.next != "[":
            yield self.take()
            return
        depth = 0
        while True:
            token = self.take()
            depth += (token == "[") - (token == "]")
            if not depth:
                return
            if token not in ("[", "]", ","):
                yield token
