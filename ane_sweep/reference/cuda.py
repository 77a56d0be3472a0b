"""Computing on an NVIDIA GPU instead of the CPU: every tensor of a plan, constants included, lives there.

Not yet run by us on a GPU: the tests take a pretended device, which refuses to mix with the CPU.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from ane_sweep.errors import Unavailable


def prepare() -> None:
    """Sums in fp32 and no TF32, for this process. Raises errors.Unavailable where torch has no CUDA."""
    if not torch.cuda.is_available():
        raise Unavailable(
            f"device=cuda: this PyTorch ({torch.__version__}) finds no NVIDIA GPU (its CUDA build, a driver and a GPU are "
            "needed); `ane-sweep doctor` says what there is, the CPU (runtime=reference, --device cpu) runs anywhere"
        )
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_accumulation = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def use_device(device: str) -> AbstractContextManager[Any]:
    """Where torch's factories (zeros, arange, tensor ...) make their tensors meanwhile."""
    return nullcontext() if device == "cpu" else torch.device(device)


def run_on_device(run: Callable[..., Any], device: str) -> Callable[..., Any]:
    """A step's function with its factories on the device."""

    def there(*values: Any) -> Any:
        with torch.device(device):
            return run(*values)

    return there


def describe_device(device: str) -> dict[str, Any]:
    """What is recorded in `realised` of a device that is not the CPU."""
    if device == "cpu":
        return {}
    return {"device": torch.cuda.get_device_name(device) if device == "cuda" else device}
