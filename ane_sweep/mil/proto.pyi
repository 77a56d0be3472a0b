"""Types of the protobuf classes that proto.py loads: Core ML's messages (coremltools 9.0) as far as models are read here.

coremltools ships its generated classes without types. tests/mil/test_proto.py holds every field below against the classes.
"""

from collections.abc import Mapping, MutableMapping
from typing import Protocol, Self, TypeVar

class Descriptor(Protocol):
    name: str
    full_name: str
    fields_by_name: Mapping[str, object]

class Message:
    DESCRIPTOR: Descriptor
    def __init__(self, **fields: object) -> None: ...
    def WhichOneof(self, oneof: str) -> str | None: ...
    def HasField(self, name: str) -> bool: ...
    def ClearField(self, name: str) -> None: ...
    def CopyFrom(self, other: Self) -> None: ...
    def SetInParent(self) -> None: ...
    def ByteSize(self) -> int: ...
    def ParseFromString(self, data: bytes) -> int: ...
    def SerializeToString(self, *, deterministic: bool = ...) -> bytes: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)

class Scalars(list[_T]):
    """A repeated field of numbers, texts or messages; it answers like a list."""

class Messages(Scalars[_M]):
    """A repeated field of messages: an element is added in place."""

    def add(self, **fields: object) -> _M: ...

class MessageMap(dict[str, _M]):
    """A map field: looking a key up adds an empty message if there is none."""

class Enum:
    def items(self) -> list[tuple[str, int]]: ...
    def Name(self, number: int) -> str: ...
    def Value(self, name: str) -> int: ...
    def __getattr__(self, name: str) -> int: ...

class MIL_pb2:
    class Program(Message):
        version: int
        functions: MessageMap[MIL_pb2.Function]
        docString: str
        attributes: MessageMap[MIL_pb2.Value]

    class Function(Message):
        inputs: Messages[MIL_pb2.NamedValueType]
        opset: str
        block_specializations: MessageMap[MIL_pb2.Block]
        attributes: MessageMap[MIL_pb2.Value]

    class Block(Message):
        inputs: Messages[MIL_pb2.NamedValueType]
        outputs: Scalars[str]
        operations: Messages[MIL_pb2.Operation]
        attributes: MessageMap[MIL_pb2.Value]

    class Argument(Message):
        class Binding(Message):
            name: str
            value: MIL_pb2.Value

        arguments: Messages[MIL_pb2.Argument.Binding]

    class Operation(Message):
        type: str
        inputs: MessageMap[MIL_pb2.Argument]
        outputs: Messages[MIL_pb2.NamedValueType]
        blocks: Messages[MIL_pb2.Block]
        attributes: MessageMap[MIL_pb2.Value]

    class NamedValueType(Message):
        name: str
        type: MIL_pb2.ValueType

    class ValueType(Message):
        tensorType: MIL_pb2.TensorType
        listType: MIL_pb2.ListType
        tupleType: MIL_pb2.TupleType
        dictionaryType: MIL_pb2.DictionaryType
        stateType: MIL_pb2.StateType

    class TensorType(Message):
        dataType: int
        rank: int
        dimensions: Messages[MIL_pb2.Dimension]
        attributes: MessageMap[MIL_pb2.Value]

    class TupleType(Message):
        types: Messages[MIL_pb2.ValueType]

    class ListType(Message):
        type: MIL_pb2.ValueType
        length: MIL_pb2.Dimension

    class DictionaryType(Message):
        keyType: MIL_pb2.ValueType
        valueType: MIL_pb2.ValueType

    class StateType(Message):
        wrappedType: MIL_pb2.ValueType

    class Dimension(Message):
        class ConstantDimension(Message):
            size: int

        class UnknownDimension(Message):
            variadic: bool

        constant: MIL_pb2.Dimension.ConstantDimension
        unknown: MIL_pb2.Dimension.UnknownDimension

    class Value(Message):
        class ImmediateValue(Message):
            tensor: MIL_pb2.TensorValue
            tuple: MIL_pb2.TupleValue
            list: MIL_pb2.ListValue
            dictionary: MIL_pb2.DictionaryValue

        class BlobFileValue(Message):
            fileName: str
            offset: int

        docString: str
        type: MIL_pb2.ValueType
        immediateValue: MIL_pb2.Value.ImmediateValue
        blobFileValue: MIL_pb2.Value.BlobFileValue

    class TensorValue(Message):
        class RepeatedFloats(Message):
            values: Scalars[float]

        class RepeatedDoubles(Message):
            values: Scalars[float]

        class RepeatedInts(Message):
            values: Scalars[int]

        class RepeatedLongInts(Message):
            values: Scalars[int]

        class RepeatedBools(Message):
            values: Scalars[bool]

        class RepeatedStrings(Message):
            values: Scalars[str]

        class RepeatedBytes(Message):
            values: bytes

        floats: MIL_pb2.TensorValue.RepeatedFloats
        ints: MIL_pb2.TensorValue.RepeatedInts
        bools: MIL_pb2.TensorValue.RepeatedBools
        strings: MIL_pb2.TensorValue.RepeatedStrings
        longInts: MIL_pb2.TensorValue.RepeatedLongInts
        doubles: MIL_pb2.TensorValue.RepeatedDoubles
        bytes: MIL_pb2.TensorValue.RepeatedBytes

    class TupleValue(Message):
        values: Messages[MIL_pb2.Value]

    class ListValue(Message):
        values: Messages[MIL_pb2.Value]

    class DictionaryValue(Message):
        class KeyValuePair(Message):
            key: MIL_pb2.Value
            value: MIL_pb2.Value

        values: Messages[MIL_pb2.DictionaryValue.KeyValuePair]

    DataType: Enum
    UNUSED_TYPE: int
    BOOL: int
    STRING: int
    FLOAT8E4M3FN: int
    FLOAT8E5M2: int
    FLOAT16: int
    FLOAT32: int
    FLOAT64: int
    BFLOAT16: int
    INT8: int
    INT16: int
    INT32: int
    INT64: int
    INT4: int
    UINT8: int
    UINT16: int
    UINT32: int
    UINT64: int
    UINT4: int
    UINT2: int
    UINT1: int
    UINT6: int
    UINT3: int

