"""Judgement of Core AI's assets: an asset's ops and weights (.aimodel), a compiled one's regions (.aimodelc), and known faults.

Nothing predicts the placement of an asset: macOS 27 alone plans it. A compiled asset tells by the names of its files
which parts the Neural Engine has (apple/coreai-models#205).
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path

from ane_sweep.errors import PackageError
from ane_sweep.machine import asset_ops
from ane_sweep.machine.asset_ops import AssetOp, split_type
from ane_sweep.placement.findings import Finding, Severity
from ane_sweep.placement.rows import count_text

SOURCE, COMPILED = ".aimodel", ".aimodelc"
_BROKEN = "coreai-core 1.0.0b1"  # of coreai-torch 0.4.0; that version names no producer at all
_REGION = re.compile(r"([A-Z]+)_region_\d+(?:_\d+)*")
_INTEGERS = ("si", "ui")


@dataclass(frozen=True)
class AssetReport:
    """One asset: its producer, counts of ops by name and of weights' numbers by type, regions by unit, and findings.

    architectures  those that a compiled asset is for, as "h16g"
    whole          True if a compiled asset's manifest says that all of it is on the Neural Engine
    """

    path: Path
    producer: str | None = None
    ops: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    regions: Mapping[str, int] = field(default_factory=dict)
    architectures: Sequence[str] = ()
    whole: bool = False
    findings: Sequence[Finding] = ()

    @property
    def is_ok(self) -> bool:
        return not any(one.severity == "error" for one in self.findings)

    def to_dict(self) -> dict[str, object]:
        """Return the entry of an asset in the output of `ane-sweep lint --json`."""
        return {**asdict(self), "path": str(self.path), "verdict": self.is_ok}


def judge(path: Path, must_use_ane: bool = True) -> AssetReport:
    """Judge an asset. A compiled one without a part for the Neural Engine is an error if `must_use_ane`. Raises PackageError."""
    if not path.is_dir():
        raise PackageError(f"{path}: no such asset; is the path right?")
    return _judge_compiled(path, must_use_ane) if path.suffix == COMPILED else _judge_source(path)


def _judge_compiled(path: Path, must_use_ane: bool) -> AssetReport:
    found = {(match[1], match[0]) for file in path.rglob("*") if (match := _REGION.search(file.name))}
    regions = dict(Counter(unit for unit, _ in sorted(found)))
    names = sorted(
        {match[1] for file in path.rglob("*-delegates") if (match := re.search(r"-(\w+)-delegates$", file.name))}
    )
    if not names and not regions and not any(path.glob("*.mlirb")):
        raise PackageError(f"{path}: holds no program of Core AI (main-*.mlirb); copy the whole folder")
    manifests = [file.read_bytes() for file in path.rglob("manifest.plist")]
    whole = any(b"mps.fullyPlacedOnANE" in one and b"mps.noGPUActivity" in one for one in manifests)
    findings = []
    if not regions.get("ANE"):
        findings = [
            _make_finding(
                "no_ane_region", "error" if must_use_ane else "note", "no part of it is for the Neural Engine",
                "it runs on the GPU; coreai-build exits with 0 all the same", "apple/coreai-models#205 (open)",
                "compile it again with tables (precision=p4_g16), which its compiler took where whole numbers failed",
            )
        ]  # fmt: skip
    return AssetReport(path, regions=regions, architectures=names, whole=whole, findings=findings)


def _judge_source(path: Path) -> AssetReport:
    try:
        producer = json.loads((path / "metadata.json").read_text(encoding="utf-8")).get("producer")
    except (OSError, ValueError, AttributeError):
        raise PackageError(
            f"{path}: has no readable metadata.json, so it is no asset of Core AI; convert the model again"
        ) from None
    if producer in (None, _BROKEN):
        why = 'OS 27 beta 2 and newer, and coreai-core 1.0.0b3 here, end with an abort: "expected AICode versioned location"'
        broken = _make_finding(
            "old_asset", "error", "made by coreai-torch 0.4.0, whose assets nothing loads any more", why,
            "apple/coreai-torch#44; coreai-torch 0.4.0's own asset", "convert it again with coreai-torch 0.4.1 or newer",
        )  # fmt: skip
        return AssetReport(path, producer, findings=[broken])
    ops = asset_ops.read(path)
    weights: Counter[str] = Counter()
    for op in ops:
        if op.name == "constant":
            shape, element = split_type(op.gives[0])
            weights[element] += max(0, prod(shape))
    counts = Counter(op.name for op in ops if op.name not in ("constant", "output"))
    return AssetReport(
        path, str(producer), dict(counts.most_common()), dict(weights.most_common()), findings=find_faults(ops)
    )


def find_faults(ops: Sequence[AssetOp]) -> list[Finding]:
    """Return a finding for each known fault of an asset's ops."""
    counts = [(rule, sum(map(rule.matches, ops))) for rule in _RULES]
    return [
        _make_finding(rule.name, rule.severity, rule.what.format(count_text(count, rule.noun)), rule.why, rule.source, rule.do, count)
        for rule, count in counts if count
    ]  # fmt: skip


