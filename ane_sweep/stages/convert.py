"""convert: a torch module to one ML Program.

params  model, weights, variant, seq_len, target ("iOS15" ... or a macOS name), compute ("fp16" | "fp32"),
        options {those of models/_options.py that are not at their default}
inputs  checkpoint (absent for random weights)
leaves  model.mlpackage; the same parameters give the same bytes. With cache=stateful its functions are prefill and
        decode (models/_cache.py)
"""

import json
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from ane_sweep import models
from ane_sweep.errors import StageError

from . import StageResult, metric

_MLMODEL = Path("Data", "com.apple.CoreML", "model.mlmodel")


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """See the module's docstring. Raises WeightsError; StageError when coremltools leaves another kind of program."""
    began = time.perf_counter()
    module = _build(params, inputs.get("checkpoint"))
    package = out / "model.mlpackage"
    functions = getattr(module, "functions", None)
    if functions is None:
        facts = _convert(module, _ports(params), {}, params, package)
    else:
        facts = _convert_functions(functions, module.states, params, package)
    _settle(package)
    seconds = time.perf_counter() - began
    size = sum(path.stat().st_size for path in package.rglob("*") if path.is_file())
    return StageResult(metrics=[metric("convert_s", seconds, "s"), metric("package_bytes", size, "bytes")], facts=facts)


def _build(params: dict[str, Any], checkpoint: Path | None):
    from ane_sweep.models import _options, weights

    state = weights.load_state(params["weights"], checkpoint, params["model"])
    make = models.get(params["model"]["family"]).VARIANTS[params["variant"]]
    return make(params["model"], state, params["seq_len"], _options.options(params))


def _ports(params: dict[str, Any], **more: str):
    from ane_sweep.models import _options

    family = models.get(params["model"]["family"])
    return family.ports(params["model"], params["seq_len"], _options.options(params), **more)


def _convert_functions(functions, states: dict[str, Any], params: dict[str, Any], package: Path) -> dict[str, Any]:
    """Each function by itself, then coremltools' join, which keeps one copy of equal weights. The default is decode:
    it is called for every token. Facts are decode's, `ops_prefill` beside them."""
    from coremltools.models.utils import MultiFunctionDescriptor, save_multifunction

    from ane_sweep.models._options import DECODE, PREFILL

    facts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        joined = MultiFunctionDescriptor()
        for name in (PREFILL, DECODE):
            part = Path(folder, f"{name}.mlpackage")
            found = _convert(functions[name], _ports(params, function=name), states, params, part)
            facts |= found if name == DECODE else {"ops_prefill": found["ops"]}
            joined.add_function(str(part), src_function_name="main", target_function_name=name)
        joined.default_function_name = DECODE
        save_multifunction(joined, str(package))
    return facts


def _convert(module, ports, states: dict[str, Any], params: dict[str, Any], package: Path) -> dict[str, Any]:
    """One function, traced and written as `package`; what is in it."""
    ops, parameter_bytes = _census(_to_program(_trace(module, ports, params), ports, states, params, package))
    return {"ops": ops, "parameter_bytes": parameter_bytes}


def _trace(module, ports, params: dict[str, Any]):
    """torch.jit.trace, not torch.export: these graphs have fixed shapes and no control flow, so a trace is the whole
    truth; coremltools 9.0's export frontend lacks ops that transformers' decoders then need (`__and__`, `alias`).
    On the CPU: tracing on the meta device would spare the one run of the module that a trace is, but torch 2.13
    cannot trace convolutions there.
    """
    import torch

    from ane_sweep.models import _half, _options

    halves = [_half.is_half(port, _options.options(params)) for port in ports.inputs]
    module = _half.FromHalf(module, ports).eval() if any(halves) else module
    examples = tuple(
        torch.zeros(port.shape, dtype=torch.float16 if half else getattr(torch, port.dtype))
        for port, half in zip(ports.inputs, halves)
    )
    with torch.no_grad():
        # check_trace would run the module twice more to look for control flow that is not there.
        return torch.jit.trace(module, examples, check_trace=False)


