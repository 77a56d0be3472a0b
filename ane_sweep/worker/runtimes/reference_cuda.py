"""reference_cuda: the reference runtime on an NVIDIA GPU, through PyTorch's CUDA. Not yet run by us on one.

A prediction takes in numpy arrays and gives some back, so copying to and from the GPU is part of it. Its latency is
that of this GPU and says nothing about Apple hardware.
"""

from pathlib import Path

from ane_sweep.bridge.runtimes import Traits
from ane_sweep.machine import nvidia
from ane_sweep.worker.runtimes import reference

RUNTIME = Traits(
    needs="program", measured="reference runtime on this NVIDIA GPU", hardware="NVIDIA GPU",
    honours=("chunks", "precision", "target", "numerics", "effects"),
    cannot="ane_sweep.machine.nvidia:no_cuda", asks=("ane_sweep.machine.nvidia:gpus",),
)  # fmt: skip


def available() -> str | None:
    return nvidia.no_cuda()


def load(params: dict[str, object], inputs: dict[str, Path]) -> reference.ReferenceRuntime:
    """Compile the programs onto the GPU. Raises errors.Unavailable without CUDA, and as runtimes/reference.py does."""
    return functions(params, inputs, ("",))[""]


def functions(
    params: dict[str, object], inputs: dict[str, Path], names: tuple[str, ...]
) -> dict[str, reference.ReferenceRuntime]:
    """Functions of the programs by name. Raises as `load` does."""
    made = reference.functions(params, inputs, names, "cuda")
    for runtime in made.values():
        runtime.realised["runtime"] = "reference_cuda"
    return made
