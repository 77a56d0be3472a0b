"""Prediction by the reference runtime, of any package, made by ane-sweep or another tool."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ane_sweep import installed
from ane_sweep.errors import ConfigError, PackageError, suggestion

DEVICES = ("cpu", "cuda")


def predict(
    package: "str | os.PathLike[str]",
    inputs: "Mapping[str, Any] | np.ndarray[Any, Any]",
    *,
    function: str,
    numerics: str | None,
    device: str,
) -> "dict[str, np.ndarray[Any, Any]]":
    installed.need_worker("ane_sweep.predict")
    if device not in DEVICES:
        raise ConfigError(f"device={device}: unknown{suggestion(device, DEVICES)}; choices: {', '.join(DEVICES)}")
    from ane_sweep import reference

    model = reference.load(Path(package), function, numerics=numerics, device=device)
    if not isinstance(inputs, Mapping):
        if len(model.inputs) != 1:
            raise PackageError(f"{package}: which input is it? Give {{name: array}}; inputs: {', '.join(model.inputs)}")
        inputs = {next(iter(model.inputs)): inputs}
    found: dict[str, np.ndarray[Any, Any]] = model.predict(dict(inputs), model.new_state() if model.states else None)
    return found
