"""The NVIDIA GPUs of this host, found without importing torch."""

import importlib.util
from functools import cache
from pathlib import Path

from ane_sweep.machine import tools


@cache
def gpus() -> list[str]:
    """Return the names that nvidia-smi gives the GPUs of this host; an empty list without it."""
    return (tools.text("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "").splitlines()


def no_cuda() -> str | None:
    """Return why no program can run on an NVIDIA GPU here, or None if one can."""
    torch = importlib.util.find_spec("torch")  # found, not imported
    if torch is None or not list(Path(str(torch.origin)).parent.glob("lib/*torch_cuda.*")):
        return "needs PyTorch's CUDA build, and the one installed has no CUDA"
    return None if gpus() else "needs an NVIDIA GPU, and nvidia-smi lists none"
