"""The proof of a rewrite: the replaced ops and their replacement compute the same, place by place.

A place is proven by running the ops removed and the ops added on the same random inputs in the reference runtime: in
fp32 they must be equal within the bound of the rewrite; in fp16 the replacement's PSNR against the fp32 original must
not be lower by 1 dB. Random inputs are independent even where the program computes one from another, so this asks
more than the program needs. Places with the same ops, types and small constants are proven once.
"""

import gc
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ane_sweep.errors import PackageError
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.messages import has_effect, rename_reads
from ane_sweep.mil.element_types import NUMPY, tensor_type
from ane_sweep.mil.graph import in_order
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import MIL_pb2
from ane_sweep.mil.weights import blob_values
from ane_sweep.placement import programs
from ane_sweep.reference.regions import run_ops
from ane_sweep.stats.psnr import psnr_db

MOST_LOCAL_BYTES = 64 << 20  # of the weights of one place: in fp32 they take twice as much, before and after
_FREED_BYTES = 1 << 20  # of the weights of a place: beyond this its memory is freed at once
LOST_DB = 1.0
ENOUGH_DB = 120.0  # beyond what fp16 can reach: so close are sums in another order in a program of fp32
SEED = 33
_ENOUGH_NUMBERS = 700  # of an output: two PSNRs of n errors each differ by chance, with a sigma of 8.7 / sqrt(n) dB
_MOST_DRAWS = 8  # of the inputs, for an output of few numbers
_FLOATS = ("fp16", "fp32", "fp64")
_Results = dict[str, tuple[list[np.ndarray], list[np.ndarray]]]  # mode: values before and after
_VIEWS = {"reshape", "transpose", "expand_dims", "squeeze"}


@dataclass(frozen=True)
class Region:
    """The ops of a place before and after a rewrite, the outside values that they read, and pairs of values to compare."""

    inputs: dict[str, MIL_pb2.ValueType]
    before: list[MIL_pb2.Operation]
    after: list[MIL_pb2.Operation]
    pairs: list[tuple[str, str]]

    @property
    def removed(self) -> list[str]:
        return [op.type for op in self.before if op.type != "const"]

    @property
    def added(self) -> list[str]:
        return [op.type for op in self.after if op.type != "const"]

    def run(
        self, package: Package, opset: str, side: int, values: Mapping[str, np.ndarray], mode: str
    ) -> list[np.ndarray]:
        """Return the values to compare as the ops before the rewrite (side 0) or after it (side 1) compute them."""
        ops, names = (self.before, self.after)[side], [pair[side] for pair in self.pairs]
        made = run_ops(package, opset, ops, names, self.inputs, values, mode)
        return [made[name] for name in names]


@dataclass(frozen=True)
class Proof:
    """The result of a proof: without a `problem` it holds. PSNRs are the worst of all outputs and inputs, in dB."""

    difference: float
    fp16_before: float
    fp16_after: float
    ane_before: float
    ane_after: float
    problem: str | None = None


class _BrokenOps(Exception):
    """Raised if the ops of a region run, and those that replace them do not."""


def collect_region(graph: Graph) -> Region:
    """Return the region of the changes in the graph's journal."""
    journal = graph.journal
    removed = [node for node in journal.removed if node not in journal.added]
    added = [node for node in journal.added if node.is_alive]
    known = ((old, new) for old, new in journal.pairs if old != new)  # if no op makes `new` any more, nothing reads it
    pairs = [(old, new) for old, new in known if new in graph.inputs or graph.maker(new) is not None]
    removed += dict.fromkeys(maker for old, _ in pairs if (maker := graph.maker(old)) is not None)
    read = {name for node in removed for name in node.names()}
    same = dict.fromkeys(maker for _, new in pairs if new not in read and (maker := graph.maker(new)) is not None)
    added += [node for node in same if node not in added and not graph.is_constant(node.outputs[0])]
    before, after = [node.share() for node in removed], [node.share() for node in added]
    spares = {new: old for old, new in pairs if any(old in op.outputs for op in removed) and graph.maker(new) in added}
    for node in before:
        if not node.names().isdisjoint(spares):
            rename_reads(node.own(), spares)
    before += _views(graph, before, [])
    after += _views(graph, after, [new for _, new in pairs])
    made = {name for node in (*before, *after) for name in node.outputs}
    reads: dict[str, MIL_pb2.ValueType] = {}
    for nodes in (before, after):
        nodes += _constants(graph, nodes, made)
        own = {name for node in nodes for name in node.outputs}
        for node in nodes:
            reads.update({name: graph.types[name] for name in sorted(node.names() - own)})
    reads.update({new: graph.types[new] for _, new in pairs if new not in made and not graph.is_constant(new)})
    return Region(reads, _sort(before), _sort(after), pairs)


