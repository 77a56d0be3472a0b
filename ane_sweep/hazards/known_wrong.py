"""Read data/known_wrong.csv: ops that Core ML is known to compute wrongly, by OS and unit, each with its thread.

`when` is the condition that is checked: comparisons of facts about an op (`facts`) with a number, joined by "and";
"width % 32" holds where the remainder is not 0. It is empty for a row that a rule of its own finds (`rule`).
"""

import operator
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from ane_sweep import data
from ane_sweep.csv_files import read_csv
from ane_sweep.placement.sites import Site

TABLE = Path(data.__file__).parent / "known_wrong.csv"
UNITS = {"ane": ("all", "cpu_and_ne"), "gpu": ("all", "cpu_and_gpu")}
_FORM = re.compile(r"(\w+) (==|>=|>|%) (\d+)")
_TESTS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, ">=": operator.ge, ">": operator.gt, "%": lambda value, by: value % by != 0,
}  # fmt: skip


@dataclass(frozen=True)
class KnownWrong:
    """One row. `unit`: ane, gpu or any; `fixed`: "open", or the version that mends it as the thread says."""

    op: str
    condition: str
    when: str
    os: str
    unit: str
    effect: str
    url: str
    fixed: str
    rule: str

    @property
    def level(self) -> Literal["warning", "note"]:
        """Return "note" for what is closed, or was seen on one old OS."""
        return "note" if self.fixed.startswith("closed") or self.os == "macOS 13" else "warning"


@cache
def list_rows() -> tuple[KnownWrong, ...]:
    return tuple(KnownWrong(**row) for row in read_csv(TABLE))


def describe(row: KnownWrong) -> tuple[str, str]:
    """Return the effect with OS and unit, and the source with its state."""
    unit = {"ane": " on the Neural Engine", "gpu": " on the GPU"}.get(row.unit, "")
    return f"{row.effect}{unit} (seen on: {row.os})", f"{row.url}, {row.fixed}"


def matches(row: KnownWrong, site: Site, outputs: Collection[str]) -> bool:
    """Return True if a row's condition holds for an op; `outputs` are those of the function."""
    known = list_facts(site, outputs)
    return all(_holds(part, known) for part in row.when.split(" and "))


def _holds(part: str, known: dict[str, float]) -> bool:
    found = _FORM.fullmatch(part)
    if found is None or found[1] not in FACTS:
        raise ValueError(f"{TABLE.name}: condition {part!r}: expected a fact, a comparison and a number")
    return found[1] in known and _TESTS[found[2]](known[found[1]], float(found[3]))


FACTS = (
    "rank", "batch", "rows", "width", "channels", "half", "output", "computed_y", "kernel", "square", "narrowest", "stride", "padding",
    "uneven", "sized", "cropped",
)  # fmt: skip


def list_facts(site: Site, outputs: Collection[str]) -> dict[str, float]:
    """Return the facts about an op that conditions name; sizes that are unknown are left out."""
    made = site.outputs[0] if site.outputs else None
    x = site.tensor("x") or site.tensor("query") or made
    if made is None or x is None:
        return {}
    found: dict[str, float | None] = {
        "rank": made.rank, "half": made.dtype == "fp16", "output": site.name in outputs,
        "rows": made.shape[0] if made.rank else None, "width": made.shape[-1] if made.rank else None,
        "batch": x.shape[0] if x.rank else None, "channels": x.shape[1] if x.rank > 1 else None,
    }  # fmt: skip
    if (y := site.tensor("y")) is not None:
        found["computed_y"] = not y.const
    weight = site.tensor("weight")
    kernel = tuple(weight.shape[2:]) if weight is not None else _numbers(site, "kernel_sizes")
    strides, pad = _numbers(site, "strides"), _numbers(site, "pad")
    found["kernel"] = max((size or 0 for size in kernel), default=None)
    found["square"], found["narrowest"] = len(set(kernel)) <= 1, min((size or 0 for size in kernel), default=None)
    found["stride"] = max(strides, default=1)
    is_custom = site.value("pad_type", "valid") == "custom"
    found["padding"] = sum(pad) if is_custom else 0
    found["uneven"] = is_custom and any(one != other for one, other in zip(pad[::2], pad[1::2]))
    found["sized"] = site.tensor("output_shape") is not None
    strides = strides or (1,) * len(kernel)
    sizes = [((size or 1) - 1) * step + (edge or 1) for size, step, edge in zip(x.shape[2:], strides, kernel)]
    found["cropped"] = not is_custom and any(one < size for one, size in zip(_numbers(site, "output_shape")[2:], sizes))
    return {name: float(value) for name, value in found.items() if value is not None}


def _numbers(site: Site, parameter: str) -> tuple[int, ...]:
    value = site.value(parameter, ())
    return tuple(value) if isinstance(value, (tuple, list)) else (int(value),)
