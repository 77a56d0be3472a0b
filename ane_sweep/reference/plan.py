"""Compile a block of operations, once, into a flat plan (layout.py).

Ops that depend on constants alone are computed while compiling. Nested blocks (`cond`, `while_loop`) are plans of their
own; outside values that they read become their inputs.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from ane_sweep.errors import PackageError, UnsupportedOp
from ane_sweep.mil import element_types, graph
from ane_sweep.mil.element_types import TensorType
from ane_sweep.mil.graph import Op, Program
from ane_sweep.mil.proto import MIL_pb2
from ane_sweep.reference import (
    blocks,
    compressed,
    control,
    cuda,
    detection,
    elementwise,
    indexing,
    limits,
    linear,
    normalise,
    orders,
    recurrent,
    resize,
    sampling,
    shapes,
    slices,
)  # fmt: skip
from ane_sweep.reference.constants import SMALL_BYTES, Constant, resolve, view_mapped
from ane_sweep.reference.layout import FAILURES, ExecutionPlan, PlanSession, lay_out
from ane_sweep.reference.numerics import AS_DECLARED, Mode
from ane_sweep.reference.site import OPS, NotYet, Site, Step, from_numpy

BUILDERS = (  # importing these modules fills OPS; by name, as a task's key counts what is imported so (planner/versions.py)
    blocks, compressed, control, detection, elementwise, indexing, linear, normalise, recurrent, resize, sampling,
    shapes, slices,
)  # fmt: skip
_FOLD_BYTES = 64 << 20  # larger results of constants are recomputed at each run rather than kept
_ALWAYS = {"write_state"}  # run for what they do, not for what they make


def compile_program(
    program: Program, mode: Mode = AS_DECLARED, known: dict[str, object] | None = None
) -> ExecutionPlan:
    """Compile a program and prepare everything that does not depend on the inputs. Raises UnsupportedOp before anything
    runs.

    `known`: an empty dictionary that is filled with every constant, for `rebind_constants`.
    """
    where = program.package.path.name
    _check_ops(program, where)
    limits.check_sizes(program.block, where)
    opset = int((re.findall(r"\d+", program.opset) or ["5"])[0])
    session = PlanSession(where, program.package, opset, mode)
    return compile_block(session, program.ops, program.inputs, program.outputs, {}, known)


def rebind_constants(
    plan: ExecutionPlan, program: Program, known: dict[str, object], values: Mapping[str, np.ndarray | Constant]
) -> tuple[ExecutionPlan, int]:
    """Return the plan with new values for the named constants, and the first step that changes.

    `plan` and `known` are from compile_program. Only steps that use such a value, directly or through other constants,
    are built again.
    """
    now = ChainMap({name: to_constant(value, plan.session.mode) for name, value in values.items()}, known)
    changed, place_of = set(values), {op.index: place for place, op in enumerate(plan.ops)}
    start, steps, first = plan.start.copy(), plan.steps.copy(), len(plan.steps)
    with torch.inference_mode(), cuda.use_device(plan.session.mode.device):
        for op in program.ops:
            is_run = op.index in place_of
            if changed.isdisjoint(op.reads) or not (is_run or known.keys() & op.outputs):
                continue
            step = _build_step(plan.session, op, now)
            if step is None:
                changed.update(op.outputs)
                continue
            step = orders.fit_order(step, op, plan.loose)
            _, reads, fills, frees = steps[place_of[op.index]]
            steps[place_of[op.index]] = (step.run, reads, fills, frees)
            first = min(first, place_of[op.index])
            for name, place in zip(step.arguments, reads):
                start[place] = now.get(name)
    return replace(plan, start=start, steps=steps), first


def compile_block(
    session: PlanSession,
    ops: list[Op],
    inputs: list[str],
    outputs: list[str],
    outer: MutableMapping[str, object],
    kept: dict[str, object] | None = None,
) -> ExecutionPlan:
    """Compile some ops to a plan.

    `outer` holds outside constants; values in neither the ops nor `outer` become inputs. `kept` is filled with the
    block's own constants.
    """
    known: ChainMap[str, object] = ChainMap({} if kept is None else kept, outer)
    for name in inputs:  # an inner name hides an outer one
        if name in outer:
            raise PackageError(f"{session.where}: the name {name!r} stands for two values; the program is damaged")
    built: list[tuple[Step, Op]] = []
    needed = _find_needed(ops, outputs)
    with torch.inference_mode(), cuda.use_device(session.mode.device):
        for op in ops:
            if op.index not in needed:
                continue
            try:
                step = _build_step(session, op, known)
            except FAILURES as error:
                raise PackageError(f"{session.where}: {op} cannot be prepared: {error}; is it damaged?") from error
            if step is not None:
                built.append((step, op))
    loose = orders.find_loose(built, outputs)
    settled = [(orders.fit_order(step, op, loose), op) for step, op in built]
    return replace(lay_out(session, inputs, outputs, known, settled), loose=loose)


def _build_step(session: PlanSession, op: Op, known: MutableMapping[str, object]) -> Step | None:
    """Return the step of an op, or None if the op was computed while compiling."""
    if op.type == "const":
        if "val" not in op.proto.attributes or not op.outputs:
            raise PackageError(f"{session.where}: {op} holds no value; the file is damaged")
        known[op.outputs[0]] = _read_value(op.proto.attributes["val"], session)
        return None
    kinds = [element_types.tensor_type(value.type) for value in op.proto.outputs]
    nested = [_compile_nested(session, proto, known) for proto in op.proto.blocks]
    literal = _name_literals(session, op, known)
    if op.type.startswith("constexpr_") and _defer(session, literal, kinds, known):
        return None
    site = Site(literal, kinds, known, session.where, session.opset, session.mode.dtypes, nested)
    try:
        step = OPS[op.type](site)
    except NotYet:
        step = _build_at_run_time(site)
    step = session.mode.adjust(site, step)
    return None if _fold(session, step, literal, kinds, known) else _give_tensors(step, known)


def _give_tensors(step: Step, known: Mapping[str, object]) -> Step:
    """Return a step that is given the tensors of its large constants."""
    constants = [value for name in step.arguments if isinstance(value := known.get(name), Constant)]
    for constant in constants:
        constant.get()  # what the budget has room for is made now
    run = step.run
    return replace(step, run=lambda *values: run(*map(resolve, values))) if constants else step


def _compile_nested(session: PlanSession, proto: MIL_pb2.Block, known: MutableMapping[str, object]) -> ExecutionPlan:
    """Compile a nested block; the outside values that it reads become its `free` inputs."""
    ops = [graph.view_op(index, inner) for index, inner in enumerate(proto.operations)]
    own = [value.name for value in proto.inputs]
    free = sorted(name for name in graph.free_names(proto) if name not in known)
    plan = compile_block(session, ops, own + free, list(proto.outputs), known)
    plan.own, plan.free, plan.listed = own, free, list(proto.outputs)
    return plan


def _build_at_run_time(site: Site) -> Step:
    """Return a step that builds its op again at each run, as the builder needs values of the run."""
    names = list(dict.fromkeys(name for parameter in site.op.inputs for name in site.op.names(parameter)))
    for plan in site.blocks:
        names += [name for name in plan.free if name not in names]
    computed = [name for name in names if name not in site.known]
    fixed = {name: site.known[name] for name in names if name in site.known}

    def run(*values: object) -> object:
        known = {**fixed, **dict(zip(computed, values))}
        inner = Site(site.op, site.outputs, known, site.where, site.opset, site.dtypes, site.blocks)
        step = orders.align_result(OPS[site.op.type](inner))
        return step.run(*[resolve(known[name]) for name in step.arguments])

    return Step(run, computed)


def _check_ops(program: Program, where: str) -> None:
    missing = [op for op in iterate_ops(program.ops) if op.type != "const" and op.type not in OPS]
    if missing:
        kinds = sorted({op.type for op in missing})
        raise UnsupportedOp(
            f"{where}: the reference runtime lacks {missing[0]} (position {missing[0].index + 1} of {len(program.ops)})"
            f"; lacking in all: {', '.join(kinds)}. Run this cell with runtime=torch_eager, or runtime=coreml on a Mac"
        )


def iterate_ops(ops: Iterable[Op]) -> Iterator[Op]:
    """Yield ops and those of the blocks nested in them."""
    for op in ops:
        yield op
        for inner in op.proto.blocks:
            yield from iterate_ops(graph.view_op(*one) for one in enumerate(inner.operations))


def _find_needed(ops: list[Op], outputs: list[str]) -> set[int]:
    """Return the indices of the ops that the outputs depend on, and of ops that change a state."""
    wanted = set(outputs)
    needed: set[int] = set()
    for op in reversed(ops):
        if not wanted.isdisjoint(op.outputs) or _changes_state(op.proto):
            needed.add(op.index)
            wanted |= op.reads
    return needed


def _changes_state(proto: MIL_pb2.Operation) -> bool:
    return proto.type in _ALWAYS or any(_changes_state(inner) for block in proto.blocks for inner in block.operations)


def _read_value(value: MIL_pb2.Value, session: PlanSession) -> object:
    """Return a constant as a tensor, or as a Constant if it is large and lies in a weight file."""
    if value.WhichOneof("value") != "blobFileValue" and value.ByteSize() <= 256:  # short
        message = value.SerializeToString()
        if message not in session.literals:
            session.literals[message] = to_constant(graph.decode(value, session.package), session.mode)
        return session.literals[message]
    kind = element_types.tensor_type(value.type)
    is_large = kind is not None and kind.is_static and kind.byte_count > SMALL_BYTES
    decode = partial(graph.decode, value, session.package)
    if not is_large or value.WhichOneof("value") != "blobFileValue" or session.mode.device != "cpu":
        return to_constant(decode(), session.mode)
    graph.check_record(value, session.package)
    assert kind is not None
    blobs, offset = session.package.blobs(value.blobFileValue.fileName), value.blobFileValue.offset
    shape, dtype = tuple(size or 0 for size in kind.shape), session.mode.dtypes[kind.dtype]
    if kind.dtype not in element_types.PACKED_BITS:
        array = decode()
        tensor = from_numpy(array)
        if tensor.dtype == dtype and tensor.data_ptr() == array.ctypes.data:
            return view_mapped(tensor, partial(blobs.release, offset))
    return Constant(shape, dtype, lambda: to_tensor(decode(), session.mode), partial(blobs.release, offset))


def to_constant(value: object, mode: Mode = AS_DECLARED) -> object:
    """Return a decoded constant as a tensor; strings and lists are unchanged."""
    return to_tensor(value, mode) if isinstance(value, np.ndarray) and value.dtype != object else value


def to_tensor(array: np.ndarray, mode: Mode) -> torch.Tensor:
    """Return a decoded array of numbers as a tensor."""
    return mode.constant(from_numpy(array))


def _name_literals(session: PlanSession, op: Op, known: MutableMapping[str, object]) -> Op:
    """Give literal values inside an op a name, so that builders only see names.

    Up to iOS17 constexpr ops keep their parameters as attributes.
    """
    label = op.outputs[0] if op.outputs else op.name
    if op.type.startswith("constexpr_"):
        for parameter, value in op.proto.attributes.items():
            if parameter != "name" and parameter not in op.inputs:
                op.inputs[parameter] = [value]
    for parameter, arguments in op.inputs.items():
        for index, argument in enumerate(arguments):
            if not isinstance(argument, str):
                name = f"{label}/{parameter}/{index}"
                known[name] = _read_value(argument, session)
                arguments[index] = name
    return op


def _fold(
    session: PlanSession, step: Step, op: Op, kinds: Sequence[TensorType | None], known: MutableMapping[str, object]
) -> bool:
    """Compute an op on constants now, if its result is small enough to keep (weights always are). Return True if done."""
    if not step.is_pure or op.proto.blocks or not all(name in known for name in step.arguments):
        return False
    is_weight = op.type.startswith("constexpr_")
    if not is_weight and sum(kind.byte_count for kind in kinds if kind is not None) > _FOLD_BYTES:
        return False
    if _defer(session, op, kinds, known):
        return True
    made = orders.align_result(step).run(*[resolve(known[name]) for name in step.arguments])
    known.update(zip(op.outputs, made if isinstance(made, tuple) else (made,)))
    return True


def _defer(
    session: PlanSession, op: Op, kinds: Sequence[TensorType | None], known: MutableMapping[str, object]
) -> bool:
    """Let large results of an op on constants be computed when they are read. Return False if they are small, or unknown."""
    values = {name: known[name] for parameter in op.inputs for name in op.names(parameter) if name in known}
    types = [kind for kind in kinds if kind is not None and kind.is_static]
    is_small = sum(kind.byte_count for kind in types) <= SMALL_BYTES
    if is_small or len(types) < len(op.outputs) or session.mode.device != "cpu" or not op.reads <= values.keys():
        return False

    def compute(index: int) -> torch.Tensor:
        read = {name: value.read() if isinstance(value, Constant) else value for name, value in values.items()}
        site = Site(op, list(kinds), read, session.where, session.opset, session.mode.dtypes)
        step = orders.align_result(session.mode.adjust(site, OPS[op.type](site)))
        made = step.run(*[read[name] for name in step.arguments])
        for value in values.values():
            if isinstance(value, Constant) and not value.is_touched:
                value.release()
        result = made[index] if isinstance(made, tuple) else made
        assert isinstance(result, torch.Tensor)
        return result

    for index, (name, kind) in enumerate(zip(op.outputs, types)):
        shape = tuple(size or 0 for size in kind.shape)
        known[name] = Constant(shape, session.mode.dtypes[kind.dtype], partial(compute, index))
    return True
