"""torch_mps: the variant's torch module in fp32 on the Mac's GPU, through PyTorch's MPS. We have not yet run it on a
Mac.

A prediction takes and returns numpy arrays, so it includes copying to and from the GPU, like a user's prediction.
"""

import os
from pathlib import Path

from ane_sweep.bridge.runtimes import Traits
from ane_sweep.errors import StageError, Unavailable
from ane_sweep.worker.runtimes import torch_eager

RUNTIME = Traits(
    needs="checkpoint", measured="PyTorch on this GPU", hardware="Apple", cannot="ane_sweep.machine.apple:no_silicon"
)

_FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"


def load(params: dict[str, object], inputs: dict[str, Path]) -> torch_eager.TorchRuntime:
    """Build the module and move it to the GPU. Raises errors.Unavailable without MPS, and errors.StageError if PyTorch
    is set to run unsupported ops on the CPU, which would be timed as the GPU.
    """
    _check_device()
    return torch_eager.load(params, inputs, name="torch_mps", device="mps")


def functions(
    params: dict[str, object], inputs: dict[str, Path], names: tuple[str, ...]
) -> dict[str, torch_eager.TorchRuntime]:
    """Build the named functions of a module with a key-value cache. Raises the same errors as `load`."""
    _check_device()
    return torch_eager.functions(params, inputs, names, name="torch_mps", device="mps")


def _check_device() -> None:
    import torch

    if not torch.backends.mps.is_available():
        raise Unavailable("runtime=torch_mps: this PyTorch has no MPS device (macOS 14 or newer and an arm64 build)")
    if os.environ.get(_FALLBACK, "0") != "0":
        raise StageError(f"runtime=torch_mps: {_FALLBACK} is set, so ops may run on the CPU without a word; unset it")
