"""torch_one_thread: PyTorch's eager mode held to one thread."""

from pathlib import Path
from typing import Any

from ane_sweep.bridge.runtimes import Traits
from ane_sweep.worker.runtimes import torch_eager

RUNTIME = Traits(needs="checkpoint", measured="PyTorch eager on one thread of this CPU", hardware="CPU")


def available() -> str | None:
    return None


def load(params: dict[str, Any], inputs: dict[str, Path]) -> torch_eager.TorchRuntime:
    import torch

    torch.set_num_threads(1)
    return torch_eager.load(params, inputs, "torch_one_thread")