def _views(graph: Graph, nodes: Sequence[Node], names: Sequence[str]) -> list[Node]:
    """Return the reshapes and transposes outside the region that its ops read: both sides may read the same value, one as
    it is and one through these.
    """
    own = {name for node in nodes for name in node.outputs}
    left = [*names, *(name for node in nodes for name in sorted(node.names()))]
    return _share_makers(graph, left, lambda name, maker: maker.type in _VIEWS and name not in own)


def _constants(graph: Graph, nodes: Sequence[Node], made: set[str]) -> list[Node]:
    """Return the constants outside the region that these ops read, and those that compressed weights are made of."""
    left = [name for node in nodes for name in node.names()]
    return _share_makers(graph, left, lambda name, _: graph.is_constant(name) and name not in made)


def _share_makers(graph: Graph, left: list[str], is_wanted: Callable[[str, Node], bool]) -> list[Node]:
    """Return the wanted ops that make these values, and those that make what they read."""
    found: dict[str, Node] = {}
    while left:
        name = left.pop()
        maker = graph.maker(name)
        if maker is not None and name not in found and is_wanted(name, maker):
            found[name] = maker.share()
            left += sorted(maker.names())
    return list(found.values())


def _sort(nodes: list[Node]) -> list[MIL_pb2.Operation]:
    """Return the messages of ops in an order in which each stands after those that it reads."""
    maker = {name: index for index, node in enumerate(nodes) for name in node.outputs}
    reads = [[maker[name] for name in sorted(node.names()) if name in maker] for node in nodes]
    done: dict[int, None] = {}
    stack = list(reversed(range(len(nodes))))
    while stack:
        needed = [index for index in reads[stack[-1]] if index not in done]
        if stack[-1] in done or not needed:
            done[stack.pop()] = None
        else:
            stack += needed
    return [nodes[index].proto for index in done]


def sign(region: Region) -> tuple[object, ...]:
    """Return a key of a region that leaves out names and the numbers of weights: equal regions are proven once."""
    numbered: dict[str, int] = {}
    parts: list[object] = []

    def number(name: str) -> int:
        return numbered.setdefault(name, len(numbered))

    for name, kind in region.inputs.items():
        parts += number(name), kind.SerializeToString()
    for protos in (region.before, region.after):
        parts.append("ops")
        for proto in protos:
            parts.append((proto.type, len(proto.inputs), len(proto.attributes)))
            for key, argument in in_order(proto.inputs):
                parts.append(key)
                parts += [number(one.name) if one.name else _sign_value(one.value) for one in argument.arguments]
            for key, value in in_order(proto.attributes):
                if key != "name":
                    parts += key, _sign_value(value)
            for made in proto.outputs:
                parts += number(made.name), made.type.SerializeToString()
            parts += [block.SerializeToString(deterministic=True) for block in proto.blocks]
    return *parts, *[(numbered.get(old), numbered.get(new)) for old, new in region.pairs]


def _sign_value(value: MIL_pb2.Value) -> bytes:
    is_blob = value.WhichOneof("value") == "blobFileValue"
    return (value.type if is_blob else value).SerializeToString(deterministic=True)


