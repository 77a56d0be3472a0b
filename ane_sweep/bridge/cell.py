"""A cell: one requested point of the matrix."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any

from ane_sweep.bridge import axes
from ane_sweep.bridge.axes import LOADS, MACOS_TARGETS, RUNS, TARGETS, Asked, axis, mapping
from ane_sweep.bridge.axes.cut import Cut
from ane_sweep.bridge.axes.running import Copies, Hints, Numerics
from ane_sweep.bridge.axes.scoring import Scoring
from ane_sweep.bridge.building import Options
from ane_sweep.bridge.key import abbreviate, format_value
from ane_sweep.bridge.kinds import KINDS, Kind
from ane_sweep.bridge.programs import DEFAULT, PROGRAMS
from ane_sweep.bridge.rewrites import NO_REWRITE, OF_PROGRAMS
from ane_sweep.bridge.runtimes import program_kind
from ane_sweep.bridge.settings import ModelSettings, PrecisionSettings, read_model, read_precision


def _too_long(asked: Asked) -> str | None:
    if asked["seq_len"] > asked["longest"] and KINDS[asked["task"]].length != "architecture":
        return f"seq_len={asked['seq_len']} is beyond the {asked['longest']} positions of {asked['model']}"
    return None


def _old_converter(name: str, value: object) -> str | None:
    known = f"{name}={INSTALLED}, or a version from {LEAST_CONVERTER} on, as 8.3.0"
    if value == INSTALLED or re.fullmatch(r"([89]|[1-9]\d+)(\.\d+)+((a|b|rc|\.dev)\d+)?", str(value)):
        return None
    is_old = re.match(r"[0-7](\.|$)", str(value))
    return f"{name}={value}: expected {known}" + ("; older ones need another protobuf" if is_old else "")


def _other_torch(name: str, value: object) -> str | None:
    is_whole = re.fullmatch(r"2\.\d+\.\d+((a|b|rc|\.dev)\d+)?", str(value))  # never a number: 2.10 would be 2.1
    if value == INSTALLED or is_whole:
        return None
    return f"{name}={value}: expected {name}={INSTALLED}, or a whole version, as 2.7.0 or 2.10.0"


def _other_toolchain(asked: Asked) -> str | None:
    wanted, made = asked["toolchain"], program_kind(asked["runtime"]).toolchain
    if made == wanted:
        return None
    return (
        f"toolchain={wanted} with runtime={asked['runtime']}, which executes nothing that it makes; use runtime=auto, or "
        f"toolchain={made}"
    )


def _rewrites(name: str, value: object) -> str | None:
    if isinstance(value, list) and (not value or NO_REWRITE in value):
        return f"{name}={abbreviate(value)}: expected names of rewrites; {name}={NO_REWRITE} applies none"
    return None


INSTALLED, LEAST_CONVERTER = "installed", "8.0"  # values of the axes `converter` and `torch_version`
_conversion = partial(axis, honoured="precision", late=True)
_installed = partial(_conversion, most=100, plain=INSTALLED, shapes=("install", "convert"))


@dataclass(frozen=True, kw_only=True)
class Common:
    """Every cell's axes. `model` and `precision` name options; `model_options` and `precision_options` hold them."""

    model: str = mapping(shapes=("fetch", "reference", "examples", "convert"))
    family: str
    size: str
    variant: str = axis(
        "the model as it is, or rewritten for the Neural Engine (v2: queries in parts, where a family has it)",
        choices=("original", "split_einsum", "split_einsum_v2"),
        shapes=("convert", RUNS),
    )
    chunks: int | str = axis(
        "how many programs the model is cut into; auto: the fewest that the chip takes",
        least=1,
        words=("auto",),
        most=1000,
        why="each is a program of its own, and no model here has as many places to cut",
        shapes=("chunk", "predict", "compile", LOADS),  # no chunk task is an answer, too
        honoured="chunks",
    )
    rewrite: str | list[str] = axis(
        "rewrites of the converted program (`ane-sweep fix --list` explains each), kept if the first of `chips` gains: those for "
        "placement (ane), for accuracy in fp16 (accurate), all, one, or several as [a,b]",
        choices=OF_PROGRAMS,
        check=_rewrites,
        plain=NO_REWRITE,
        shapes=("rewrite",),
        honoured="precision",
        late=True,
    )
    converter: str | float = _installed(
        "which coremltools converts: the installed one, or a version as 8.3.0, which is installed aside (8.0 and newer)",
        check=_old_converter,
        why="coremltools has no such version",
    )
    torch_version: str | float = _installed(
        "which torch traces the model for the conversion: the installed one, or a version as 2.7.0, which is installed aside",
        check=_other_torch,
        why="torch has no such version",
    )
    toolchain: str = axis(
        "whose converter makes the program: Core ML's, or Core AI's (the extra coreai), whose assets runtime=coreai executes",
        choices=tuple(sorted({kind.toolchain for kind in PROGRAMS.values()}, reverse=True)),
        plain=PROGRAMS[DEFAULT].toolchain,
        shapes=("convert", RUNS),
        refuses=_other_toolchain,
        late=True,
    )
    precision: str = mapping(shapes=("convert",), honoured="precision")
    compressor: str = _conversion(
        "what compresses weights: ane_sweep the program, or coreai_opt (the extra coreai) the torch model, whose codes both "
        "toolchains take; auto: the first that the toolchain has",
        choices=("auto", "ane_sweep", "coreai_opt"),
        plain="auto",
        shapes=("convert", "compress"),
    )
    compute_units: str = axis(
        "what Core ML may use",
        choices=("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"),
        shapes=("predict", LOADS),
        honoured="compute_units",
    )
    seq_len: int = axis(
        "tokens in one input",
        least=1,
        most=2**20,
        why="attention takes the square of it",
        plain=128,
        shapes=("reference", "examples", "convert"),
        refuses=_too_long,
    )
    target: str = axis(
        "the oldest OS the program must run on",
        choices=(*TARGETS, *MACOS_TARGETS),
        shapes=("convert",),
        honoured="target",
    )
    runtime: str = axis("what executes the program; auto = coreml on macOS, else reference", shapes=("load", RUNS))
    weights: str = axis(
        "pretrained, random, or a folder (a checkpoint, or one sub-folder per model)",
        shapes=("reference", "examples", "convert"),
    )
    seed: int = axis(
        "of random weights and synthetic inputs",
        least=0,
        most=2**63 - 1,
        why="a seed has 63 bits",
        shapes=("reference", "convert"),
    )
    allow_pickle: bool = axis(
        "accept pytorch_model.bin where there are no safetensors", shapes=("fetch", "reference", "convert"), named=False
    )
    fault: str = axis(
        "crash-tests the runner: the fault to commit in the convert process",
        choices=("none", "segfault", "hang", "memory", "raise", "corrupt_weights"),
        plain="none",
        enters=("convert", "adopt"),  # read by the worker alone, which hands it to no stage
    )


