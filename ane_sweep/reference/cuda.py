"""Run on an NVIDIA GPU instead of the CPU: every tensor of a plan, constants included, is in GPU memory.

Not yet run on a GPU: the tests use a simulated device that refuses CPU tensors.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from ane_sweep.errors import Unavailable


def prepare() -> None:
    """Use sums in fp32 and no TF32, for this process. Raises errors.Unavailable if torch has no CUDA."""
    if not torch.cuda.is_available():
        raise Unavailable(
            f"device=cuda: this PyTorch ({torch.__version__}) finds no NVIDIA GPU (its CUDA build, a driver and a GPU are "
            "needed); `ane-sweep doctor` says what there is, the CPU (runtime=reference, --device cpu) runs anywhere"
        )
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_accumulation = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def use_device(device: str) -> AbstractContextManager[object]:
    """Return a context in which torch's factories (zeros, arange, tensor ...) make their tensors on the device."""
    return nullcontext() if device == "cpu" else torch.device(device)


def run_on_device(run: Callable[..., object], device: str) -> Callable[..., object]:
    """Return a step's function with its factories on the device."""

    def run_there(*values: object) -> object:
        with torch.device(device):
            return run(*values)

    return run_there


def describe_device(device: str) -> dict[str, str]:
    """Return the entry of `realised` that records a device other than the CPU."""
    if device == "cpu":
        return {}
    return {"device": torch.cuda.get_device_name(device) if device == "cuda" else device}