def prove_region(
    graph: Graph, region: Region, bound: float, scales: Sequence[float], is_accuracy: bool, lost: float = LOST_DB,
    mends_nan: bool = False, masks: Sequence[str] = (),
) -> Proof:  # fmt: skip
    """Run a region before and after on random inputs and compare. Raises errors.PackageError if it cannot be run.

    `lost`: the dB that the PSNR in fp16 may fall. `mends_nan`: a NaN of the original in fp32 may become
    a number, and booleans have a row of 0 and a row of 1. `masks`: inputs that are 0 or 1.
    """
    package, opset = graph.program.package, graph.program.opset
    if any(has_effect(proto) for proto in (*region.before, *region.after)):
        raise PackageError("an op of it writes a state")
    weight_bytes = package.measure_blobs(value for proto in region.before for value in blob_values(proto))
    if weight_bytes > MOST_LOCAL_BYTES:
        raise PackageError("its weights are too large to be run here")
    modes = ("fp32", "fp16", "ane")[: 2 + is_accuracy]

    def compute(values: Mapping[str, np.ndarray]) -> _Results:
        """Return the values to compare, before and after, in each mode."""
        old = {mode: region.run(package, opset, 0, values, mode) for mode in modes}
        try:
            return {mode: (old[mode], region.run(package, opset, 1, values, mode)) for mode in modes}
        except PackageError as error:
            raise _BrokenOps(str(error)) from error

    def measure(draws: int, chance: float) -> Proof:
        generator, found = np.random.default_rng(SEED), Proof(0.0, math.inf, math.inf, math.inf, math.inf)
        for scale in scales:
            made = [compute(_draw_inputs(generator, graph, region, scale, mends_nan, masks)) for _ in range(draws)]
            results = {mode: _pool([one[mode] for one in made]) for mode in modes}
            exact, other = results.pop("fp32")
            exact = [mend_nan(one, two) for one, two in zip(exact, other)] if mends_nan else exact
            found = _judge(found, exact, other, results)
        return _conclude(found, bound, is_accuracy, min(found.fp16_before - lost - chance, ENOUGH_DB))

    try:
        found = measure(1, 0.0)
        if weight_bytes > _FREED_BYTES:
            gc.collect()  # what has run holds itself, and its weights, in circles; the driver pauses the collection
        shapes = [graph.shape(new) for _, new in region.pairs if graph.static(new) and graph.dtype(new) in _FLOATS]
        draws, chance = plan_draws(shapes)
        may_be_chance = found.problem is not None and found.difference <= bound and math.isfinite(found.fp16_after)
        return measure(draws, chance) if may_be_chance and draws > 1 else found
    except _BrokenOps as error:
        worst = -math.inf
        return Proof(math.inf, worst, worst, worst, worst, f"the new ops cannot be run: {error}")


def _draw_inputs(
    generator: np.random.Generator, graph: Graph, region: Region, scale: float, has_rows: bool, masks: Sequence[str]
) -> dict[str, np.ndarray]:
    """Return random inputs of a region; `masks` are 0 or 1, and with `has_rows` booleans have a row of 0 and one of 1."""
    values = {name: draw(generator, graph, name, kind, scale) for name, kind in region.inputs.items()}
    for name, value in values.items():
        if has_rows and value.dtype == np.bool_ and value.ndim and value.size > 3 * value.shape[-1]:
            value.reshape(-1, value.shape[-1])[:2] = [[False], [True]]
        if name in masks:
            values[name] = (value > 0).astype(value.dtype)
    return values