@dataclass(frozen=True, kw_only=True)
class Cell(Hints, Scoring, Numerics, Options, Copies, Cut, Common):
    """The request of one cell; it never changes, and the record stores the actual run as `realised`. A field defines a
    whole axis: see axes/. (The last base class comes first in the order of the fields.)
    """

    throughput: int = axis(
        "inputs predicted one after the other, texts repeated until there are as many; 0: none",
        least=0,
        most=10**8,
        why="at a millisecond each that is a day",
        shapes=("throughput",),
        named=False,
    )
    evidence: str = axis(
        "auto: coreml also watches power, log and memory in a second pass, and times cpu_only and cpu_and_gpu to compare with",
        choices=("auto", "off"),
        shapes=("evidence",),
        named=False,
    )
    compiler: str = axis(
        "what makes the .mlmodelc: Core ML itself, or Xcode's coremlc",
        choices=("coremltools", "coremlc"),
        shapes=("compile",),
        honoured="compiler",
    )
    device: str = axis(
        "where Core ML runs: this Mac, or the iPhone or iPad on its USB port",
        choices=("local", "usb"),
        plain="local",
        shapes=("compile", LOADS),
        honoured="device",
        unhonoured="device={device} is Core ML on an iPhone or iPad; runtime={runtime} knows no device: runtime=coreml",
    )
    machine: str | None = axis(
        "with executor=dask, what measures: a chip as m4, or a worker's name; null: any of the fleet",
        plain=None,
        shapes=("compile", LOADS, RUNS),
    )
    latency: Mapping[str, Any] = mapping(shapes=("latency",), named=False)
    limits: Mapping[str, Mapping[str, float | None]] = mapping(named=False)  # enters no task's key
    model_options: Mapping[str, object]
    precision_options: Mapping[str, object]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Cell":
        """Return the cell of a configuration that was composed and checked."""
        model, precision = config["model"], config["precision"]
        return cls(
            **{name: config[name] for name in _ITS_OWN},
            model=model["name"],
            family=model["family"],
            size=model["size"],
            precision=precision["name"],
            model_options=model,
            precision_options=precision,
        )

    def as_dict(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def key(self) -> str:
        """Return the sha256 of the canonical JSON of the request, 64 hex digits."""
        values = self.as_dict()
        plain = {name for name, known in DECLARED.items() if known.late and values[name] == known.plain}
        return digest({name: value for name, value in values.items() if name not in plain})

    @cached_property
    def model_settings(self) -> ModelSettings:
        return read_model(self.model_options)

    @cached_property
    def precision_settings(self) -> PrecisionSettings:
        return read_precision(self.precision_options)

    @property
    def kind(self) -> Kind:
        """Return the rules for the kind of model that this cell has."""
        return KINDS[self.model_settings.task]

    @property
    def ios_target(self) -> str:
        """Return the target as an iOS name: macOS15 and iOS18 are one opset."""
        return MACOS_TARGETS.get(self.target, self.target)

    def label(self, axes: tuple[str, ...] | list[str]) -> str:
        """Return a text that names the cell by the given axes, as `model=gpt2 chunks=2`; dotted names reach into the policies."""
        return " ".join(f"{axis}={format_value(self.value(axis))}" for axis in axes)

    def value(self, axis: str) -> object:
        """Return the cell's value on an axis of the command line, e.g. `chunks`, `latency.samples`, `model.texts.count`."""
        head, *path = axis.split(".")
        if path and head in ("model", "precision"):
            head += "_options"
        value = getattr(self, head)
        for part in path:
            value = value[part]
        return value


DECLARED = axes.declared(Cell)
AXES = tuple(name for name, known in DECLARED.items() if known.named)
_OF_GROUPS = ("model", "family", "size", "precision", "model_options", "precision_options")
_ITS_OWN = tuple(field.name for field in fields(Cell) if field.name not in _OF_GROUPS)


def canonical_json(value: object) -> str:
    """Return JSON with sorted keys and no spaces; strict, so that NaN never enters a key."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def digest(value: object) -> str:
    """Return the sha256 of the canonical JSON of a plain value, 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


BASELINES = {"cpu_only": "cpu", "cpu_and_gpu": "gpu"}
