"""`diff` of Core AI's assets: their outputs and ops anywhere, on macOS 27 also where their ops run and how long."""

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np

from ane_sweep.errors import ConfigError, PackageError
from ane_sweep.machine import asset_ops
from ane_sweep.machine.asset_ops import shorten
from ane_sweep.placement.rows import count_text
from ane_sweep.terminal import NOT_ALL_OK, OK, tell
from ane_sweep.verbs import run as running
from ane_sweep.words import Parser

_MODULE = "ane_sweep.worker.programs.coreai.differ"
_PACKAGES_ONLY = ("function", "numerics", "effects", "drift", "chip", "device")
_SHOWN = 20
_WHERE = "macOS 27 alone plans and times an asset, with USE_OS_COREAI=1 in the environment"
Outputs = dict[str, tuple[str, float]]  # what is said of each, and its PSNR in dB


class OpPlace(TypedDict):
    """An op that only one program has: to_dict of coreai-torch's ComputePlacement."""

    operation_id: int
    name: str
    devices: list[str]


class OpMove(TypedDict):
    """An op on another unit: to_dict of ComputePlacementChange."""

    operation_id: int
    name: str
    before: list[str]
    after: list[str]
    modified: bool
    validation_before: list[str]
    reason: list[str]


class PlanDiff(TypedDict):
    """The part of ComputePlanDiff.to_dict that is read here."""

    changes: list[OpMove]
    unchanged: int
    only_before: list[OpPlace]
    only_after: list[OpPlace]


class Group(TypedDict):
    """Ops that were timed together: OperationTiming.to_dict."""

    op_names: list[str]
    measurement: dict[str, dict[str, float]]


class GroupPair(TypedDict):
    """A group before and after: MatchedDispatch or ResizedDispatch."""

    before: Group
    after: Group
    median_delta_ms: float
    extra_op_ids: NotRequired[list[int]]
    resize: NotRequired[str]


class TimingDiff(TypedDict):
    """The part of TimingDiff.to_dict that is read here."""

    matched: list[GroupPair]
    resized: list[GroupPair]
    only_before: list[Group]
    only_after: list[Group]
    before_dispatch_count: int


class ProgramDiff(TypedDict):
    """The answer of `differ compare`: counts of ops by name; `unsure` have another possible pairing; on macOS 27 the rest."""

    same: bool
    paired: int
    unsure: int
    weights: bool
    changed: dict[str, int]
    only_a: dict[str, int]
    only_b: dict[str, int]
    placement: NotRequired[PlanDiff]
    timing: NotRequired[TimingDiff]
    untimed: NotRequired[str]


def diff(
    given: argparse.Namespace, parser: Parser, compare: Callable[[dict[str, object], dict[str, object]], Outputs]
) -> int:
    """Compare two assets, their outputs by `compare`; return the exit code of `diff`, whose words `parser` has read.

    Raises ConfigError for options that mean nothing here, PackageError.
    """
    if wrong := [name for name in _PACKAGES_ONLY if getattr(given, name) != parser.get_default(name)]:
        raise ConfigError(f"--{wrong[0]}: of Core ML's packages; Core AI's runtime computes an asset as it was written")
    for path in (given.a, given.b):
        if not path.is_dir():
            raise PackageError(f"{path}: no such asset; is the path right?")
    with tempfile.TemporaryDirectory() as folder:
        taken = [json.loads(asset_ops.ask(_MODULE, "describe", path)) for path in (given.a, given.b)]
        if differ := [name for name in taken[0].keys() & taken[1].keys() if taken[0][name][1] != taken[1][name][1]]:
            sizes = " and ".join(str(one[differ[0]][1]) for one in taken)
            raise ConfigError(
                f"{given.a} and {given.b} take {differ[0]} of {sizes}: nothing can be given to both; name two of one interface"
            )
        seed = 0 if given.random is None and not given.input else given.random
        np.savez(Path(folder, "inputs.npz"), **_read_inputs(given.input, {**taken[0], **taken[1]}, seed))  # type: ignore[arg-type]
        found: ProgramDiff = json.loads(
            asset_ops.ask(_MODULE, "compare", given.a, given.b, folder, given.compute_units, given.runs)
        )
        outputs = compare(*({**np.load(Path(folder, f"{side}.npz"))} for side in "ab"))
    under = given.min_psnr is not None and any(psnr < given.min_psnr for _, psnr in outputs.values())
    code = NOT_ALL_OK if under else OK
    if given.json:
        told = {name: {"text": text, "psnr_db": psnr} for name, (text, psnr) in outputs.items()}
        tell(a={"package": str(given.a)}, b={"package": str(given.b)}, outputs=told, **found, exit=code)
        return code
    print(f"A {given.a}\nB {given.b}: both in Core AI's runtime on this CPU")
    if seed is not None and not given.input:
        print(f"inputs: random, seed {seed}")
    print("\n".join(f"  {name}: {text}" for name, (text, _) in outputs.items()))
    print("\n".join(describe(found, given.compute_units)))
    return code


