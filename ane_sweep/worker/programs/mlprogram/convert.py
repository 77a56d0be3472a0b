"""Conversion of torch modules to an ML Program by coremltools."""

import inspect
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import coremltools as ct
import numpy as np
import torch
from coremltools.converters.mil.mil import Program
from coremltools.models.utils import MultiFunctionDescriptor, save_multifunction

from ane_sweep import native_errors
from ane_sweep.bridge import building, onnx_ops
from ane_sweep.bridge.building import DECODE, POSITION
from ane_sweep.errors import StageError, WeightsError
from ane_sweep.mil.modules import NOTES_KEY
from ane_sweep.worker import grow, memory
from ane_sweep.worker.grow import growing
from ane_sweep.worker.models import _build
from ane_sweep.worker.models._cache import select_present
from ane_sweep.worker.models._mapped import release_pages
from ane_sweep.worker.models._ports import Port, Ports
from ane_sweep.worker.programs import ConversionJob, Facts
from ane_sweep.worker.programs.mlprogram import hints, size, torch_ops
from ane_sweep.worker.programs.mlprogram.precision import Fp32Ops, build_pipeline, choose_precision, keep_ids
from ane_sweep.worker.programs.mlprogram.shortcuts import take_shortcuts

_REALS = {"fp16": np.float16, "fp32": np.float32}


def convert(jobs: Mapping[str, ConversionJob], target: Path) -> Facts:
    """Write a package with one function for each job; the same jobs give the same bytes. See programs/__init__.py."""
    facts = _convert_functions(jobs, target) if len(jobs) > 1 else _convert(jobs["main"], target)
    size.make_deterministic(target, note_modules(job.module for job in jobs.values()))
    return facts


def _convert_functions(jobs: Mapping[str, ConversionJob], package: Path) -> Facts:
    """Convert each function separately and join them with coremltools, which merges equal weights.

    The default is decode, which is called for every token. The facts are decode's, and `ops_prefill`.
    """
    facts: Facts = {}
    with tempfile.TemporaryDirectory() as folder:
        joined = MultiFunctionDescriptor()
        for name, job in jobs.items():
            part = Path(folder, f"{name}.mlpackage")
            made = _convert(job, part)
            facts |= made if name == DECODE else {"ops_prefill": made["ops"]}
            joined.add_function(str(part), src_function_name="main", target_function_name=name)
        joined.default_function_name = DECODE
        save_multifunction(joined, str(package))
    return facts


def _convert(job: ConversionJob, package: Path) -> Facts:
    """Convert one function to `package` and return its facts. The package is grown from a few blocks if that gives the same bytes."""
    module = job.module

    def plain(target: Path) -> grow.Converted:
        states = {name: state for name, state in job.states.items() if name in getattr(module, "names", ())}
        return _convert_plainly(replace(job, ports=select_present(module, job.ports), states=states), target)

    def examples() -> tuple[torch.Tensor, ...]:
        return _make_examples(module, select_present(module, job.ports), job.options)

    try:
        if os.environ.get(grow.VARIABLE) == "0":
            raise grow.Unlike(f"{grow.VARIABLE}=0")
        grow.refuse_numbers(job.settings.fp32_ops)
        if job.settings.recipe:
            raise grow.Unlike("its weights are compressed already")
        with tempfile.TemporaryDirectory(prefix="blocks_", dir=package.parent) as folder:
            return {**growing.grow(module, examples, plain, Path(folder), package)}
    except WeightsError:
        raise
    except grow.Unlike as error:
        why = str(error)
    except Exception as error:  # coremltools' own and torch's, of a few blocks: all of them together say it in full
        why = f"{type(error).__name__}: {' '.join(native_errors.text_of(error).split())[:200]}"
    print(f"all blocks are converted: {why}")
    with growing.materialise_tensors(module, package.parent):
        return plain(package).facts | {"not_grown": why}


