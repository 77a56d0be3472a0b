"""Build control flow, lists, states and classifiers: the ops that are more than a kernel on tensors."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ane_sweep.reference.site import NestedPlan, Site, Step, align, kernel, op

MOST_ROUNDS = 1 << 20  # of one loop; more means that its condition cannot become false
_MOST_ITEMS = 1 << 24


@dataclass
class StateCell:
    """The current value of a state. Tensors are never changed in place: a write replaces the tensor."""

    value: Tensor


Elements = list[Tensor | None]  # of a MIL list; None: not written yet


@kernel("read_state", is_pure=False)
def read_state(input: StateCell) -> Tensor:
    return input.value


@kernel("write_state", is_pure=False)
def write_state(input: StateCell, data: Tensor) -> tuple[()]:
    """Write a state and return no value. `coreml_update_state` of coremltools' builder becomes this op and a read_state."""
    if data.shape != input.value.shape:
        raise ValueError(f"a state of shape {list(input.value.shape)} was given {list(data.shape)}")
    input.value = data.to(input.value.dtype)
    return ()


@kernel("coreml_update_state", is_pure=False)
def update_state(state: StateCell, value: Tensor) -> Tensor:
    """Write a state and return the written value: the form of coremltools' builder, in one op."""
    state.value = value
    return value


def _collect_free_names(*plans: NestedPlan) -> list[str]:
    return list(dict.fromkeys(name for plan in plans for name in plan.free))


@op("cond")
def cond(site: Site) -> Step:
    """Run the first block if `pred` is true, else the second; the other block does not run."""
    (chosen, other), count = site.blocks, len(site.op.outputs)
    free = _collect_free_names(chosen, other)

    def run(pred: Tensor, *values: object) -> object:
        made = _run_listed(chosen if bool(pred) else other, dict(zip(free, values)))
        return made[0] if count == 1 else tuple(made)

    return Step(run, [site.name("pred"), *free], is_pure=False)


def _run_listed(plan: NestedPlan, values: dict[str, object]) -> list[object]:
    """Run a block and return its outputs in listed order; one name may be listed twice."""
    made = plan.run(values)
    return [made[name] for name in plan.listed]


@op("while_loop")
def while_loop(site: Site) -> Step:
    """Run the second block repeatedly while the first returns true; both take the loop's variables."""
    (test, body), variables = site.blocks, site.names("loop_vars")
    free, count = _collect_free_names(test, body), len(site.op.outputs)

    def run(*values: object) -> object:
        state = list(values[: len(variables)])
        around = dict(zip(free, values[len(variables) :]))
        for _ in range(MOST_ROUNDS):
            if not bool(_run_listed(test, {**around, **dict(zip(test.own, state))})[0]):
                return state[0] if count == 1 else tuple(state)
            state = _run_listed(body, {**around, **dict(zip(body.own, state))})
        raise RuntimeError(f"the loop did not end after {MOST_ROUNDS} rounds")

    return Step(run, [*variables, *free], is_pure=False)


@op("make_list")
def make_list(site: Site) -> Step:
    """Return the step that makes a list: of zeros if the elements' shape is known, else of empty places."""
    dtype = site.torch_dtype(site.static("dtype", "fp32"))
    shape: list[int | str] = site.listed("elem_shape") if site.has("elem_shape") else ["?"]
    if len(shape) == 1 and isinstance(shape[0], list):
        shape = shape[0]
    sizes = [size for size in shape if isinstance(size, int)]
    known = len(sizes) == len(shape)

    def run(length: Tensor | None = None) -> Elements:
        count = 1 if length is None else int(length)
        if not 0 <= count <= _MOST_ITEMS:
            raise ValueError(f"a list of {count} elements")
        return [torch.zeros(sizes, dtype=dtype) if known else None for _ in range(count)]

    return Step(run, [site.name("init_length")] if site.has("init_length") else [])


@kernel("list_length")
def list_length(ls: Elements) -> Tensor:
    return torch.tensor(len(ls), dtype=torch.int32)


def _write_element(ls: Elements, index: int, value: Tensor) -> None:
    """Write a value into the step's own list, which grows by zeros if the index is beyond its end."""
    if index < 0 or index > _MOST_ITEMS:
        raise IndexError(f"place {index} of a list")
    while index >= len(ls):
        ls.append(torch.zeros_like(value))
    ls[index] = value


@kernel("list_write")
def list_write(ls: Elements, index: Tensor, value: Tensor) -> Elements:
    result = list(ls)
    _write_element(result, int(index), value)
    return result


def _read_element(ls: Elements, index: int) -> Tensor:
    if not 0 <= index < len(ls):
        raise IndexError(f"place {index} of a list of {len(ls)}")
    element = ls[index]
    if element is None:
        raise ValueError(f"place {index} of a list was read before it was written")
    return element


@kernel("list_read")
def list_read(ls: Elements, index: Tensor) -> Tensor:
    return _read_element(ls, int(index))


@kernel("list_gather")
def list_gather(ls: Elements, indices: Tensor) -> Tensor:
    return torch.stack([_read_element(ls, index) for index in indices.tolist()])


@kernel("list_scatter")
def list_scatter(ls: Elements, indices: Tensor, value: Tensor) -> Elements:
    result = list(ls)
    for place, index in enumerate(indices.tolist()):
        _write_element(result, index, align(value[place]))
    return result


@kernel("classify")
def classify(probabilities: Tensor, *, classes: list[int | str]) -> tuple[int | str, dict[int | str, float]]:
    """Return the most probable class (the first one if equal), and the probabilities by class."""
    labels = [int(label) if not isinstance(label, str) else label for label in classes]
    values = probabilities.float().reshape(-1).tolist()
    if len(values) != len(labels):
        raise ValueError(f"{len(values)} probabilities for {len(labels)} classes")
    best = max(range(len(values)), key=values.__getitem__)
    return labels[best], dict(zip(labels, values))
