"""convert: a torch module to one ML Program.

params  model, weights, variant, seq_len, target ("iOS15" ... or a macOS name), compute ("fp16" | "fp32"),
        fp32_ops (absent where empty): patterns of the ops of an fp16 program that stay in fp32,
        options {those of bridge/building.py that are not at their default}
inputs  checkpoint (absent for random weights)
leaves  model.mlpackage; the same parameters give the same bytes. With a cache its functions are prefill and
        decode (models/_cache.py)
"""

import os
import tempfile
import time
from contextlib import nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ane_sweep.bridge import building, trouble
from ane_sweep.bridge.building import DECODE, PREFILL
from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError, WeightsError
from ane_sweep.worker import grow, memory
from ane_sweep.worker.conversion import hints, packages, torch_ops
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=30, many="conversions", timeout_s=7200, base_gib=0.8, per_byte=1.9, guess_s=8, guess_per_gb=6,
    leaves="program", artifact=True,
    warm=("torch", "transformers.modeling_utils", "coremltools"), holds="few blocks",
)  # fmt: skip

_MODULES = ("TORCHSCRIPT_MODULE_TYPE", "TORCHSCRIPT_MODULE_NAME")


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """See the module's docstring. Raises WeightsError; StageError when coremltools leaves another kind of program."""
    began = time.perf_counter()
    if any("\ud800" <= character <= "\udfff" for character in str(out)):
        raise StageError(f"{out}: coremltools writes to no path that is not UTF-8; move the outputs with out=PATH")
    from ane_sweep.worker.models import _build

    module, ports = _build.build(params, inputs, params["variant"], lazy=True)
    package = out / "model.mlpackage"
    functions = getattr(module, "functions", None)
    weights = {"weights": module.weights_digest()} if hasattr(module, "weights_digest") else {}
    if functions is None:
        facts = weights | _convert(module, ports(), {}, params, package)
    else:
        facts = _convert_functions(functions, ports, module.states, params, package)
    packages.make_deterministic(package)
    seconds = time.perf_counter() - began
    bits = packages.compute_bits_per_weight(package, facts["numbers"])
    return StageResult(
        metrics=[
            Metric("convert_s", seconds, "s"),
            Metric("package_bytes", packages.measure_bytes(package), "bytes"),
            Metric("bits_per_weight", bits, "bit"),
        ],
        realised={"grown_blocks": facts.get("grown_blocks", 0)},
        facts=facts,
    )


def _convert_functions(
    functions, ports, states: dict[str, Any], params: dict[str, Any], package: Path
) -> dict[str, Any]:
    """Each function by itself, then coremltools' join, which keeps one copy of equal weights. The default is decode:
    it is called for every token. Facts are decode's, `ops_prefill` beside them."""
    from coremltools.models.utils import MultiFunctionDescriptor, save_multifunction

    facts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        joined = MultiFunctionDescriptor()
        for name in (PREFILL, DECODE):
            part = Path(folder, f"{name}.mlpackage")
            found = _convert(functions[name], ports(function=name), states, params, part)
            facts |= found if name == DECODE else {"ops_prefill": found["ops"]}
            joined.add_function(str(part), src_function_name="main", target_function_name=name)
        joined.default_function_name = DECODE
        save_multifunction(joined, str(package))
    return facts


def _convert(module, ports, states: dict[str, Any], params: dict[str, Any], package: Path) -> dict[str, Any]:
    """One function, written as `package`; what is in it. Grown from a few of its blocks where that gives the same bytes."""

    from ane_sweep.worker.models._cache import select_present

    def plain(target: Path) -> grow.Converted:
        kept = {name: state for name, state in states.items() if name in module.names}
        return _convert_plainly(module, select_present(module, ports), kept, params, target)

    def examples() -> tuple[Any, ...]:
        return _make_examples(module, select_present(module, ports), params)

    try:
        if os.environ.get(grow.VARIABLE) == "0":
            raise grow.Unlike(f"{grow.VARIABLE}=0")
        grow.refuse_numbers(params.get("fp32_ops", []))
        with tempfile.TemporaryDirectory(prefix="blocks_", dir=package.parent) as folder:
            return grow.grow(module, examples, plain, Path(folder), package)
    except WeightsError:
        raise
    except grow.Unlike as error:
        why = str(error)
    except Exception as error:  # coremltools' own and torch's, of a few blocks: all of them together say it in full
        why = f"{type(error).__name__}: {' '.join(trouble.text_of(error).split())[:200]}"
    print(f"all blocks are converted: {why}")
    with grow.whole(module):
        return plain(package).facts | {"not_grown": why}


