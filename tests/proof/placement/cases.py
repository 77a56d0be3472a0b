"""The calibration cases as op descriptions: single ops, alone and inside a small network, built without coremltools.

`data/m4/cases.csv` says how each case was made. The note that came with it says what the network is: before every
static fp16 input of rank 4, and after such an output, twice (conv 3x3 same C->C, relu), depthwise when C > 512; of rank
3 twice (linear D->D, relu) unless D > 2048. coremltools' own passes then insert casts and drop ops; what they do is
applied here by hand (`_passes`) and was compared with real conversions of every case (tests, marked slow).
"""

import csv
import json
from functools import cache
from pathlib import Path
from typing import Any

from ane_sweep.placement import shapes
from ane_sweep.placement.sites import Site, Tensor

DATA = Path(__file__).parents[3] / "ane_sweep" / "placement" / "data" / "m4"
_DEPTHWISE_ABOVE = 512
_LINEAR_UP_TO = 2048


@cache
def definitions() -> dict[str, dict[str, str]]:
    """Rows of cases.csv by case name."""
    return {row["case"]: row for row in rows("cases.csv")}


def rows(name: str) -> list[dict[str, str]]:
    with open(DATA / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def build(case: str, *, context: bool) -> list[Site]:
    """The ops of a case in file order; `context` puts the network around it."""
    row = definitions()[case]
    made: list[Site] = []
    inputs = [_input(text) for text in row["inputs"].split("; ")]
    fed = [_surround(made, tensor) if context else tensor for tensor in inputs]
    results: list[Site] = []
    for step in json.loads(row["parameters_json"]):
        site = Site(step["op"], _parameters(step, fed, results), [])
        site.outputs = shapes.infer(site)
        results.append(site)
    core = _passes(results, graph_inputs=inputs)
    made += core
    if context:
        _surround(made, core[-1].outputs[0])
    return _merge_relus(made)


def _input(text: str) -> Tensor:
    dtype, _, sizes = text.split(" ")[1].partition("[")
    return Tensor(dtype, tuple(int(size) for size in sizes.rstrip("]").split(",")))


def _parameters(step: dict[str, Any], fed: list[Tensor], results: list[Site]) -> dict[str, list[Tensor]]:
    def tensor(value: Any) -> list[Tensor]:
        if isinstance(value, dict) and "list" in value:
            return [item for entry in value["list"] for item in tensor(entry)]
        if isinstance(value, dict) and "in" in value:
            return [fed[value["in"]]]
        if isinstance(value, dict) and "step" in value:
            return [results[value["step"]].outputs[0]]
        if isinstance(value, dict) and "rand" in value:
            return [Tensor("fp16", tuple(value["rand"]), const=True)]
        if isinstance(value, dict):
            held = value["val"]
            shape = tuple(value.get("shape", (len(held),) if isinstance(held, list) else ()))
            return [Tensor(value["dtype"], shape, const=True, value=tuple(held) if isinstance(held, list) else held)]
        return [constant(value)]

    return {name: tensor(value) for name, value in step.items() if name != "op"}


def constant(value: Any) -> Tensor:
    """A literal as a constant tensor."""
    if isinstance(value, list):
        return Tensor("bool" if isinstance(value[0], bool) else "int32", (len(value),), const=True, value=tuple(value))
    kinds = {bool: "bool", int: "int32", float: "fp16", str: "string"}
    return Tensor(kinds[type(value)], (), const=True, value=value)


def _surround(made: list[Site], tensor: Tensor) -> Tensor:
    """Append the network before an input, or after an output; returns what it makes."""
    if tensor.dtype != "fp16" or not tensor.is_static or tensor.rank not in (3, 4):
        return tensor
    width = tensor.shape[1] if tensor.rank == 4 else tensor.shape[-1]
    assert width is not None
    if tensor.rank == 3 and width > _LINEAR_UP_TO:
        return tensor
    for _ in range(2):
        if tensor.rank == 4:
            wide = width > _DEPTHWISE_ABOVE
            parameters = {
                "x": [tensor],
                "weight": [Tensor("fp16", (width, 1 if wide else width, 3, 3), const=True)],
                "pad_type": [constant("same")],
                "groups": [constant(width if wide else 1)],
            }
            made.append(Site("conv", parameters, [Tensor("fp16", tensor.shape)]))
        else:
            weights = {
                "weight": [Tensor("fp16", (width, width), const=True)],
                "bias": [Tensor("fp16", (width,), const=True)],
            }
            made.append(Site("linear", {"x": [tensor], **weights}, [Tensor("fp16", tensor.shape)]))
        made.append(Site("relu", {"x": made[-1].outputs}, [Tensor("fp16", tensor.shape)]))
        tensor = made[-1].outputs[0]
    return tensor


def _cast(tensor: Tensor, dtype: str) -> Site:
    return Site("cast", {"x": [tensor], "dtype": [constant(dtype)]}, [Tensor(dtype, tensor.shape)])


def _passes(results: list[Site], *, graph_inputs: list[Tensor]) -> list[Site]:
    """What coremltools' own passes make of the ops (fp16 compute, iOS 18)."""
    first = results[0]
    if any(tensor.dtype == "fp32" for tensor in graph_inputs):
        casts = [_cast(tensor, "fp16") for tensor in graph_inputs]
        inputs = dict(zip(first.inputs, ([cast.outputs[0]] for cast in casts)))
        inner = Site(first.type, inputs | {k: v for k, v in first.inputs.items() if k not in inputs}, [])
        inner.outputs = shapes.infer(inner)
        return [*casts, inner, _cast(inner.outputs[0], "fp32")]
    if first.type == "gather" and not first.inputs["indices"][0].const:
        return _gather_with_clamp(first)
    if first.type == "random_normal":  # made in fp16 at once, so its cast is dropped
        return [first, Site("add", {"x": results[2].inputs["x"], "y": first.outputs}, results[2].outputs)]
    last = results[-1].outputs[0]
    if last.dtype == "int8":  # no feature of this type: cast to int32
        return [*results, _cast(last, "int32")]
    return results


def _gather_with_clamp(gather: Site) -> list[Site]:
    """Indices below zero count from the end: that arithmetic is ops of its own in front of every gather."""
    x, indices = gather.inputs["x"][0], gather.inputs["indices"][0]
    first = _cast(indices, "int16")
    second = _cast(first.outputs[0], "int32")
    wide = second.outputs
    compare = Site("greater_equal", {"x": wide, "y": [constant(0)]}, [Tensor("bool", indices.shape)])
    add = Site("add", {"x": wide, "y": [constant(x.shape[0])]}, [Tensor("int32", indices.shape)])
    pick = Site("select", {"cond": compare.outputs, "a": wide, "b": add.outputs}, [Tensor("int32", indices.shape)])
    third = _cast(pick.outputs[0], "int16")
    final = Site("gather", {**gather.inputs, "indices": third.outputs}, gather.outputs)
    return [first, second, compare, add, pick, third, final]


def _merge_relus(sites: list[Site]) -> list[Site]:
    """A relu of a relu is one relu."""
    kept: list[Site] = []
    for site in sites:
        if kept and site.type == kept[-1].type == "relu":
            continue
        kept.append(site)
    return kept
