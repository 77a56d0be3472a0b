"""Predict the tasks that Apple's compiler makes from ops on an M1 (H13) or M2 (H14), by rules from published compiler records.

A product takes two tasks: one loads its operand onto the chip, and one multiplies. An element-wise op after it (relu, a
table, a scale, a bias by channel) is done in the same task and takes none. `python -m tests.proof.placement.compiler`
shows the records that the rules were written on, and their score on the others. There are no records of other families:
`count` returns None.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ane_sweep.placement.sites import Site, Tensor

FAMILIES = (13, 14)
TILE = 1 << 19  # values of a constant operand that one task multiplies, from 256 rows on
LONG_ROWS, ROWS = 256, 128  # rows from which a product, or a norm, is cut
PRODUCTS = {"matmul", "linear", "conv"}
TABLES = {"gelu", "silu", "sigmoid", "tanh", "exp", "sqrt", "rsqrt", "softplus", "erf", "leaky_relu"}
BINARY = {"add": 1, "sub": 1, "mul": 1, "maximum": 1, "minimum": 1, "real_div": 2, "pow": 3}
FREE = {"reshape", "expand_dims", "squeeze", "identity"}  # change no value: seen in no record, taken to cost nothing


@dataclass(frozen=True)
class Step:
    """An op and its number of tasks; `into` is the op that includes it in its task if it has no task of its own."""

    site: Site
    tasks: int | None
    into: Site | None = None

    @property
    def count(self) -> int:
        """Return its tasks; an op without records counts as one."""
        return 1 if self.tasks is None else self.tasks

    @property
    def engine(self) -> str:
        """Return the engine that runs the op: NE multiplies and looks up tables, PE combines two operands or sums."""
        return "NE" if self.site.type in PRODUCTS | TABLES | {"relu", "softmax"} else "PE"


def steps(sites: Sequence[Site], generation: int) -> list[Step] | None:
    """Return each op with its tasks, in order, or None for other families. An op without records has `tasks=None`."""
    return _Counter(sites, generation).steps() if generation in FAMILIES else None


def count(sites: Sequence[Site], generation: int) -> int | None:
    """Return the tasks of ops that run in sequence on the Neural Engine; an op without records counts as one."""
    found = steps(sites, generation)
    return None if found is None else sum(step.count for step in found)


class _Counter:
    def __init__(self, sites: Sequence[Site], generation: int) -> None:
        self.sites, self.is_h13 = sites, generation == 13
        self.made = {id(tensor): site for site in sites for tensor in site.outputs}
        self.readers: dict[int, list[Site]] = defaultdict(list)
        for site in sites:
            for tensor in site.data:
                self.readers[id(tensor)].append(site)
        self.host: dict[int, Site] = {}  # op in whose task an op is done: itself, or the product before it
        self.staged: set[int] = set()  # operands that a product before has brought onto the chip

    def steps(self) -> list[Step]:
        found = []
        for site in self.sites:
            host = self._host(site)
            self.host[id(site)] = host or site
            found.append(Step(site, 0 if host is not None else self._tasks(site), host))
        return found

    def _before(self, tensor: Tensor | None) -> Site | None:
        """Return the op whose task made a tensor, skipping ops included in that task and ops that move no data."""
        site = self.made.get(id(tensor))
        while site is not None and site.type in FREE:
            site = self.made.get(id(site.tensor("x")))
        return None if site is None else self.host.get(id(site), site)

    def _host(self, site: Site) -> Site | None:
        """Return the product, or the sum, whose task includes this op; None if the op has its own task."""
        x = next(iter(site.data), None)
        if x is None or len(site.data) > 1:
            return None
        readers = self.readers[id(site.outputs[0])] if site.type == "relu" else []
        # the relu of x + relu(x) is one task with the sum; with a table in place of relu it is two
        if [one.type for one in readers] == ["add"] and any(one is x for one in readers[0].data):
            return readers[0]
        if len(self.readers[id(x)]) > 1:
            return None
        before = self.made.get(id(x))
        product = self._before(x)
        if product is None or product.type not in PRODUCTS or (before is not product and before.type in TABLES):  # type: ignore[union-attr]
            return None
        if site.type in TABLES or site.type == "relu":
            return product
        return product if site.type in ("add", "mul") and _is_by_channel(site) else None

    def _tasks(self, site: Site) -> int | None:
        kind = site.type
        if kind in FREE:
            return 0
        if kind == "conv" or kind in TABLES or kind in ("relu", "abs"):
            return 1
        if kind in ("matmul", "linear"):
            x, y = site.tensor("x"), site.tensor("y") or site.tensor("weight")
            if x is None or y is None:
                return 2
            return self._weighted(site, x, y) if y.const else self._two_operands(site, x, y)
        if kind in BINARY:
            return self._binary(site)
        if kind == "concat":  # a task an operand, as in tinygrad's sample
            return len(site.inputs.get("values", ())) or None
        if kind in ("softmax", "layer_norm"):
            return self._normalised(site)
        if kind in ("reduce_sum", "reduce_mean", "reduce_max"):
            _, height, width = _planes(site.data[0])
            axes = _axes(site, site.data[0])
            if axes == {0}:
                return 1 if kind == "reduce_max" or height * width == 1 else 2
            return 3 if axes == {1} else 1
        return None

    def _weighted(self, site: Site, x: Tensor, weight: Tensor) -> int:
        columns = site.outputs[0].shape[-1] or 1
        rows, inner = site.outputs[0].elements // columns, weight.elements // columns
        before = self._before(x)
        is_chained = before is not None and before.type in PRODUCTS
        is_turned = bool(site.value("transpose_x", False))
        fetch = 0 if is_turned or is_chained or id(x) in self.staged else 1
        self.staged.add(id(x))
        pieces = math.ceil(inner * columns / TILE) if rows >= LONG_ROWS else 1
        if self.is_h13 and is_turned and 16 <= rows < ROWS:
            pieces = 4
        # an M1 copies the result of 16 to 64 rows and a large inner size out in a separate task
        is_last = self.is_h13 and 16 <= rows <= 64 and not is_turned and not self.readers[id(site.outputs[0])]
        return fetch + pieces + (is_last and inner >= (1024 if is_chained else 2048))

    def _two_operands(self, site: Site, x: Tensor, y: Tensor) -> int:
        made = site.outputs[0]
        rows, batch = (made.shape[-2] or 1) if made.rank > 1 else 1, math.prod(n or 1 for n in made.shape[:-2])
        if x.const:
            return 2
        is_turned = bool(site.value("transpose_y", False))
        tasks = (1 if rows <= 16 else 2) + is_turned
        if self._before(x) is not None or self._before(y) is not None:
            tasks -= 1
        if self.is_h13 and rows >= ROWS:
            tasks += max(0, rows // ROWS - 1) if batch == 1 else (batch - 1) * (1 + is_turned)
        return tasks + (0 if self.is_h13 else max(0, math.ceil(batch / 8) - 1 if rows > ROWS else 0))

    def _binary(self, site: Site) -> int:
        if len(site.data) < 2:
            other = _constant_operand(site)
            return 1 if other is None or other.elements == 1 else 2
        first, second = site.data[:2]
        least = BINARY[site.type]
        if first.shape != second.shape:
            return max(2, least)
        return 2 if sum(_is_weighted(self._before(tensor)) for tensor in (first, second)) == 1 else least

    def _normalised(self, site: Site) -> int:
        """Return the tasks of a softmax or a layer_norm."""
        x = site.data[0]
        channels, height, width = _planes(x)
        axes, before = _axes(site, x), self._before(x)
        kind = "" if before is None else before.type
        if site.type == "softmax":
            if kind in PRODUCTS:
                return 5
            if axes != {2}:
                return 4 if axes == {0} and height * width == 1 else 5
            return 5 if height == 1 or x.rank == 2 else 8 if channels == 1 and width >= LONG_ROWS else 6
        if kind == "add":
            return 2
        if axes == {0}:
            return 5 if height * width == 1 else 6
        if axes == {2} and channels > 1 and height > 1:
            return 5
        return 3 + (2 * max(0, int(math.log2(height / ROWS))) if channels == 1 and height > ROWS else 0)


def _constant_operand(site: Site) -> Tensor | None:
    return next((t for name in ("x", "y") for t in site.inputs.get(name, []) if t.const), None)


def _is_weighted(site: Site | None) -> bool:
    if site is None or site.type not in ("matmul", "linear"):
        return False
    other = site.tensor("y") or site.tensor("weight")
    return other is not None and other.const


def _is_by_channel(site: Site) -> bool:
    """Return True if the constant operand is a single value, or for a sum one value for each channel.

    After a product the channel is the last axis.
    """
    held, shape = _constant_operand(site), site.outputs[0].shape
    if held is None:
        return False
    channels = shape[1] if len(shape) == 4 and shape[-1] == 1 else None
    return held.elements == 1 or (site.type == "add" and held.elements in (shape[-1], channels))


def _planes(tensor: Tensor) -> tuple[int, int, int]:
    """Return (channels, height, width): leading axes above three are dropped, missing ones are 1."""
    shape = [length or 1 for length in tensor.shape]
    return tuple([1] * (3 - len(shape)) + shape[-3:])  # type: ignore[return-value]


def _axes(site: Site, x: Tensor) -> set[int]:
    """Return the reduced axes among (channels, height, width) that are longer than one, or the last axis if none is."""
    given = site.value("axes", site.value("axis", -1))
    wanted = given if isinstance(given, tuple) else (given,)
    planes = _planes(x)
    found = {(axis % x.rank) + 3 - x.rank for axis in wanted}
    return {axis for axis in found if axis >= 0 and planes[axis] > 1} or {2}
