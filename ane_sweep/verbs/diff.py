"""`ane-sweep diff A B [--min-psnr DB]`: two packages or assets: outputs, ops, placement and cost by module"""

import argparse
from dataclasses import asdict
from textwrap import indent
from typing import TYPE_CHECKING

import numpy as np

from ane_sweep import installed
from ane_sweep.machine.calibrated import find_measurements
from ane_sweep.placement import by_module, judge
from ane_sweep.placement.predict import COMPUTE_UNITS
from ane_sweep.placement.types import ModuleChange
from ane_sweep.stats.psnr import Closeness
from ane_sweep.terminal import BAD_CONFIGURATION, NOT_ALL_OK, OK, tell
from ane_sweep.verbs import _asset_diff, _assets
from ane_sweep.verbs import run as running
from ane_sweep.words import Parser, make_integer_reader, make_number_reader

if TYPE_CHECKING:
    from ane_sweep.reference.trace import ObservedValue, ValueComparison


def diff(args: list[str]) -> int:
    """Compare B with A and return 0, or 2 for an error; with --min-psnr, 1 if an output differs more than that or only
    one of the two makes it.
    """
    options = Parser(
        "diff A B [--input [NAME=]FILE]... [--random SEED] [--drift N] [--chip m4] [--min-psnr DB] [--json]",
        "Two packages on the same inputs by the reference runtime: their outputs, the values that differ most, and the torch modules "
        "whose predicted placement or planner cost differs. Two of Core AI's assets in its own runtime: outputs and ops; on macOS 27 "
        "also the ops that it plans elsewhere, and with --runs the durations.",
        "ane-sweep diff a.mlpackage b.mlpackage --min-psnr 40",
        {
            OK: "compared; with --min-psnr: no output has less",
            NOT_ALL_OK: "with --min-psnr: an output has less, or only one of the two makes it",
            BAD_CONFIGURATION: "a wrong word, or a model or an input that cannot be used",
        },
    )
    running.add_shared_options(options, "a", "b")
    options.add("--drift N", "the N values that differ most", make_integer_reader(0), 10)
    options.add("--chip NAME", "placement is predicted for it", default="m4")
    gate = "exit with 1 if an output has less, or only one makes it (default: no gate)"
    options.add("--min-psnr DB", gate, make_number_reader("a number of decibels", lambda _: True))
    options.add(
        "--compute-units UNITS", "of two assets: what Core AI may use", str.lower, "cpu_and_ne", choices=COMPUTE_UNITS
    )
    options.add("--runs N", "of two assets: timed runs of each on macOS 27; 0: none", make_integer_reader(0), 0)
    options.json(
        "a, b (package, computed), outputs (each with text, psnr_db), drift, modules, placement, exit; of assets in place of drift "
        "and modules: same, paired, changed, only_a, only_b, unsure (counts of ops), and on macOS 27 placement, timing",
        "lines of text",
    )
    return _diff(options.read(args), options)


