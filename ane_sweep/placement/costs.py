"""Estimated time of an op on CPU and ANE in ms, as Core ML's planner on an M4 estimates it. It is not a latency.

Core ML's estimator is a set of decision trees over GFLOP, bytes, kernel bytes, operations per byte and the like; the
trees are not public. Its published outputs show a simpler rule: within a regime, time is work divided by a rate. So
there is a work function for each class of ops (bytes or FLOP, from shapes alone) and a regime (a few thresholds), and
only the rates are fitted (tests/proof/placement/fit.py, `data/m4/rates.json`). Thresholds lie between measured cases.
"""

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ane_sweep.placement.sites import Site, Tensor

RATES_FILE = Path(__file__).parent / "data" / "m4" / "rates.json"
Rates = dict[str, float]  # "class/regime/unit" -> work per ms (bytes or FLOP)
CPU, ANE = "cpu", "ane"

# Between 18 and 4.5 FLOP a byte, and between 52 and 70, the measured convolutions change rate on CPU and ANE alike.
THIN, DENSE = 10.0, 61.0
# Linear layers change rate between 8,192 and 32,768 kernel bytes, 131,072 and 262,144, and again before 524,288.
TINY_KERNEL, SMALL_KERNEL, LARGE_KERNEL = 16_384, 196_608, 393_216

_CLASSES = {
    **{name: name for name in ("relu", "add", "mul", "concat", "gather", "transpose", "conv", "conv_transpose", "linear", "matmul")},
    **dict.fromkeys(("upsample_bilinear", "resize_bilinear"), "bilinear"),
    **dict.fromkeys(("gru", "rnn", "lstm"), "recurrent"),
    "sub": "add",
}  # fmt: skip
MEMORY = "memory"  # every other op: bytes in and out at one rate


def op_class(site: Site) -> str:
    return _CLASSES.get(site.type, MEMORY)


def work(site: Site, unit: str) -> float:
    """Return the op's work in bytes or in FLOP, depending on how its class is priced on that unit."""
    kind = op_class(site)
    if kind in ("conv", "conv_transpose", "linear", "recurrent") or (kind == "matmul" and unit == CPU):
        return flop(site)
    if kind in ("add", "mul"):  # elements, not bytes (int32 costs what fp16 does), the second operand's twice
        first, second = (tensor.elements if (tensor := site.tensor(name)) else 1 for name in "xy")
        return 2.0 * (first + 2 * second + sum(tensor.elements for tensor in site.outputs[:1]))
    if kind == "gather" and unit == CPU:  # the whole table counts, not the rows taken
        return sum(tensor.bytes for name in ("x", "indices") for tensor in site.inputs.get(name, []))
    if site.type == "stack":  # one of the stacked values and the result
        return site.inputs["values"][0].bytes + _made(site)
    if kind in ("concat", "matmul"):
        names = ("values",) if kind == "concat" else ("x", "y")
        return sum(tensor.bytes for name in names for tensor in site.inputs.get(name, [])) + _made(site)
    return _moved(site)


def regime(site: Site) -> str:
    """Return the name of the rate that applies to the op within its class; "all" if the class has a single rate."""
    kind = op_class(site)
    if kind == "conv":
        if max(site.value("dilations", (1,)) or (1,)) > 1:
            return "dilated"
        # weights counted as fp16, even if compressed, as Core ML's estimator counts them
        kernel_bytes = sum(tensor.bytes for tensor in site.inputs.get("weight", []) if tensor.const)
        density = flop(site) / max(_moved(site) + kernel_bytes, 1)
        return "thin" if density < THIN else "middle" if density < DENSE else "dense"
    if kind == "linear":
        size = site.inputs["weight"][0].elements * 2
        if size < SMALL_KERNEL:
            return "tiny" if size < TINY_KERNEL else "small"
        return "large" if size > LARGE_KERNEL else "medium"
    if kind == "transpose":
        return "batch" if site.value("perm", (0,))[0] != 0 else "inner"
    return "all"


