"""reference_cuda: the reference runtime on an NVIDIA GPU, through PyTorch's CUDA. We have not yet run it on such a GPU.

A prediction takes and returns numpy arrays, so it includes copying to and from the GPU. Its latency is
that of this GPU and says nothing about Apple hardware.
"""

from pathlib import Path

from ane_sweep.bridge.runtimes import Traits
from ane_sweep.worker.runtimes import reference

RUNTIME = Traits(
    needs="program", measured="reference runtime on this NVIDIA GPU", hardware="NVIDIA GPU",
    honours=("chunks", "precision", "target", "numerics", "effects"),
    cannot="ane_sweep.machine.nvidia:no_cuda", asks=("ane_sweep.machine.nvidia:gpus",),
)  # fmt: skip


def load(params: dict[str, object], inputs: dict[str, Path]) -> reference.ReferenceRuntime:
    """Compile the programs on the GPU. Raises errors.Unavailable without CUDA, and the errors of runtimes/reference.py."""
    return functions(params, inputs, ("",))[""]


def functions(
    params: dict[str, object], inputs: dict[str, Path], names: tuple[str, ...]
) -> dict[str, reference.ReferenceRuntime]:
    """Load the named functions of the programs. Raises the same errors as `load`."""
    made = reference.functions(params, inputs, names, "cuda")
    for runtime in made.values():
        runtime.realised["runtime"] = "reference_cuda"
    return made
