"""The weights of a user's own module: drawn anew, or read from the user's file."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from ane_sweep.errors import StageError, WeightsError
from ane_sweep.worker.models import weights

_SHOWN = 5  # names in a sentence


def redraw(inner: nn.Module, seed: int) -> None:
    """Draw all parameters anew, each by the seed and its name."""
    for name, value in inner.named_parameters():
        if value.dim() < 2:
            mean, std = (1.0, 0.02) if name.endswith("weight") else (0.0, 0.02)
        else:
            mean, std = 0.0, (value.numel() / value.shape[0]) ** -0.5
        value.data.copy_(weights.draw_tensor(f"{seed}:{name}", tuple(value.shape), mean, std))


def set_norm_statistics(inner: nn.Module, run: Callable[[], object]) -> None:
    """Give batch norms the statistics of one pass, which `run` makes.

    Random values may otherwise shrink or grow from layer to layer, beyond the range of fp16.
    """
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    norms = [norm for norm in inner.modules() if isinstance(norm, kinds) and norm.track_running_stats]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all passes, here a single one
        norm.train()
    try:
        with torch.no_grad():
            run()
    except StageError:  # a single number a channel has no spread: those norms keep their statistics
        pass
    for norm in norms:
        norm.eval()


def load_weights(inner: nn.Module, file: Path, path: str) -> None:
    """Load a safetensors file into the module. Raises WeightsError that names tensors which do not fit."""
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