def _convert_plainly(job: ConversionJob, package: Path) -> grow.Converted:
    with hints.explain_failures(), torch_ops.register_ops() if job.is_own else nullcontext():
        program = _to_program(_trace(job.module, job.ports, job.options), job, package)
    ops, parameter_bytes = _count_ops(program, is_compressed=bool(job.settings.recipe))
    numbers = size.count_float_numbers(program)
    return grow.Converted(package, program, {"ops": ops, "parameter_bytes": parameter_bytes, "numbers": numbers})


def _trace(module: torch.nn.Module, ports: Ports, options: building.Options) -> torch.jit.ScriptModule:
    """Trace a module with torch.jit.trace, not torch.export.

    These graphs have fixed shapes and no control flow, so a trace is complete; coremltools 9.0's export frontend lacks
    ops that transformers' decoders then need (`__and__`, `alias`). On the CPU: tracing on the meta device would spare
    the one run of the module that a trace is, but torch 2.13 cannot trace convolutions there.
    """
    halves = any(_is_half(port, options) for port in ports.inputs)
    widened = _widen_inputs(module, ports) if halves else nullcontext()
    examples = _make_examples(module, ports, options)
    with torch.no_grad(), widened:
        # check_trace would run the module twice more to look for control flow that is not there.
        trace: Callable[..., torch.jit.ScriptModule] = torch.jit.trace  # which carries no types
        traced = trace(module, examples, check_trace=False)
    memory.release_freed_memory()  # of the one run
    release_pages()
    if path := getattr(module, "names_values_by", ""):
        _name_values(traced, path)
    return traced


def _name_values(traced: torch.jit.ScriptModule, path: str) -> None:
    """Name the values of a traced graph after the modules below `path` that make them: coremltools names ops so."""
    torch._C._jit_pass_inline(traced.graph)
    for node in traced.graph.nodes():
        scope = node.scopeName().rpartition(path)[2]
        if scope and path in node.scopeName():
            for value in node.outputs():
                value.setDebugName(onnx_ops.safe_name(scope))


def _is_half(port: Port, options: building.Options) -> bool:
    """Return True if inputs=fp16 makes this input fp16, as the notebooks fed it.

    Positions in a cache stay integers: only our code sets them.
    """
    return options.inputs == "fp16" and port.name != POSITION