def _make_finding(name: str, severity: Severity, what: str, why: str, source: str, do: str, ops: int = 1) -> Finding:
    return Finding(
        rule=f"asset/{name}", severity=severity, what=what, why=why, source=source, do=do, confidence="medium", ops=ops,
    )  # fmt: skip


def _is_blocked(op: AssetOp) -> bool:
    """Return True for whole numbers with several scales along an input axis."""
    if op.name != "blockwise_shift_scale":
        return False
    (codes, kind), (scales, _) = split_type(op.takes[0]), split_type(op.takes[1])
    blocks = [axis for axis, (length, count) in enumerate(zip(codes, scales)) if 1 < count < length]
    return kind.startswith(_INTEGERS) and bool(blocks) and len(codes) == len(scales)


@dataclass(frozen=True)
class _Rule:
    """A known fault: the ops that it concerns, and a finding's texts; `what` takes the count of `noun`."""

    name: str
    matches: Callable[[AssetOp], bool]
    noun: str
    what: str
    why: str
    source: str
    do: str
    severity: Severity = "warning"


_RULES = (
    _Rule(
        "block_scales", _is_blocked, "weight", "{} of whole numbers with a scale for each block",
        "the Neural Engine of an iPhone 16 Pro Max (iOS 27.0) gave outputs of cosine 0.367 to fp32's, its GPU 0.999",
        "apple/coreai-models#279", "tables (precision=p8, p4_g16): 0.9975 there; or a scale a channel",
    ),
    _Rule(
        "fp16_batch_norm",
        lambda op: op.name in ("sqrt", "rsqrt") and "batch_norm" in op.function and split_type(op.gives[0])[1] == "f16",
        "batch norm", "{} with the variance in fp16",
        "a variance above 65,504 is infinite there and the output zero; errors up to 4.9 in its own tests",
        "apple/coreai-torch#54", "convert it again with coreai-torch 0.4.2 or newer",
    ),
    _Rule(
        "quantized_products",
        lambda op: op.name in ("mul", "broadcasting_mul") and "dequantize" in op.makers and "quantize" in op.users,
        "product", "{} between dequantize and quantize",
        "the Neural Engine returned 2, 4 and 8 for 1, by the scale of the output", "apple/coreai-torch#112",
        "a clamp of the product to the range of its codes before it is quantized",
    ),
    _Rule(
        "fp32_ops",
        lambda op: op.name not in ("constant", "cast", "output") and any(split_type(one)[1] == "f32" for one in op.gives),
        "op", "{} in fp32", "on the Neural Engine, which computes in fp16, each ends a part of the program",
        "john-rocky/coreai-model-zoo#36 (M4, macOS 27.0)", "precision=fp16; else find fp32 in the code, or in widened weights", "note",
    ),
)  # fmt: skip