def flop(site: Site) -> float:
    """Return the multiplications and additions of an op that multiplies matrices, or 0 for other ops."""
    return _FLOP[site.type](site) if site.type in _FLOP else 0.0


def _made(site: Site) -> int:
    """Return the bytes of an op's first output; the estimator ignores further ones (seen at topk, split and gru)."""
    return site.outputs[0].bytes if site.outputs else 0


def _moved(site: Site) -> int:
    return sum(tensor.bytes for tensor in site.data) + _made(site)


def _by_kernel(site: Site, moved: Tensor | None) -> float:
    """Return the FLOP of a convolution whose kernel meets every value of `moved`."""
    weight = site.tensor("weight")
    return 2.0 * moved.elements * math.prod(n or 1 for n in weight.shape[1:]) if weight and moved else 0.0


def _linear(site: Site) -> float:
    weight, x = site.tensor("weight"), site.tensor("x")
    return 2.0 * x.elements * (weight.shape[0] or 1) if weight and x else 0.0


def _matmul(site: Site) -> float:
    x = site.tensor("x")
    if x is None or not x.rank:
        return 0.0
    inner = x.shape[-2] if site.value("transpose_x", False) and x.rank > 1 else x.shape[-1]
    return 2.0 * site.outputs[0].elements * (inner or 1)


def _recurrent(site: Site) -> float:
    x = site.tensor("x")
    weights = [t for name in ("weight_ih", "weight_hh") for t in site.inputs.get(name, [])]
    steps = (x.shape[0] or 1) * (x.shape[1] or 1) if x is not None and x.rank > 1 else 1
    return 2.0 * steps * sum(weight.elements for weight in weights)


def _attention(site: Site) -> float:
    query, key = site.tensor("query"), site.tensor("key")
    if query is None or key is None or key.rank < 2:
        return 0.0
    return 4.0 * query.elements * (key.shape[-2] or 1)


_FLOP: dict[str, Callable[[Site], float]] = {
    "conv": lambda site: _by_kernel(site, site.outputs[0]),
    "conv_transpose": lambda site: _by_kernel(site, site.tensor("x")),
    "linear": _linear,
    "matmul": _matmul,
    **dict.fromkeys(("gru", "rnn", "lstm"), _recurrent),
    "scaled_dot_product_attention": _attention,
}


@cache
def fitted() -> Rates:
    """Return the rates shipped with the package; `python -m tests.proof.placement.score --fit` writes them."""
    rates: Rates = json.loads(RATES_FILE.read_text(encoding="utf-8"))["rates"]
    return rates


def estimate_ms(site: Site, unit: str, rates: Rates | None = None) -> float:
    """Return the planner's estimate in ms on "cpu" or "ane".

    If a regime was never observed on that unit, the other unit's rate is scaled by the ratio of the class's other
    regimes, else of memory-bound ops (1.2). If no rate can be derived, the op is priced as memory-bound.
    """
    rates = fitted() if rates is None else rates
    kind, its = op_class(site), regime(site)
    rate = rates.get(f"{kind}/{its}/{unit}") or find_rate(rates, kind, its, unit)
    if rate is None:
        return _moved(site) / (find_rate(rates, MEMORY, "all", unit) or 60e6)
    return work(site, unit) / rate


def find_rate(rates: Rates, kind: str, regime: str, unit: str) -> float | None:
    """Return the rate of a regime, derived from related regimes if it was never observed, or None for an unknown class."""
    if (rate := rates.get(f"{kind}/{regime}/{unit}")) is not None:
        return rate
    other = CPU if unit == ANE else ANE
    mine, theirs = (
        {key.split("/")[1]: rate for key, rate in rates.items() if key.startswith(f"{kind}/") and key.endswith(end)}
        for end in (unit, other)
    )
    if regime in theirs and kind != "matmul":
        both = [mine[name] / theirs[name] for name in mine if name in theirs]
        memory = rates.get(f"memory/all/{unit}", 1.0) / rates.get(f"memory/all/{other}", 1.0)
        return theirs[regime] * (sum(both) / len(both) if both else memory)
    return sorted(mine.values())[len(mine) // 2] if mine else None