class FeatureTypes_pb2:
    class Int64FeatureType(Message): ...
    class DoubleFeatureType(Message): ...
    class StringFeatureType(Message): ...

    class SizeRange(Message):
        lowerBound: int
        upperBound: int

    class ImageFeatureType(Message):
        class ImageSize(Message):
            width: int
            height: int

        class EnumeratedImageSizes(Message):
            sizes: Messages[FeatureTypes_pb2.ImageFeatureType.ImageSize]

        class ImageSizeRange(Message):
            widthRange: FeatureTypes_pb2.SizeRange
            heightRange: FeatureTypes_pb2.SizeRange

        INVALID_COLOR_SPACE: int
        GRAYSCALE: int
        RGB: int
        BGR: int
        GRAYSCALE_FLOAT16: int
        width: int
        height: int
        enumeratedSizes: FeatureTypes_pb2.ImageFeatureType.EnumeratedImageSizes
        imageSizeRange: FeatureTypes_pb2.ImageFeatureType.ImageSizeRange
        colorSpace: int

    class ArrayFeatureType(Message):
        class Shape(Message):
            shape: Scalars[int]

        class EnumeratedShapes(Message):
            shapes: Messages[FeatureTypes_pb2.ArrayFeatureType.Shape]

        class ShapeRange(Message):
            sizeRanges: Messages[FeatureTypes_pb2.SizeRange]

        INVALID_ARRAY_DATA_TYPE: int
        FLOAT32: int
        DOUBLE: int
        INT32: int
        INT8: int
        FLOAT16: int
        shape: Scalars[int]
        dataType: int
        enumeratedShapes: FeatureTypes_pb2.ArrayFeatureType.EnumeratedShapes
        shapeRange: FeatureTypes_pb2.ArrayFeatureType.ShapeRange
        intDefaultValue: int
        floatDefaultValue: float
        doubleDefaultValue: float

    class DictionaryFeatureType(Message):
        int64KeyType: FeatureTypes_pb2.Int64FeatureType
        stringKeyType: FeatureTypes_pb2.StringFeatureType

    class SequenceFeatureType(Message):
        int64Type: FeatureTypes_pb2.Int64FeatureType
        stringType: FeatureTypes_pb2.StringFeatureType
        sizeRange: FeatureTypes_pb2.SizeRange

    class StateFeatureType(Message):
        arrayType: FeatureTypes_pb2.ArrayFeatureType

    class FeatureType(Message):
        int64Type: FeatureTypes_pb2.Int64FeatureType
        doubleType: FeatureTypes_pb2.DoubleFeatureType
        stringType: FeatureTypes_pb2.StringFeatureType
        imageType: FeatureTypes_pb2.ImageFeatureType
        multiArrayType: FeatureTypes_pb2.ArrayFeatureType
        dictionaryType: FeatureTypes_pb2.DictionaryFeatureType
        sequenceType: FeatureTypes_pb2.SequenceFeatureType
        stateType: FeatureTypes_pb2.StateFeatureType
        isOptional: bool

