"""A cell: one point of the matrix, as it was asked for. Standard library only."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

VARIANTS = ("original", "split_einsum")
COMPUTE_UNITS = ("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne")
FAULTS = ("none", "segfault", "hang", "memory", "raise", "corrupt_weights")
COMPILERS = ("coremltools", "coremlc")
DEVICES = ("local", "usb")
# Oldest first. ML Programs begin at iOS15; the newest is what coremltools 9.0's `ct.target` knows (a test compares).
TARGETS = ("iOS15", "iOS16", "iOS17", "iOS18", "iOS26")
MACOS_TARGETS = {"macOS12": "iOS15", "macOS13": "iOS16", "macOS14": "iOS17", "macOS15": "iOS18", "macOS26": "iOS26"}
AXES = (
    "model", "variant", "chunks", "precision", "compute_units", "seq_len", "target", "runtime", "weights", "seed", "fault",
    "chunk_by", "own_chunks", "pipeline", "limits_for", "copies", "copies_kind", "copies_order", "copies_sizes",
    "head", "mask", "embeddings", "lm_head_splits", "norm", "pad_last_axis", "cache", "inputs", "numerics", "effects",
    "compiler", "device",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A request that nobody edits; what happened is recorded beside it as `realised`.

    model, precision   names of the options; their contents are in `model_options`, `precision_options`
    family, size       the model's, as fields of their own
    head ... inputs   how the model is built: see models/_options.py
    chunk_by ... limits_for  how it is cut: see chunking.py
    copies ... copies_sizes  how often it is loaded at once: see runtimes/_copies.py
    numerics, effects  how the reference runtime computes: see runtimes/_reference/effects.py
    throughput, evidence  what is done beside timing: inputs predicted in a loop, and whether the machine is watched
    compiler, device   what compiles for Core ML, and where it runs
    latency, limits    policies, as in conf/config.yaml (`limits` enters no task's key)
    """

    model: str
    family: str
    size: str
    variant: str
    chunks: int | str
    precision: str
    compute_units: str
    seq_len: int
    target: str
    runtime: str
    weights: str
    seed: int
    allow_pickle: bool
    fault: str
    chunk_by: str
    own_chunks: str
    pipeline: str
    limits_for: str | None
    copies: int
    copies_kind: str
    copies_order: str
    copies_sizes: list[float] | None
    head: str
    mask: str
    embeddings: str
    lm_head_splits: int
    norm: str
    pad_last_axis: int
    cache: str
    inputs: str
    numerics: str
    effects: list[str] | None
    throughput: int
    evidence: str
    compiler: str
    device: str
    latency: Mapping[str, Any]
    limits: Mapping[str, Any]
    model_options: Mapping[str, Any]
    precision_options: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def key(self) -> str:
        """sha256 of the canonical JSON of the request, 64 hex digits."""
        return digest(self.as_dict())

    @property
    def ios_target(self) -> str:
        """The target as an iOS name: macOS15 and iOS18 are one opset."""
        return MACOS_TARGETS.get(self.target, self.target)

    def label(self, axes: tuple[str, ...] | list[str] = AXES) -> str:
        """`model=gpt2 chunks=2`: the cell by the axes given, dotted names reaching into the policies."""
        return " ".join(f"{axis}={self.value(axis)}" for axis in axes)

    def value(self, axis: str) -> Any:
        """The cell's value on an axis of the command line, e.g. `chunks`, `latency.samples`, `model.texts.count`."""
        head, *path = axis.split(".")
        if path and head in ("model", "precision"):
            head += "_options"
        value: Any = getattr(self, head)
        for part in path:
            value = value[part]
        return value


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces; strict, so that NaN never enters a key."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def digest(value: Any) -> str:
    """sha256 of the canonical JSON of a plain value, 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