def _convert_plainly(module, ports, states: dict[str, Any], params: dict[str, Any], package: Path) -> grow.Converted:
    given = params["model"]["task"] == "tensors"
    with hints.explain_failures(), torch_ops.register_ops() if given else nullcontext():
        program = _to_program(_trace(module, ports, params), ports, states, params, package)
    ops, parameter_bytes = _count_ops(program)
    numbers = packages.count_float_numbers(program)
    return grow.Converted(package, program, {"ops": ops, "parameter_bytes": parameter_bytes, "numbers": numbers})


def _trace(module, ports, params: dict[str, Any]):
    """torch.jit.trace, not torch.export: these graphs have fixed shapes and no control flow, so a trace is the whole
    truth; coremltools 9.0's export frontend lacks ops that transformers' decoders then need (`__and__`, `alias`).
    On the CPU: tracing on the meta device would spare the one run of the module that a trace is, but torch 2.13
    cannot trace convolutions there.
    """
    import torch

    from ane_sweep.worker.models import _half

    halves = any(_half.is_half(port, building.options(params)) for port in ports.inputs)
    widened = _half.widen_inputs(module, ports) if halves else nullcontext()
    examples = _make_examples(module, ports, params)
    with torch.no_grad(), widened:
        # check_trace would run the module twice more to look for control flow that is not there.
        traced = torch.jit.trace(module, examples, check_trace=False)
    memory.release_freed_memory()  # what the one run has made
    return traced


def _make_examples(module, ports, params: dict[str, Any]) -> tuple[Any, ...]:
    import torch

    from ane_sweep.worker.models import _half

    options = building.options(params)
    return getattr(module, "example", None) or tuple(
        torch.zeros(port.shape, dtype=torch.float16 if _half.is_half(port, options) else getattr(torch, port.dtype))
        for port in ports.inputs
    )


def _to_program(traced, ports, states: dict[str, Any], params: dict[str, Any], package: Path):
    """Convert and write `package`; returns coremltools' in-memory program."""
    import coremltools as ct
    import numpy as np

    from ane_sweep.worker.conversion.shortcuts import take_shortcuts
    from ane_sweep.worker.models import _half

    options = building.options(params)
    wide = Fp32Ops(options.norm, params.get("fp32_ops", []), options.mask_dtype == "fp32")
    target = getattr(ct.target, params["target"])
    narrow = params["compute"] == "fp16" and target >= ct.target.iOS16  # iOS15 has no fp16 inputs and outputs
    real = np.float16 if narrow else np.float32
    dtypes = {"int32": np.int32, "float32": real}
    with take_shortcuts():
        model = ct.convert(
            traced,
            inputs=[
                ct.TensorType(port.name, shape, np.float16 if _half.is_half(port, options) else dtypes[port.dtype])
                for port, shape in zip(ports.inputs, _to_input_types(ct, ports.inputs))
            ],
            outputs=[ct.TensorType(port.name, dtype=dtypes[port.dtype]) for port in ports.outputs],
            classifier_config=_configure_classifier(ct, params["model"], ports)
            if options.classes == "labels"
            else None,
            states=[
                ct.StateType(ct.TensorType(shape=tuple(state.shape), dtype=np.float16), name=name)
                for name, state in states.items()
            ]
            or None,
            convert_to="mlprogram",
            minimum_deployment_target=target,
            compute_precision=_choose_precision(ct, params["compute"], wide),
            pass_pipeline=_build_pipeline(
                ct, wide, guarded=options.index_guards == "negative" or params["model"]["task"] == "tensors"
            ),
            skip_model_load=True,
            package_dir=str(package),  # written in place: MLModel.save would copy a temporary package
        )
    program = model._mil_program  # the public accessor deep-copies every weight
    program.validate()
    if wide.patterns and not wide.kept:
        types = sorted(
            {op.op_type for function in program.functions.values() for op in function.operations} - {"const"}
        )
        raise StageError(f"fp32_ops={wide.patterns} match no op of this program, which has: {', '.join(types)}")
    return program


def _configure_classifier(ct, model: dict[str, Any], ports) -> Any:
    from ane_sweep.worker.models import _classes

    (output,) = ports.outputs
    return ct.ClassifierConfig(
        _classes.class_names(model["arch"], output.shape[-1]),
        predicted_feature_name=_classes.CLASS,
        predicted_probabilities_output=output.name,
    )


def _to_input_types(ct, inputs) -> list[Any]:
    """As coremltools takes them. Equal ranges are one size: two inputs that are added must agree in it."""
    ranges: dict[tuple[int, int], Any] = {}

    def size(one):
        return one if isinstance(one, int) else ranges.setdefault(one, ct.RangeDim(*one, default=one[1]))

    return [
        ct.EnumeratedShapes(shapes=[list(shape) for shape in port.shapes], default=list(port.shape))
        if len(port.shapes) > 1
        else tuple(size(one) for one in (port.shapes[0] if port.shapes else port.shape))
        for port in inputs
    ]