@contextmanager
def _widen_inputs(module: torch.nn.Module, ports: Ports) -> Iterator[None]:
    """Make `module` convert its inputs to the dtypes of its ports inside this context.

    It uses a hook, as a wrapping module would prefix the names of the states.
    """
    kinds = [port.dtype for port in ports.inputs]

    def widen(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(value.int() if kind == "int32" else value.float() for value, kind in zip(inputs, kinds))

    hook = module.register_forward_pre_hook(widen)
    try:
        yield
    finally:
        hook.remove()


def _make_examples(module: torch.nn.Module, ports: Ports, options: building.Options) -> tuple[torch.Tensor, ...]:
    return getattr(module, "example", None) or tuple(
        torch.zeros(port.shape, dtype=torch.float16 if _is_half(port, options) else getattr(torch, port.dtype))
        for port in ports.inputs
    )


def _to_program(traced: torch.jit.ScriptModule, job: ConversionJob, package: Path) -> Program:
    """Convert and write `package`; return coremltools' in-memory program."""
    options, ports, compute = job.options, job.ports, job.settings.compute
    wide = Fp32Ops(options, job.settings.fp32_ops)
    target = getattr(ct.target, job.settings.target)
    narrow = compute == "fp16" and target >= ct.target.iOS16  # iOS15 has no fp16 inputs and outputs
    real = np.float16 if narrow else np.float32
    dtypes = {"int32": np.int32, "float32": real}
    out = dtypes | ({} if options.output_type == "auto" else {"float32": _REALS[options.output_type]})
    # The shortcuts drop what coremltools notes of compressed weights.
    with keep_ids(job.module), nullcontext() if job.settings.recipe else take_shortcuts():
        model = ct.convert(
            traced,
            inputs=[
                ct.TensorType(port.name, shape, np.float16 if _is_half(port, options) else dtypes[port.dtype])
                for port, shape in zip(ports.inputs, _to_input_types(ports.inputs))
            ],
            outputs=[ct.TensorType(port.name, dtype=out[port.dtype]) for port in ports.outputs],
            classifier_config=_configure_classifier(job) if options.classes == "labels" else None,
            states=[
                ct.StateType(ct.TensorType(shape=tuple(state.shape), dtype=np.float16), name=name)
                for name, state in job.states.items()
            ]
            or None,
            convert_to="mlprogram",
            minimum_deployment_target=target,
            compute_precision=choose_precision(compute, wide),
            pass_pipeline=build_pipeline(wide, guarded=job.is_own),
            skip_model_load=True,
            package_dir=str(package),  # written in place: MLModel.save would copy a temporary package
        )
    program: Program = model._mil_program  # the public accessor deep-copies every weight
    program.validate()
    if wide.patterns and not wide.kept:
        types = sorted({op.op_type for block in program.functions.values() for op in block.operations} - {"const"})
        raise StageError(f"fp32_ops={wide.patterns} match no op of this program, which has: {', '.join(types)}")
    return program


def _configure_classifier(job: ConversionJob) -> ct.ClassifierConfig:
    (output,) = job.ports.outputs
    return ct.ClassifierConfig(
        _build.class_names(job.settings.model.arch, output.shape[-1]),
        predicted_feature_name=_build.CLASS,
        predicted_probabilities_output=output.name,
    )


def _to_input_types(inputs: Sequence[Port]) -> list[object]:
    """Return the inputs' shapes as coremltools takes them. Inputs with equal ranges share one symbolic size, so that they can be added."""
    ranges: dict[tuple[int, int], ct.RangeDim] = {}

    def to_size(bounds: int | tuple[int, int]) -> int | ct.RangeDim:
        if isinstance(bounds, int):
            return bounds
        return ranges.setdefault(bounds, ct.RangeDim(*bounds, default=bounds[1]))

    return [
        ct.EnumeratedShapes(shapes=[list(shape) for shape in port.shapes], default=list(port.shape))
        if len(port.shapes) > 1
        else tuple(to_size(bounds) for bounds in (port.shapes[0] if port.shapes else port.shape))
        for port in inputs
    ]


def _count_ops(program: Program, is_compressed: bool = False) -> tuple[int, int]:
    """Return the number of ops that are not constants, and the bytes of constants."""
    ops = parameter_bytes = 0
    for function in program.functions.values():
        for op in function.operations:
            if (is_code := op.op_type.startswith("constexpr")) and not is_compressed:
                raise StageError(f"{op.name}: a fresh conversion holds {op.op_type}; its weights must be plain")
            if op.op_type != "const":
                ops += not is_code
            elif hasattr(op.outputs[0].val, "nbytes"):
                parameter_bytes += op.outputs[0].val.nbytes
    return ops, parameter_bytes


def note_modules(models: Iterable[torch.nn.Module]) -> dict[str, str]:
    """Return the metadata that mil/modules.py reads: the path of each module, its class, and the line of its `forward`.

    A line is named by file, without a folder, so that equal models give equal packages on every machine.
    """
    lines = {
        path: f"{type(module).__name__} at {_find_line(module)}"
        for model in models for path, module in model.named_modules()
    }  # fmt: skip
    return {NOTES_KEY: json.dumps(lines, separators=(",", ":"))}


def _find_line(module: torch.nn.Module) -> str:
    forward = getattr(type(module), "forward", None)  # a TorchScript module's class has none
    code = getattr(inspect.unwrap(forward), "__code__", None) if forward else None
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else "a native module"
