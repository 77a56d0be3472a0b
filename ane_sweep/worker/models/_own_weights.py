"""The weights of a user's own module: drawn anew, or from a file of theirs."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from ane_sweep.errors import StageError, WeightsError
from ane_sweep.worker.models import weights

_SHOWN = 5  # names in a sentence


def redraw(inner: nn.Module, seed: int) -> None:
    for name, value in inner.named_parameters():
        if value.dim() < 2:
            mean, std = (1.0, 0.02) if name.endswith("weight") else (0.0, 0.02)
        else:
            mean, std = 0.0, (value.numel() / value.shape[0]) ** -0.5
        value.data.copy_(weights.random_tensor(f"{seed}:{name}", tuple(value.shape), mean, std))


def settle_norms(module: Any) -> None:
    """Batch norms take the statistics of one pass: without, what is drawn shrinks or grows from layer to layer until fp16
    holds none of it (measured: MobileNetV2 as its own code draws it gives zeros in fp16)."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    norms = [one for one in module.inner.modules() if isinstance(one, kinds) and one.track_running_stats]
    for one in norms:
        one.reset_running_stats()
        one.momentum = None  # the mean over all passes, of which there is one
        one.train()
    try:
        with torch.no_grad():
            module(*module.example)
    except StageError:  # one number a channel has no spread: those norms stay as they are
        pass
    for one in norms:
        one.eval()


def load(inner: nn.Module, file: Path, path: str) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state = load_file(file)
    except SafetensorError as error:
        raise WeightsError(f"{file} is no whole safetensors file ({error})") from error
    own = inner.state_dict()
    wrong = [
        f"{name} is {list(state[name].shape)}, not {list(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    tied = {own[name].data_ptr() for name in own if name in state}
    lacking = [
        name for name in own
        if name not in state and own[name].data_ptr() not in tied and not name.endswith("num_batches_tracked")
    ]  # fmt: skip
    for what, names in (
        ("lacks", lacking), ("holds, and the module does not,", [name for name in state if name not in own]), ("of another shape:", wrong),
    ):  # fmt: skip
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            raise WeightsError(f"model.path={path}: {file} {what} {', '.join(names[:_SHOWN])}{more}")
    inner.load_state_dict(state, strict=False)