def plan_draws(shapes: Iterable[Sequence[int]]) -> tuple[int, float]:
    """Return how often inputs are drawn for outputs of these shapes, so that the PSNR of the smallest is not left to
    chance, and the dB that it may still be off: two sigma, if even so there are few numbers.
    """
    least = max(1, min((math.prod(shape) for shape in shapes), default=_ENOUGH_NUMBERS))
    draws = max(1, min(_MOST_DRAWS, -(-_ENOUGH_NUMBERS // least)))
    chance = 2 * 8.7 / math.sqrt(draws * least) if draws * least < _ENOUGH_NUMBERS else 0.0
    return draws, chance


def _pool(pairs: Sequence[tuple[list[np.ndarray], list[np.ndarray]]]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the values of several draws as one array each."""
    before, after = (list(zip(*(pair[side] for pair in pairs), strict=True)) for side in (0, 1))
    return [np.stack(one) for one in before], [np.stack(one) for one in after]


def _judge(
    found: Proof, exact: list[np.ndarray], other: list[np.ndarray],
    modes: Mapping[str, tuple[list[np.ndarray], list[np.ndarray]]],
) -> Proof:  # fmt: skip
    """Return the worst of an earlier result and of this run."""

    def worst(so_far: float, mode: str, side: int) -> float:
        if mode not in modes:
            return so_far
        return min([so_far, *(compare_db(one, two) for one, two in zip(exact, modes[mode][side]))])

    return Proof(
        max([found.difference, *(largest_difference(one, two) for one, two in zip(exact, other))]),
        worst(found.fp16_before, "fp16", 0), worst(found.fp16_after, "fp16", 1),
        worst(found.ane_before, "ane", 0), worst(found.ane_after, "ane", 1),
    )  # fmt: skip


def _conclude(found: Proof, bound: float, is_accuracy: bool, least: float) -> Proof:
    problem = None
    if not found.difference <= bound:
        problem = f"fp32 differs by {found.difference:.2g} of the largest output; the bound is {bound:.2g}"
    elif found.fp16_after < least:
        problem = f"fp16 loses accuracy: {found.fp16_before:.1f} -> {found.fp16_after:.1f} dB"
    elif is_accuracy and not found.ane_after > found.ane_before + LOST_DB:
        problem = f"the Neural Engine's error does not fall: {found.ane_before:.1f} -> {found.ane_after:.1f} dB"
    return Proof(found.difference, found.fp16_before, found.fp16_after, found.ane_before, found.ane_after, problem)


def mend_nan(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Return `one` with the numbers of `two` in place of NaN."""
    return np.where(np.isnan(one), two, one) if one.shape == two.shape and one.dtype.kind == "f" else one


def largest_difference(one: np.ndarray, two: np.ndarray) -> float:
    """Return the largest difference relative to the largest finite value of `one`; inf if NaN or infinities differ."""
    a, b = one.astype(np.float64), two.astype(np.float64)
    if a.shape != b.shape:
        return math.inf
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(b[finite]).all():
        return math.inf
    gap = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    return gap and gap / (float(np.abs(a[finite]).max(initial=0.0)) or 1.0)


def compare_db(exact: np.ndarray, candidate: np.ndarray) -> float:
    """Return the PSNR over the values that are finite in fp32; -inf if the candidate is not finite there."""
    finite = np.isfinite(exact.astype(np.float64))
    if not np.isfinite(candidate.astype(np.float64)[finite]).all():
        return -math.inf
    return psnr_db(reference=exact[finite], candidate=candidate[finite])


def draw(generator: np.random.Generator, graph: Graph, name: str, kind: MIL_pb2.ValueType, scale: float) -> np.ndarray:
    """Return random numbers for a value: normal ones, 0 or 1 for whole numbers and booleans."""
    found = tensor_type(kind.stateType.wrappedType if kind.WhichOneof("type") == "stateType" else kind)
    if found is None or found.dtype not in NUMPY:
        raise PackageError(f"`{name}` is no tensor that can be drawn")
    shape = tuple(size or 0 for size in found.shape) if found.is_static else _default_shape(graph, name)
    dtype = NUMPY[found.dtype]
    if dtype.kind != "f":
        return np.asarray(generator.integers(0, 2, shape)).astype(dtype)
    return np.asarray(generator.standard_normal(shape) * scale).astype(dtype)


def _default_shape(graph: Graph, name: str) -> tuple[int, ...]:
    """Return a value's sizes at the default shape of the program. Raises PackageError if they are unknown."""
    functions = graph.program.package.spec.mlProgram.functions
    function = next(key for key, one in functions.items() if one.inputs == graph.program.function.inputs)
    shape = programs.values_at(graph.program.package, function, {})[name].shape
    if None in shape:
        raise PackageError(f"`{name}` has a size that is not known")
    return tuple(size or 0 for size in shape)
