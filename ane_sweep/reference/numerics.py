"""Define the modes of numerics, chosen by params["numerics"] and recorded with every figure.

fp16    as the program declares: fp16 values are stored in half after every op, sums inside an op are fp32
fp32    every value that is declared fp16 is computed and stored in fp32; shows the cost of the storage alone
ane     fp16, with the known arithmetic of the Neural Engine on top (ane.py, mil/effects.py), effect by effect

The device is part of a mode, as sums differ between devices: the CPU, or another torch device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch

from ane_sweep.errors import ConfigError
from ane_sweep.mil.effects import MODES, select_effects
from ane_sweep.reference import ane, cuda
from ane_sweep.reference.site import TORCH_DTYPES, Site, Step


@dataclass(frozen=True)
class Mode:
    """One mode of computing.

    `dtypes`: torch's type for each MIL type. `effects`: names of effects.EFFECTS that are on. `device`: its name in
    torch.
    """

    name: str
    dtypes: dict[str, torch.dtype] = field(default_factory=lambda: TORCH_DTYPES, repr=False)
    effects: tuple[str, ...] = ()
    device: str = "cpu"

    def constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a constant as this mode stores it."""
        tensor = tensor.to(self.device)
        return tensor.float() if self.name == "fp32" and tensor.dtype == torch.float16 else tensor

    def adjust(self, site: Site, step: Step) -> Step:
        """Return the step of an op under this mode."""
        if self.effects:
            step = ane.apply_effects(site, step, self.effects)
        return step if self.device == "cpu" else replace(step, run=cuda.run_on_device(step.run, self.device))

    def describe(self, is_half: bool) -> str:
        """Return the entry `realised.numerics`; `is_half`: the program declares fp16 values."""
        if not is_half:
            return "fp32"
        if self.name == "fp32":
            return "fp32 in place of the declared fp16"
        if self.effects:
            return f"fp16 storage, ANE model ({', '.join(self.effects)})"
        return "fp16 storage, fp32 accumulation"


AS_DECLARED = Mode("fp16")


def make_mode(name: str | None, effects: Iterable[str] | None = None, device: str = "cpu") -> Mode:
    """Return a mode by its name; None computes as declared. `effects` chooses the effects of "ane" (None: the default
    ones).

    Raises ConfigError for an unknown name, errors.Unavailable for device="cuda" without a GPU.
    """
    if device == "cuda":
        cuda.prepare()
    return replace(_make_mode_by_name(name, effects), device=device)


def _make_mode_by_name(name: str | None, effects: Iterable[str] | None) -> Mode:
    if name not in (*MODES, None):
        raise ConfigError(f"unknown numerics {name!r}; choose one of {', '.join(MODES)}")
    if effects is not None and name != "ane":
        raise ConfigError(f"effects {list(effects)} need numerics=ane")
    if name == "fp32":
        return Mode("fp32", {**TORCH_DTYPES, "fp16": torch.float32})
    if name == "ane":
        return Mode("ane", effects=select_effects(effects))
    return AS_DECLARED
