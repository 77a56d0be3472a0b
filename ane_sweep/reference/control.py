"""Build control flow, lists, states and classifiers: the ops that are not a tensor going through a kernel."""

from dataclasses import dataclass

import torch

from ane_sweep.reference.site import NestedPlan, Site, Step, align, op

MOST_ROUNDS = 1 << 20  # of one loop; more means that its condition cannot become false
_MOST_ITEMS = 1 << 24


@dataclass
class StateCell:
    """The value that a state holds. Values are never changed in place: writing puts another tensor here."""

    value: torch.Tensor


Elements = list[torch.Tensor | None]  # of a MIL list; None: not written yet


@op("read_state")
def read_state(site: Site) -> Step:
    return Step(lambda cell: cell.value, [site.name("input")], is_pure=False)


@op("write_state")
def write_state(site: Site) -> Step:
    """Write a state; makes no value. `coreml_update_state` of the builder is written as this and a read_state."""

    def run(cell: StateCell, data: torch.Tensor) -> tuple[()]:
        if data.shape != cell.value.shape:
            raise ValueError(f"a state of shape {list(cell.value.shape)} was given {list(data.shape)}")
        cell.value = data.to(cell.value.dtype)
        return ()

    return Step(run, [site.name("input"), site.name("data")], is_pure=False)


@op("coreml_update_state")
def update_state(site: Site) -> Step:
    """Write a state and return the written value: the builder's form, in one op."""

    def run(cell: StateCell, value: torch.Tensor) -> torch.Tensor:
        cell.value = value
        return value

    return Step(run, [site.name("state"), site.name("value")], is_pure=False)


def _collect_free_names(*plans: NestedPlan) -> list[str]:
    return list(dict.fromkeys(name for plan in plans for name in plan.free))


@op("cond")
def cond(site: Site) -> Step:
    """Run the first block if `pred` is true, else the second; the other block does not run."""
    (chosen, other), count = site.blocks, len(site.op.outputs)
    free = _collect_free_names(chosen, other)

    def run(pred: torch.Tensor, *values: object) -> object:
        plan = chosen if bool(pred) else other
        return _run_in_order(plan, dict(zip(free, values)), count)

    return Step(run, [site.name("pred"), *free], is_pure=False)


def _run_in_order(plan: NestedPlan, values: dict[str, object], count: int) -> object:
    """Run a block and return its outputs in listed order: one name may stand twice."""
    listed = _run_listed(plan, values)
    return listed[0] if count == 1 else tuple(listed)


def _run_listed(plan: NestedPlan, values: dict[str, object]) -> list[object]:
    made = plan.run(values)
    return [made[name] for name in plan.listed]


@op("while_loop")
def while_loop(site: Site) -> Step:
    """Run the second block again and again while the first gives true; both take the loop's variables."""
    (test, body), variables = site.blocks, site.names("loop_vars")
    free, count = _collect_free_names(test, body), len(site.op.outputs)

    def run(*values: object) -> object:
        state = list(values[: len(variables)])
        around = dict(zip(free, values[len(variables) :]))
        for _ in range(MOST_ROUNDS):
            if not bool(_run_in_order(test, {**around, **dict(zip(test.own, state))}, 1)):
                return state[0] if count == 1 else tuple(state)
            state = _run_listed(body, {**around, **dict(zip(body.own, state))})
        raise RuntimeError(f"the loop did not end after {MOST_ROUNDS} rounds")

    return Step(run, [*variables, *free], is_pure=False)


@op("make_list")
def make_list(site: Site) -> Step:
    """Make a list of zeros if the shape of the elements is known, else of empty places."""
    dtype = site.torch_dtype(site.static("dtype", "fp32"))
    shape: list[int | str] = site.listed("elem_shape") if site.has("elem_shape") else ["?"]
    if len(shape) == 1 and isinstance(shape[0], list):
        shape = shape[0]
    sizes = [size for size in shape if isinstance(size, int)]
    known = len(sizes) == len(shape)

    def run(length: torch.Tensor | None = None) -> Elements:
        count = 1 if length is None else int(length)
        if not 0 <= count <= _MOST_ITEMS:
            raise ValueError(f"a list of {count} elements")
        return [torch.zeros(sizes, dtype=dtype) if known else None for _ in range(count)]

    return Step(run, [site.name("init_length")] if site.has("init_length") else [])


@op("list_length")
def list_length(site: Site) -> Step:
    return Step(lambda ls: torch.tensor(len(ls), dtype=torch.int32), [site.name("ls")])


def _write_element(ls: Elements, index: int, value: torch.Tensor) -> None:
    """Put a value into the step's own list; beyond its end the list grows by zeros."""
    if index < 0 or index > _MOST_ITEMS:
        raise IndexError(f"place {index} of a list")
    while index >= len(ls):
        ls.append(torch.zeros_like(value))
    ls[index] = value


@op("list_write")
def list_write(site: Site) -> Step:
    def run(ls: Elements, index: torch.Tensor, value: torch.Tensor) -> Elements:
        result = list(ls)
        _write_element(result, int(index), value)
        return result

    return Step(run, [site.name("ls"), site.name("index"), site.name("value")])


def _read_element(ls: Elements, index: int) -> torch.Tensor:
    if not 0 <= index < len(ls):
        raise IndexError(f"place {index} of a list of {len(ls)}")
    element = ls[index]
    if element is None:
        raise ValueError(f"place {index} of a list was read before it was written")
    return element


@op("list_read")
def list_read(site: Site) -> Step:
    return Step(lambda ls, index: _read_element(ls, int(index)), [site.name("ls"), site.name("index")])


@op("list_gather")
def list_gather(site: Site) -> Step:
    return Step(
        lambda ls, indices: torch.stack([_read_element(ls, index) for index in indices.tolist()]),
        [site.name("ls"), site.name("indices")],
    )


@op("list_scatter")
def list_scatter(site: Site) -> Step:
    def run(ls: Elements, indices: torch.Tensor, value: torch.Tensor) -> Elements:
        result = list(ls)
        for place, index in enumerate(indices.tolist()):
            _write_element(result, index, align(value[place]))
        return result

    return Step(run, [site.name("ls"), site.name("indices"), site.name("value")])


@op("classify")
def classify(site: Site) -> Step:
    """Return the most probable class (the first of equals), and the probabilities by class."""
    classes = site.static("classes")
    labels = [int(label) if not isinstance(label, str) else label for label in classes]

    def run(probabilities: torch.Tensor) -> tuple[int | str, dict[int | str, float]]:
        values = probabilities.float().reshape(-1).tolist()
        if len(values) != len(labels):
            raise ValueError(f"{len(values)} probabilities for {len(labels)} classes")
        best = max(range(len(values)), key=values.__getitem__)
        return labels[best], dict(zip(labels, values))

    return Step(run, [site.name("probabilities")])