@running.within_memory()
def _diff(given: argparse.Namespace, options: Parser) -> int:
    if _assets.are_assets((given.a, given.b)):
        return _asset_diff.diff(given, options, _compare_outputs)
    installed.need_worker("ane-sweep diff")
    from ane_sweep.reference import drift_by_module, trace

    first, second = (running.load(path, given) for path in (given.a, given.b))
    seed = 0 if given.random is None and not given.input else given.random
    inputs = running.read_inputs(given.input, {**first.inputs, **second.inputs}, seed)
    outputs = [
        running.predict(model, {name: inputs[name] for name in model.inputs if name in inputs})
        for model in (first, second)
    ]
    found = _compare_outputs(*outputs)
    ops = trace.compare_values(first, second, inputs) if given.drift and first.ops and second.ops else None
    furthest = trace.rank_worst(ops.seen, given.drift, lambda item: item.drift) if ops else []
    changes = _compare_placement(given) if first.ops and second.ops else []
    under = given.min_psnr is not None and any(psnr < given.min_psnr for _, psnr in found.values())
    code = NOT_ALL_OK if under else OK
    if given.json:
        sides = {name: {"package": str(path), "computed": running.describe_numerics(model)}
                 for name, path, model in (("a", given.a, first), ("b", given.b, second))}  # fmt: skip
        told = {name: {"text": text, "psnr_db": psnr} for name, (text, psnr) in found.items()}
        worst = running.to_dicts(furthest) if ops else None
        inside = [row.to_dict() for row in drift_by_module.roll_up(ops.seen, second)] if ops else None
        placed = {"chip": given.chip, "modules": [asdict(one) for one in changes]} if changes else None
        tell(**sides, outputs=told, drift=worst, modules=inside, placement=placed, exit=code)
        return code
    print(f"A {given.a}: {running.describe_numerics(first)}")
    print(f"B {given.b}: {running.describe_numerics(second)}")
    if seed is not None and not given.input:
        print(f"inputs: random, seed {seed}")
    for name, (text, _) in found.items():
        print(f"  {name}: {text}")
    if ops is not None:
        _print_ops(ops, furthest)
        if lines := drift_by_module.format_drifts(drift_by_module.roll_up(ops.seen, second)):
            print(
                "by module of B, drift of the value before it and of its last value, relative to A's largest magnitude:"
            )
            print(indent("\n".join(lines), "  "))
    if changes:
        print(f"predicted on {given.chip}, A to B, by module; cost is the planner's, as a share of all of A's:")
        print(indent("\n".join(by_module.format_changes(changes)), "  "))
    return code


def _compare_placement(given: argparse.Namespace) -> list[ModuleChange]:
    a, b = (judge.judge(path, chip=given.chip, measured=find_measurements).ops for path in (given.a, given.b))
    return by_module.compare_modules(a, b)


def _compare_outputs(a: dict[str, object], b: dict[str, object]) -> dict[str, tuple[str, float]]:
    return {
        name: compare_values(a[name], b[name])
        if name in a and name in b
        else (f"only {'A' if name in a else 'B'} makes it", -np.inf)
        for name in dict.fromkeys([*a, *b])
    }


def compare_values(reference: object, candidate: object) -> tuple[str, float]:
    """Return one line about two values of an output, and the PSNR in dB (peak and error over all elements, infinite if equal)."""
    if not isinstance(reference, np.ndarray) or not isinstance(candidate, np.ndarray):
        same = reference == candidate
        return ("equal" if same else f"{reference!r} and {candidate!r}"), (np.inf if same else -np.inf)
    if reference.shape != candidate.shape:
        return f"shapes {list(reference.shape)} and {list(candidate.shape)}", -np.inf
    a, b = reference.astype(np.float64).reshape(-1), candidate.astype(np.float64).reshape(-1)
    finite = np.isfinite(a) & np.isfinite(b)
    if a.size and not finite.any():
        return f"no element is finite in both, {list(reference.shape)}", -np.inf
    if np.array_equal(a, b, equal_nan=True):
        left = "" if finite.all() else f"; {int((~finite).sum())} of {a.size} elements are not finite in either"
        return f"equal to the last bit, {list(reference.shape)}{left}", np.inf
    if not finite.all():
        return f"{int((~finite).sum())} of {a.size} elements are not finite in one of them", -np.inf
    close, furthest = Closeness(), np.abs(a - b).max()
    close.add(reference=a, candidate=b)
    text = f"PSNR {close.psnr_db():.1f} dB, cosine {close.cosine():.6f}, largest difference {furthest:.3g} of {close.peak:.3g}"
    return text, close.psnr_db()


def _print_ops(compared: "ValueComparison", furthest: "list[ObservedValue]") -> None:
    seen = compared.seen
    if not seen:
        print("no value of B has one counterpart in A, so ops are not compared")
        return
    left_out = f"; {compared.matching}" if str(compared.matching) else ""
    print(f"{len(seen)} values of B are compared, each with the one at its place in A{left_out}")
    start = next((item for item in seen if item.drift), None)
    if start is None:
        print("all of them are equal")
        return
    print(f"the first that differs is {start.name} ({start.type})")
    running.print_drift(furthest, "values of B furthest from A, relative to A's largest magnitude")
