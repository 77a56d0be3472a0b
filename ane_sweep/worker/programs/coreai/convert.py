"""Conversion of torch modules to a Core AI asset by coreai-torch.

The way is coreai-torch's own: torch.export, its decompositions, TorchConverter (its README, version 0.4.3). An fp16
asset is the module in fp16, with inputs and outputs in fp32.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn.utils import parametrize

from ane_sweep import native_errors
from ane_sweep.errors import StageError, WeightsError
from ane_sweep.worker.grow import growing
from ane_sweep.worker.models._ports import Ports
from ane_sweep.worker.programs import ConversionJob, Facts


def convert(jobs: Mapping[str, ConversionJob], target: Path) -> Facts:
    """Write an asset. Raises StageError with the words of torch.export or coreai-torch."""
    (job,) = jobs.values()
    with growing.materialise_tensors(job.module, target.parent), _explain_failures():
        exported = _export(job)
        ops = _write(exported, job.ports, target)
    weights = [*exported.state_dict.values(), *exported.constants.values()]
    return {
        "ops": ops,
        "parameter_bytes": sum(value.nbytes for value in weights if isinstance(value, Tensor)),
        "numbers": sum(
            value.numel() for value in job.module.parameters() if value.is_floating_point()
        ),  # tied ones once
    }


class _Narrow(nn.Module):
    """A step that takes a weight to fp16."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight.half()


class _Half(nn.Module):
    """A module in fp16 whose inputs and outputs stay in fp32."""

    def __init__(self, module: nn.Module):
        super().__init__()
        codes = [  # narrow floats, which `half` would take for numbers
            (part._buffers, name, value) for part in module.modules() for name, value in part._buffers.items()
            if value is not None and value.dtype.itemsize == 1
        ]  # fmt: skip
        self.module = module.half()
        for buffers, name, value in codes:
            buffers[name] = value
        for part in [*module.modules()]:
            for name in [*getattr(part, "parametrizations", {})]:
                if getattr(part, name).dtype is torch.float32:  # as fp4 codes are widened
                    parametrize.register_parametrization(part, name, _Narrow(), unsafe=True)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        made = self.module(*(value.half() if value.is_floating_point() else value for value in inputs))
        outputs = made if isinstance(made, tuple) else (made,)
        return tuple(value.float() if value.is_floating_point() else value for value in outputs)


def _export(job: ConversionJob) -> ExportedProgram:
    from coreai_torch import get_decomp_table

    for part in job.module.modules():  # lazy weights, once read, are plain tensors, which torch.export refuses
        for name, value in part._parameters.items():
            part._parameters[name] = None if value is None else nn.Parameter(value, requires_grad=False)
    module = _Half(job.module) if job.settings.compute == "fp16" else job.module
    examples = tuple(torch.zeros(port.shape, dtype=getattr(torch, port.dtype)) for port in job.ports.inputs)
    with torch.no_grad():
        exported: ExportedProgram = torch.export.export(module, examples).run_decompositions(get_decomp_table())
    return exported


def _write(exported: ExportedProgram, ports: Ports, target: Path) -> int:
    """Write the asset and return the number of its ops, as Core AI counts them."""
    from coreai.runtime import AIModelAssetMetadata
    from coreai_torch import TorchConverter

    converter = TorchConverter().add_exported_program(
        exported, input_names=[port.name for port in ports.inputs], output_names=[port.name for port in ports.outputs]
    )
    summary = converter.to_coreai().save_asset(target, AIModelAssetMetadata()).summary()
    return sum(count for _, count in summary.operation_distribution) if summary else 0


@contextmanager
def _explain_failures() -> Iterator[None]:
    """Turn failures of the packages into a StageError with their own words, and hide their warnings of versions."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (StageError, WeightsError, MemoryError):
        raise
    except Exception as error:
        said = " ".join(native_errors.text_of(error).split())
        raise StageError(f"coreai-torch does not convert it: {type(error).__name__}: {said[:2000]}") from error