def _to_program(traced, ports, states: dict[str, Any], params: dict[str, Any], package: Path):
    """Convert and write `package`; returns coremltools' in-memory program."""
    import coremltools as ct
    import numpy as np

    from ane_sweep.models import _half, _options

    from ._lean import lean

    options = _options.options(params)
    target = getattr(ct.target, params["target"])
    narrow = params["compute"] == "fp16" and target >= ct.target.iOS16  # iOS15 has no fp16 inputs and outputs
    real = np.float16 if narrow else np.float32
    dtypes = {"int32": np.int32, "float32": real}
    with lean():
        model = ct.convert(
            traced,
            inputs=[
                ct.TensorType(port.name, port.shape, np.float16 if _half.is_half(port, options) else dtypes[port.dtype])
                for port in ports.inputs
            ],
            outputs=[ct.TensorType(port.name, dtype=real) for port in ports.outputs],
            states=[
                ct.StateType(ct.TensorType(shape=tuple(state.shape), dtype=np.float16), name=name)
                for name, state in states.items()
            ]
            or None,
            convert_to="mlprogram",
            minimum_deployment_target=target,
            compute_precision=_precision(ct, params["compute"], options.norm),
            pass_pipeline=_pipeline(ct, options.norm),
            skip_model_load=True,
            package_dir=str(package),  # written in place: MLModel.save would copy a temporary package
        )
    program = model._mil_program  # the public accessor deep-copies every weight
    program.validate()
    return program


def _precision(ct, compute: str, norm: str):
    if compute == "fp32":
        return ct.precision.FLOAT32
    if norm == "fp16":
        return ct.precision.FLOAT16
    return ct.transform.FP16ComputePrecision(op_selector=lambda op: not _stays_wide(op, norm))


def _stays_wide(op, norm: str) -> bool:
    """Whether an op keeps fp32: the means of the norms, or all that comes from a norm's module."""
    if norm == "fp32_mean":
        return op.op_type == "reduce_mean"
    names = [name for source in op.scopes if source.name == "TORCHSCRIPT_MODULE_TYPE" for name in op.scopes[source]]
    return op.op_type == "layer_norm" or any(str(name).endswith("Norm") for name in names)


def _pipeline(ct, norm: str):
    """coremltools' default passes, less those that only cost here, and one more where it saves memory."""
    pipeline = ct.PassPipeline.DEFAULT
    if norm == "fp32_mean":  # only a norm of single ops has a mean to keep apart
        pipeline.remove_passes({"common::fuse_layernorm_or_instancenorm"})
    # Guards gathers against negative indices with a compare, an add and a select before the embedding; token ids and
    # positions are never negative.
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


def _census(program) -> tuple[int, int]:
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


def _settle(package: Path) -> None:
    """Rewrite what coremltools leaves to chance, so that equal parameters give equal bytes: order of protobuf maps,
    random identifiers in the manifest."""
    from coremltools.proto import Model_pb2

    path = package / _MLMODEL
    spec = Model_pb2.Model()
    spec.ParseFromString(path.read_bytes())
    path.write_bytes(spec.SerializeToString(deterministic=True))
    manifest_path = package / "Manifest.json"
    manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
    names = {old: str(uuid.uuid5(uuid.NAMESPACE_URL, item["path"])).upper() for old, item in _items(manifest)}
    manifest["itemInfoEntries"] = {names[old]: item for old, item in _items(manifest)}
    manifest["rootModelIdentifier"] = names[manifest["rootModelIdentifier"]]
    manifest_path.write_text(json.dumps(manifest, indent=4, sort_keys=True) + "\n", encoding="utf-8")


def _items(manifest: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return list(manifest["itemInfoEntries"].items())