class GLMRegressor_pb2:
    class GLMRegressor(Message):
        class DoubleArray(Message):
            value: Scalars[float]

        NoTransform: int
        Logit: int
        Probit: int
        weights: Messages[GLMRegressor_pb2.GLMRegressor.DoubleArray]
        offset: Scalars[float]
        postEvaluationTransform: int

class NonMaximumSuppression_pb2:
    class NonMaximumSuppression(Message):
        class PickTop(Message):
            perClass: bool

        pickTop: NonMaximumSuppression_pb2.NonMaximumSuppression.PickTop
        stringClassLabels: Message
        int64ClassLabels: Message
        iouThreshold: float
        confidenceThreshold: float
        confidenceInputFeatureName: str
        coordinatesInputFeatureName: str
        iouThresholdInputFeatureName: str
        confidenceThresholdInputFeatureName: str
        confidenceOutputFeatureName: str
        coordinatesOutputFeatureName: str

class Model_pb2:
    class Pipeline(Message):
        models: Messages[Model_pb2.Model]
        names: Scalars[str]

    class PipelineClassifier(Message):
        pipeline: Model_pb2.Pipeline

    class PipelineRegressor(Message):
        pipeline: Model_pb2.Pipeline

    class FeatureDescription(Message):
        name: str
        shortDescription: str
        type: FeatureTypes_pb2.FeatureType

    class Metadata(Message):
        shortDescription: str
        versionString: str
        author: str
        license: str
        userDefined: MutableMapping[str, str]

    class FunctionDescription(Message):
        name: str
        input: Messages[Model_pb2.FeatureDescription]
        output: Messages[Model_pb2.FeatureDescription]
        state: Messages[Model_pb2.FeatureDescription]
        predictedFeatureName: str
        predictedProbabilitiesName: str

    class ModelDescription(Message):
        functions: Messages[Model_pb2.FunctionDescription]
        defaultFunctionName: str
        metadata: Model_pb2.Metadata
        input: Messages[Model_pb2.FeatureDescription]
        output: Messages[Model_pb2.FeatureDescription]
        state: Messages[Model_pb2.FeatureDescription]
        predictedFeatureName: str
        predictedProbabilitiesName: str
        trainingInput: Messages[Model_pb2.FeatureDescription]

    class Model(Message):
        specificationVersion: int
        description: Model_pb2.ModelDescription
        isUpdatable: bool
        pipelineClassifier: Model_pb2.PipelineClassifier
        pipelineRegressor: Model_pb2.PipelineRegressor
        pipeline: Model_pb2.Pipeline
        glmRegressor: GLMRegressor_pb2.GLMRegressor
        supportVectorRegressor: Message
        treeEnsembleRegressor: Message
        neuralNetworkRegressor: Message
        bayesianProbitRegressor: Message
        glmClassifier: Message
        supportVectorClassifier: Message
        treeEnsembleClassifier: Message
        neuralNetworkClassifier: Message
        kNearestNeighborsClassifier: Message
        neuralNetwork: Message
        itemSimilarityRecommender: Message
        mlProgram: MIL_pb2.Program
        customModel: Message
        linkedModel: Message
        classConfidenceThresholding: Message
        oneHotEncoder: Message
        imputer: Message
        featureVectorizer: Message
        dictVectorizer: Message
        scaler: Message
        categoricalMapping: Message
        normalizer: Message
        arrayFeatureExtractor: Message
        nonMaximumSuppression: NonMaximumSuppression_pb2.NonMaximumSuppression
        identity: Message
        textClassifier: Message
        wordTagger: Message
        visionFeaturePrint: Message
        soundAnalysisPreprocessing: Message
        gazetteer: Message
        wordEmbedding: Message
        audioFeaturePrint: Message
        serializedModel: Message
