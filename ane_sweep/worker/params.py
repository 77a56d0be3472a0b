"""Parameters of tasks as types. A stage converts its JSON values when it starts, which checks them."""

from typing import TypeVar

import msgspec

from ane_sweep.bridge import conversion
from ane_sweep.bridge.programs import DEFAULT
from ane_sweep.bridge.recipes import Recipe
from ane_sweep.errors import StageError

P = TypeVar("P", bound="Params")


class Params(msgspec.Struct, frozen=True):
    """Base class for the parameters of one stage. Fields that no stage reads are only in the JSON."""

    @classmethod
    def read(cls: type[P], values: dict[str, object]) -> P:
        """Convert a task's parameters to this type. Raises StageError if one is missing or has another type."""
        try:
            return conversion.convert(values, cls)
        except msgspec.ValidationError as error:
            raise StageError(f"the task's params do not fit: {error}; run the same command again") from error


class Model(Params, frozen=True):
    """The model of a task. `arch` is the checkpoint's config, whose keys depend on the family."""

    task: str = ""
    family: str = ""
    arch: dict[str, object] = {}


class Weights(Params, frozen=True):
    """The source of a model's weights: random, pretrained, path or own."""

    kind: str


class BuildParams(Params, frozen=True, kw_only=True):
    """Parameters of every stage that builds the model in torch; the model's builder reads all of them from the JSON."""

    model: Model
    weights: Weights | None = None
    seq_len: int = 0


class ProgramParams(Params, frozen=True, kw_only=True):
    """Parameters of every stage that calls parts of a program kind; the kind is a folder of worker/programs/."""

    program: str = DEFAULT


class ConvertParams(BuildParams, frozen=True, kw_only=True):
    """Parameters of a conversion: the model, its OS, its precision, and patterns of ops of an fp16 program that stay in fp32.

    tools  versions of the distributions of a program kind that has its own
    recipe, compressor  of weights that coreai-opt compresses first: its version; {} for none
    """

    program: str = DEFAULT
    tools: dict[str, str | None] = {}
    recipe: Recipe = {}
    compressor: dict[str, str | None] = {}
    target: str
    compute: str
    fp32_ops: list[str] = []


class HostParams(ProgramParams, frozen=True, kw_only=True):
    """Parameters of every stage that calls Core ML: the digest of the host, and the device, local or usb."""

    host: str = ""
    device: str = "local"


class CoreMLParams(HostParams, frozen=True, kw_only=True):
    """Parameters for loading a program in Core ML. `identity` (a digest) and `chip` are those of a connected device."""

    compute_units: str = "all"
    identity: str = ""
    chip: str = ""


class LoadHints(Params, frozen=True):
    """Core ML's load hints, among the options of a task; the axes of these names explain them."""

    reshape_frequency: str = "frequent"
    specialization: str = "default"
    low_precision_accumulation: bool = False


NO_HINTS = LoadHints()


class Texts(Params, frozen=True):
    """The texts that a reference is made from; `tokenizer` is a digest, or None for seeded ids."""

    count: int
    seed: int = 0
    tokenizer: str | None = None


class SensitivityParams(Params, frozen=True):
    """The options of a mixed recipe: candidate widths, the smallest weight to compress, and patterns of weights to skip."""

    candidates: list[int]
    min_elements: int
    skip: list[str]


class Policy(Params, frozen=True):
    """The sampling policy: counts of warm-ups and samples, and limits in seconds. `idle_s` None: the runtime's default."""

    warmup: int
    samples: int
    max_seconds: int | float
    idle_s: int | float | None = None


class CopiesParams(Params, frozen=True):
    """The settings of copies: how many are loaded at once, identical or different, in which order, of which sizes."""

    count: int
    kind: str
    order: str
    sizes: list[int | float] | None = None


class RuntimeParams(Params, frozen=True, kw_only=True):
    """Parameters of every stage that runs a program or module; a runtime reads those that it supports.

    model, weights, seq_len, variant  settings of the module, for the torch runtimes
    """

    runtime: str
    host: str = ""
    device: str = "local"
    identity: str = ""
    chip: str = ""
    compute_units: str | None = None
    numerics: str | None = None
    effects: list[str] | None = None
    model: Model = Model()
    weights: Weights | None = None
    seq_len: int = 0
    variant: str = ""
