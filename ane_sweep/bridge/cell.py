"""A cell: one requested point of the matrix. Standard library only."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from ane_sweep.bridge import axes
from ane_sweep.bridge.axes import LOADS, RUNS, axis, mapping
from ane_sweep.bridge.axes.common import Common
from ane_sweep.bridge.axes.copies import Copies
from ane_sweep.bridge.axes.cut import Cut
from ane_sweep.bridge.axes.numerics import Numerics
from ane_sweep.bridge.axes.scoring import Scoring
from ane_sweep.bridge.axes.targets import MACOS_TARGETS
from ane_sweep.bridge.building import Options
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.kinds import KINDS, Kind


@dataclass(frozen=True, kw_only=True)
class Cell(Scoring, Numerics, Options, Copies, Cut, Common):
    """A request, which never changes; the record keeps what really happened as `realised`. A field defines a whole axis:
    see axes/. (The last of the bases comes first in the order of the fields.)"""

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
    limits: Mapping[str, Any] = mapping(named=False)  # enters no task's key
    model_options: Mapping[str, Any]
    precision_options: Mapping[str, Any]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Cell":
        """Return the cell of a composed configuration that has been checked."""
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

    def as_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def key(self) -> str:
        """Return the sha256 of the canonical JSON of the request, 64 hex digits."""
        return digest(self.as_dict())

    @property
    def kind(self) -> Kind:
        """Return the rules of its model's task."""
        return KINDS[self.model_options["task"]]

    @property
    def ios_target(self) -> str:
        """Return the target as an iOS name: macOS15 and iOS18 are one opset."""
        return MACOS_TARGETS.get(self.target, self.target)

    def label(self, axes: tuple[str, ...] | list[str]) -> str:
        """Return the cell by the given axes, as `model=gpt2 chunks=2`; dotted names reach into the policies."""
        return " ".join(f"{axis}={format_value(self.value(axis))}" for axis in axes)

    def value(self, axis: str) -> Any:
        """Return the cell's value on an axis of the command line, e.g. `chunks`, `latency.samples`, `model.texts.count`."""
        head, *path = axis.split(".")
        if path and head in ("model", "precision"):
            head += "_options"
        value: Any = getattr(self, head)
        for part in path:
            value = value[part]
        return value


DECLARED = axes.declared(Cell)
AXES = tuple(name for name, known in DECLARED.items() if known.named)
_OF_GROUPS = ("model", "family", "size", "precision", "model_options", "precision_options")
_ITS_OWN = tuple(field.name for field in fields(Cell) if field.name not in _OF_GROUPS)


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces; strict, so that NaN never enters a key."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def digest(value: Any) -> str:
    """Return the sha256 of the canonical JSON of a plain value, 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


BASELINES = {"cpu_only": "cpu", "cpu_and_gpu": "gpu"}
