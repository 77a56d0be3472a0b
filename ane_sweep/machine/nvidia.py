"""What this host says of NVIDIA GPUs, without importing torch."""

import importlib.util
from functools import cache
from pathlib import Path

from ane_sweep.machine import tools


@cache
def gpus() -> list[str]:
    """What nvidia-smi calls the GPUs of this host; none without it."""
    return (tools.text("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "").splitlines()


def no_cuda() -> str | None:
    """Why nothing can run on an NVIDIA GPU here; None where it can."""
    torch = importlib.util.find_spec("torch")  # found, not imported
    if torch is None or not list(Path(str(torch.origin)).parent.glob("lib/*torch_cuda.*")):
        return "needs PyTorch's CUDA build, and the one installed has no CUDA"
    return None if gpus() else "needs an NVIDIA GPU, and nvidia-smi lists none"