def _read_inputs(
    given: list[str], taken: Mapping[str, tuple[str, list[int]]], seed: int | None
) -> dict[str, np.ndarray]:
    from ane_sweep.reference.features import Feature

    features = {name: Feature(name, "array", np.dtype(dtype), tuple(shape)) for name, (dtype, shape) in taken.items()}
    values = running.read_inputs(given, features, None)
    for name, feature in features.items():
        if name not in values and -1 in feature.shape:
            raise ConfigError(f"input {name} has free lengths ({list(feature.shape)}); give --input {name}=FILE.npy")
    for name in values.keys() & features.keys():
        feature, shape = features[name], np.asarray(values[name]).shape
        if -1 not in feature.shape and (problem := feature.misfit(shape)):
            raise ConfigError(f"--input: {name} {problem}")
    values |= running.read_inputs([], {name: one for name, one in features.items() if name not in values}, seed)
    return {name: np.asarray(value) for name, value in values.items()}


def describe(found: ProgramDiff, units: str) -> list[str]:
    """Return the lines about ops, plans and durations."""
    if found["same"]:
        lines = ["ops: the same graph" + (", weights and all" if found["weights"] else "; weights were not compared")]
    else:
        lines = [f"ops: {found['paired']} of A have one in B"]
        for counts, text in (
            (found["changed"], "of other types, settings or inputs"), (found["only_a"], "in A alone"), (found["only_b"], "in B alone"),
        ):  # fmt: skip
            names = [f"{count} {name}" for name, count in counts.items()]
            lines += [f"  {sum(counts.values())} {text}: {', '.join(names[:_SHOWN])}"] if counts else []
    if found["unsure"]:
        lines.append(f"  {count_text(found['unsure'], 'op')} could be paired in another way as well")
    if "placement" not in found:
        return [*lines, f"placement, durations: {_WHERE}"]
    lines += _describe_plans(found["placement"], units)
    if "untimed" in found:
        lines.append(f"durations: {found['untimed']}")
    return lines + (_describe_times(found["timing"]) if "timing" in found else [])


def _describe_plans(plan: PlanDiff, units: str) -> list[str]:
    moved = sorted((one for one in plan["changes"] if _is_op(one["name"])), key=lambda one: one["modified"])
    lines = [f"planned for {units}, A to B: {count_text(len(moved), 'op')} moved, {plan['unchanged']} stayed"]
    lines += [
        f"  {one['operation_id']} {shorten(one['name'])}: {_join(one['before'])} -> {_join(one['after'])}"
        + ("; the op itself changed" if one["modified"] else "")
        + "".join(f"; {'A: ' if one['reason'] == one['validation_before'] else ''}{text}" for text in one["reason"])
        for one in moved[:_SHOWN]
    ]
    alone = [(one, "A") for one in plan["only_before"]] + [(one, "B") for one in plan["only_after"]]
    alone = [(one, side) for one, side in alone if _is_op(one["name"]) and one["devices"] != ["UNKNOWN"]]
    lines += [
        f"  {one['operation_id']} {shorten(one['name'])}: in {side} alone, on {_join(one['devices'])}"
        for one, side in alone[:_SHOWN]
    ]
    if left := max(0, len(moved) - _SHOWN) + max(0, len(alone) - _SHOWN):
        lines.append(f"  and {left} more; all with --json")
    return lines


def _describe_times(timing: TimingDiff) -> list[str]:
    pairs = sorted(timing["matched"] + timing["resized"], key=lambda one: -abs(one["median_delta_ms"]))
    count = timing["before_dispatch_count"]
    lines = [f"medians, ms, B's run after A's: {len(pairs)} of {count_text(count, 'group')} of ops can be compared"]
    for one in pairs[:_SHOWN]:
        before, after = map(_read_median, (one["before"], one["after"]))
        more = f"; {count_text(len(one['extra_op_ids']), 'op')} {one['resize']}" if "resize" in one else ""
        names = _join(one["before"]["op_names"])
        lines.append(f"  {names}: {before:.4g} -> {after:.4g} ({one['median_delta_ms']:+.4g}){more}")
    for alone, side in ((timing["only_before"], "A"), (timing["only_after"], "B")):
        if alone:
            total = sum(map(_read_median, alone))
            lines.append(f"  {count_text(len(alone), 'group')} in {side} alone, {total:.4g} ms together")
    return lines


def _read_median(group: Group) -> float:
    return group["measurement"]["statistics"]["median"]


def _is_op(name: str) -> bool:
    return shorten(name) != "constant"


def _join(names: Sequence[str]) -> str:
    return " + ".join(map(shorten, names))
