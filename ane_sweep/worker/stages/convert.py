"""convert: converts a torch module to one program of the cell's kind.

params  model, weights, variant, seq_len, target ("iOS15" ... or a macOS name), compute ("fp16" | "fp32"),
        fp32_ops (absent if empty): patterns of the ops of an fp16 program that stay in fp32,
        options {those of bridge/building.py that differ from their default}
inputs  checkpoint (absent for random weights); converter and torch, other versions of coremltools and torch, which this process
        imports
leaves  model.mlpackage (or of the kind's suffix); the same parameters give the same bytes. With a cache its functions are prefill and
        decode (models/_cache.py)
"""

import time
from importlib import metadata
from pathlib import Path

from ane_sweep.bridge import building, protocol
from ane_sweep.bridge.building import DECODE, PREFILL
from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.worker import programs
from ane_sweep.worker.compress import torch_weights
from ane_sweep.worker.models import _build
from ane_sweep.worker.params import ConvertParams
from ane_sweep.worker.programs import ConversionJob, Converter, Sizer
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=30, many="conversions", timeout_s=7200, base_gib=0.45, per_byte=1.9, base_s=1, per_gb_s=8,
    leaves="program", artifact=True,
    warm=("torch", "transformers.modeling_utils", "coremltools"), holds="few blocks", outputs=2.7, scores=4.7,
    parts=("convert", "size"),
)  # fmt: skip


class Params(ConvertParams, frozen=True, kw_only=True):
    """Parameters of this stage; the model's builder and bridge/building.py read more of the same JSON."""

    variant: str


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Convert the model. Raises WeightsError, and StageError if the toolchain returns another kind of program."""
    began = time.perf_counter()
    if any("\ud800" <= character <= "\udfff" for character in str(out)):
        raise StageError(f"{out}: coremltools writes to no path that is not UTF-8; move the outputs with out=PATH")
    settings, options = Params.read(params), building.options(params)
    converter: Converter = programs.part(settings.program, "convert")
    sizer: Sizer = programs.part(settings.program, "size")
    module, ports = _build.build(params, inputs, settings.variant, lazy=not settings.recipe)
    done, drawn = None, module.weights_digest() if hasattr(module, "weights_digest") else None
    if settings.recipe:
        done = torch_weights.compress(module, ports(), settings.recipe, settings.program)
        module = done.module
    functions = getattr(module, "functions", None)
    if functions is None:
        jobs = {"main": ConversionJob(module, ports(), {}, settings, options)}
    else:
        jobs = {
            name: ConversionJob(functions[name], ports(function=name), module.states, settings, options)
            for name in (PREFILL, DECODE)
        }
    target = out / programs.name_file(settings.program)
    facts = converter.convert(jobs, target)
    if done:
        facts["numbers"] = done.numbers
    if drawn is not None:
        facts["weights"] = drawn
    return StageResult(
        metrics=[
            Metric("convert_s", time.perf_counter() - began, "s"),
            Metric("package_bytes", sizer.measure_bytes(target), "bytes"),
            Metric("bits_per_weight", sizer.compute_bits_per_weight(target, int(facts["numbers"])), "bit"),
        ],
        realised={
            "grown_blocks": facts.get("grown_blocks", 0),
            **_name_tools(settings, any(role in inputs for role in protocol.INSTALLS)),
            **({"weights_compressed": done.weights} if done else {}),
        },
        facts={**facts},
        doubts=done.doubts if done else [],
    )


def _name_tools(settings: ConvertParams, is_other: bool) -> dict[str, object]:
    """Return the packages that made the program, unless they are the installed ones, which every record names."""
    tools = settings.tools or ({name: metadata.version(name) for name in ("coremltools", "torch")} if is_other else {})
    tools = {**tools, **settings.compressor}
    return {"tools": ", ".join(f"{name} {version}" for name, version in tools.items())} if tools else {}
