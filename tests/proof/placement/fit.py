"""Fitting the estimator's rates to what the planner published, and checking it on cases left out.

Observations: the 44 rows of estimates.csv (ms, per backend; the CPU's is bnns, which is never the dearer of the two),
four more from the same study's text, and every cost share in compute_plan.csv whose case holds an op of known price.
A share is rounded to 1e-4, so each observation carries its relative uncertainty and weighs by it.
"""

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass

from ane_sweep.placement import costs
from ane_sweep.placement.sites import Site, Tensor
from tests.proof.placement import cases

RELU_BYTES_PER_MS = 1e8  # relu costs (in + out) / 100 GB/s on every backend: 0.00262144 ms for 262,144 bytes
_ROUNDING = 5e-5
_USEFUL = 0.05  # shares known to less than this are no observation
_GOOD_ANCHOR = 0.03


@dataclass(frozen=True)
class Observation:
    """`ms` of one op on one unit; `error` is its relative uncertainty; `case` is what leave-one-out leaves out."""

    case: str
    site: Site
    unit: str
    ms: float
    error: float


def observations() -> list[Observation]:
    return [*_estimated(), *_extra(), *_shared()]


def _estimated() -> list[Observation]:
    built: dict[tuple[str, str], list[Site]] = {}
    found = []
    for row in cases.rows("estimates.csv"):
        key = (row["context"], row["case"])
        sites = built.setdefault(key, cases.build(row["case"], context=row["context"] == "ctx"))
        site = sites[int(row["op_index"])]
        if row["ane_ms"]:
            found.append(Observation(row["case"], site, costs.ANE, float(row["ane_ms"]), 1e-6))
        found.append(Observation(row["case"], site, costs.CPU, float(row["bnns_ms"]), 1e-6))
    return found


def _extra() -> list[Observation]:
    """The rows of extra_estimates.csv, whose shapes are given in words there."""
    image, rows = Tensor("fp16", (1, 64, 32, 32)), Tensor("fp16", (1, 128, 256))
    table, indices = Tensor("fp16", (32000, 256)), Tensor("int16", (1, 64))
    one = Tensor("fp16", (64, 64, 1, 1), const=True)
    sites = {
        "conv": Site("conv", {"x": [image], "weight": [one]}, [image]),
        "matmul": Site("matmul", {"x": [rows], "y": [Tensor("fp16", (256, 512), const=True)]}, [Tensor("fp16", (1, 128, 512))]),
        "transpose": Site("transpose", {"x": [image], "perm": [cases.constant([0, 1, 3, 2])]}, [image]),
        "gather": Site("gather", {"x": [table], "indices": [indices]}, [Tensor("fp16", (1, 64, 256))]),
    }  # fmt: skip
    names = {"conv": "conv1x1", "matmul": "matmul_const", "transpose": "transpose_hw", "gather": "gather_32000"}
    return [
        Observation(names[row["op_type"]], sites[row["op_type"]], row["unit"], float(row["ms"]), 1e-3)
        for row in cases.rows("extra_estimates.csv")
    ]


def _shared() -> list[Observation]:
    plans: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in cases.rows("compute_plan.csv"):
        if row["context"] in ("ctx", "iso"):
            plans[row["context"], row["case"]].append(row)
    found = []
    for (context, case), rows in plans.items():
        if len(rows) < 2 or not all(row["cost_weight"] for row in rows):
            continue
        sites = cases.build(case, context=context == "ctx")
        anchor = _anchor(rows, sites)
        if anchor is None:
            continue
        total, doubt = anchor
        for row, site in zip(rows, sites, strict=True):
            share = float(row["cost_weight"])
            error = doubt + (_ROUNDING / share if share else math.inf)
            if error < _USEFUL and row["op_type"] != "relu":
                found.append(Observation(case, site, row["preferred"].lower(), share * total, error))
    return found


def _anchor(rows: list[dict[str, str]], sites: list[Site]) -> tuple[float, float] | None:
    """(ms of the whole program, relative uncertainty), from its relu with the largest share."""
    shares = [(float(row["cost_weight"]), site) for row, site in zip(rows, sites, strict=True) if site.type == "relu"]
    share, relu = max(shares, key=lambda pair: pair[0], default=(0.0, None))
    if relu is None or share < _ROUNDING / _GOOD_ANCHOR:
        return None
    return costs.work(relu, costs.CPU) / RELU_BYTES_PER_MS / share, _ROUNDING / share


def fit(found: list[Observation]) -> costs.Rates:
    """Rates by "class/regime/unit": the mean of work / ms on a log scale, each observation weighing by its certainty."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one in found:
        amount = costs.work(one.site, one.unit)
        if amount <= 0 or one.ms <= 0:
            continue
        key = f"{costs.op_class(one.site)}/{costs.regime(one.site)}/{one.unit}"
        weight = 1.0 / (one.error + 1e-3) ** 2
        sums[key][0] += weight * math.log(amount / one.ms)
        sums[key][1] += weight
    rates = {key: math.exp(total / weight) for key, (total, weight) in sums.items()}
    for unit in (costs.CPU, costs.ANE):
        rates[f"relu/all/{unit}"] = RELU_BYTES_PER_MS
    return dict(sorted(rates.items()))


@dataclass(frozen=True)
class ClassError:
    """Relative error of the estimates of a class of ops on one unit: median and largest; `seen` without its own case."""

    op_class: str
    unit: str
    count: int
    cases: int
    median: float
    largest: float
    worst_case: str
    refitted: bool


def leave_one_case_out(found: list[Observation], *, refit: bool = True) -> list[ClassError]:
    """Error by class and unit when each case's observations are estimated from all the others."""
    by_class: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    everything = fit(found)
    for case in dict.fromkeys(one.case for one in found):
        rates = fit([one for one in found if one.case != case]) if refit else everything
        for one in (one for one in found if one.case == case):
            guess = costs.estimate_ms(one.site, one.unit, rates)
            key = (costs.op_class(one.site), one.unit)
            by_class[key].append((abs(guess / one.ms - 1.0), case))
    result = []
    for (kind, unit), errors in sorted(by_class.items()):
        errors.sort()
        result.append(
            ClassError(
                kind, unit, len(errors), len({case for _, case in errors}), statistics.median(e for e, _ in errors),
                errors[-1][0], errors[-1][1], refit,
            )
        )  # fmt: skip
    return result