class Fp32Ops:
    """Which ops of an fp16 program stay in fp32: the means of the norms or all that comes from a norm's module, as `norm`
    says, and what matches one of `patterns` by type, name, or the name or type of a torch module that it comes from; with
    `masks`, the additions of a causal mask."""

    def __init__(self, norm: str, patterns: list[str], masks: bool = False):
        self.norm, self.patterns, self.masks, self.kept = norm, patterns, masks, 0

    @property
    def apart(self) -> bool:
        """Whether a norm must stay in single ops: as asked, or as only then it has a mean to keep."""
        return self.norm in ("fp16_ops", "fp32_mean") or any(
            fnmatchcase("reduce_mean", pattern) for pattern in self.patterns
        )

    def keeps(self, op) -> bool:
        names = [str(name) for source in op.scopes if source.name in _MODULES for name in op.scopes[source]]
        matched = any(fnmatchcase(name, p) for p in self.patterns for name in (op.op_type, op.name, *names))
        self.kept += matched
        matched = matched or (self.masks and op.op_type == "add" and any(map(_is_mask, (op.x, op.y))))
        if matched or self.norm in ("fp16", "fp16_ops"):
            return matched
        if self.norm == "fp32_mean":
            return op.op_type == "reduce_mean"
        return op.op_type == "layer_norm" or any(name.endswith("Norm") for name in names)


def _is_mask(var: Any) -> bool:
    """Whether what is added is a causal mask: a constant that hides keys, a product that makes one inside, or the input."""
    if var.val is not None:
        return bool(var.val.ndim == 4) and _hides(var.val)
    if var.op is None or var.op.op_type != "mul":
        return bool(var.name == "causal_mask")
    factor = next((one.val for one in (var.op.x, var.op.y) if one.val is not None), None)
    return factor is not None and factor.size == 1 and _hides(factor)


def _hides(values: Any) -> bool:
    from ane_sweep.worker.models._hf import MASKED

    return bool(values.min() <= MASKED)


def _choose_precision(ct, compute: str, wide: Fp32Ops):
    if compute == "fp32":
        return ct.precision.FLOAT32
    if wide.norm in ("fp16", "fp16_ops") and not wide.patterns and not wide.masks:
        return ct.precision.FLOAT16
    return ct.transform.FP16ComputePrecision(op_selector=lambda op: not wide.keeps(op))


def _build_pipeline(ct, wide: Fp32Ops, guarded: bool = False):
    """coremltools' default passes, less those that only cost here, and one more where it saves memory.

    guarded   of code that is not ours, whose indices may be negative, or asked for"""
    pipeline = ct.PassPipeline.DEFAULT
    if wide.apart:
        pipeline.remove_passes({"common::fuse_layernorm_or_instancenorm"})
    # Guards gathers against negative indices with a compare, an add and a select before the embedding; token ids and
    # positions are never negative. index_guards=negative keeps them: programs of others have them.
    if not guarded:
        pipeline.remove_passes({"common::guard_negative_gather_indices"})
    # Hashes every weight. Once before the fp16 cast finds what is equal (tied embedding and head), once more runs in
    # the backend pipeline; the two in between find nothing new.
    again = [i for i, name in enumerate(pipeline.passes) if name == "common::const_deduplication"][1:]
    for index in reversed(again):
        pipeline.remove_pass(index)
    # GPT-2's Conv1D weights arrive as constants behind a transpose. Left there, the fp16 cast carries each through
    # fp16, fp32 and fp16 again: twice the model's size on top (gpt2-xl: 19.4 GB). Folded first, a view does.
    if "common::add_fp16_cast" in pipeline.passes:
        index = pipeline.passes.index("common::add_fp16_cast")
        pipeline.insert_pass(index, "common::dead_code_elimination")
        pipeline.insert_pass(index, "common::const_elimination")
    return pipeline


def _count_ops(program) -> tuple[int, int]:
    """(ops that are not constants, bytes of constants)."""
    ops = parameter_bytes = 0
    for function in program.functions.values():
        for op in function.operations:
            if op.op_type.startswith("constexpr"):
                raise StageError(f"{op.name}: a fresh conversion holds {op.op_type}; its weights must be plain")
            if op.op_type != "const":
                ops += 1
            elif hasattr(op.outputs[0].val, "nbytes"):
                parameter_bytes += op.outputs[0].val.nbytes
    return ops, parameter_bytes
