"""reference_cuda: the reference runtime on an NVIDIA GPU, through PyTorch's CUDA. Not yet run by us on one.

A prediction takes in numpy arrays and gives some back, so copying to and from the GPU is part of it. Its latency is
that of this GPU and says nothing about Apple hardware.
"""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

from ane_sweep import tools
from ane_sweep.bridge.runtimes import Traits
from ane_sweep.runtimes import reference

RUNTIME = Traits(
    needs="program",
    measured="reference runtime on this NVIDIA GPU",
    hardware="NVIDIA GPU",
    honours=("chunks", "precision", "target", "numerics", "effects"),
    asks=("gpus",),
)


@cache
def gpus() -> list[str]:
    """What nvidia-smi calls the GPUs of this host; none without it."""
    return (tools.text("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "").splitlines()


def available() -> str | None:
    torch = importlib.util.find_spec("torch")  # found, not imported
    if torch is None or not list(Path(str(torch.origin)).parent.glob("lib/*torch_cuda.*")):
        return "needs PyTorch's CUDA build, and the one installed has no CUDA"
    return None if gpus() else "needs an NVIDIA GPU, and nvidia-smi lists none"


def load(params: dict[str, Any], inputs: dict[str, Path]) -> Any:
    """Compile the programs onto the GPU. Raises errors.Unavailable without CUDA, and as runtimes/reference.py does."""
    return functions(params, inputs, ("",))[""]


def functions(params: dict[str, Any], inputs: dict[str, Path], names: tuple[str, ...]) -> dict[str, Any]:
    """Functions of the programs by name. Raises as `load` does."""
    made = reference.functions(params, inputs, names, "cuda")
    for runtime in made.values():
        runtime.realised["runtime"] = "reference_cuda"
    return made
