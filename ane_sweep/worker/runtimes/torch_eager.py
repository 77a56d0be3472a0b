"""torch_eager: the variant's torch module in fp32, without Core ML: the baseline of the converted programs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ane_sweep.bridge.runtimes import Traits
from ane_sweep.errors import PackageError
from ane_sweep.worker.models._ports import Port, Ports
from ane_sweep.worker.params import Params
from ane_sweep.worker.runtimes._runtime import Arrays, Runtime

if TYPE_CHECKING:
    from torch import nn

    from ane_sweep.worker.models._cache import KeyValueCache

RUNTIME = Traits(
    needs="checkpoint", measured="PyTorch eager on this CPU", hardware="CPU", warm=("torch", "transformers.modeling_utils"),
    per_gmac_s=0.035,
)  # fmt: skip


class TorchParams(Params, frozen=True):
    """Parameters of this runtime; the model's builder reads more of the same JSON."""

    variant: str


class TorchRuntime(Runtime):
    """A module whose forward takes the graph's inputs in order and returns a tuple of its outputs.

    cache   the module that holds the states, if there is a key-value cache (models/_cache.py)
    """

    def __init__(
        self,
        module: "nn.Module",
        ports: Ports,
        name: str = "torch_eager",
        device: str = "cpu",
        cache: "KeyValueCache | None" = None,
    ):
        import torch

        self._module, self._ports, self._device, self._cache = module.to(device), ports, device, cache
        self.states = cache.states if cache else {}
        self.realised: dict[str, object] = {
            "runtime": name,
            "numerics": "fp32",
            "threads": torch.get_num_threads(),
            "compute_units": None,
            "chunks": 1,
        }

    def reset(self) -> None:
        """Set all states of the module to zeros."""
        if self._cache:
            self._cache.reset()

    def predict(self, inputs: Arrays) -> Arrays:
        """Return outputs by name, fp32. Raises errors.PackageError for a wrong name or shape of input."""
        import torch

        values = _order_inputs(inputs, self._ports.inputs)
        with torch.inference_mode():
            made = self._module(*[torch.from_numpy(value).to(self._device) for value in values])
        return {port.name: value.cpu().numpy() for port, value in zip(self._ports.outputs, made)}


def _order_inputs(inputs: Arrays, ports: Sequence[Port]) -> list[np.ndarray]:
    problems = [f"{port.name!r} is missing" for port in ports if port.name not in inputs]
    known = {port.name: port for port in ports}
    for name, value in inputs.items():
        if name not in known:
            problems.append(f"{name!r} is not an input")
        elif not known[name].shapes and np.shape(value) != tuple(known[name].shape):
            problems.append(f"{name!r} has shape {list(np.shape(value))}, not {list(known[name].shape)}")
    if problems:
        takes = ", ".join(f"{port.name} ({port.dtype} {list(port.shape)})" for port in ports)
        raise PackageError(f"inputs do not fit: {'; '.join(problems)}. The module takes {takes}")
    return [np.ascontiguousarray(inputs[port.name], dtype=port.dtype) for port in ports]


def load(
    params: dict[str, object], inputs: dict[str, Path], name: str = "torch_eager", device: str = "cpu"
) -> TorchRuntime:
    """Build `params["variant"]` of `params["model"]` with its weights. Raises errors.WeightsError, errors.ConfigError."""
    module, ports = _build_variant(params, inputs)
    return TorchRuntime(module, ports(), name, device)


def functions(
    params: dict[str, object],
    inputs: dict[str, Path],
    names: tuple[str, ...],
    name: str = "torch_eager",
    device: str = "cpu",
) -> dict[str, TorchRuntime]:
    """Build the named functions of a module with a key-value cache; they share weights and states."""
    module, ports = _build_variant(params, inputs)
    module = module.to(device)
    return {key: TorchRuntime(module.functions[key], ports(function=key), name, device, module) for key in names}


def _build_variant(params: dict[str, object], inputs: dict[str, Path]) -> tuple[Any, Callable[..., Ports]]:
    """Build the variant; return the module and a function that returns its ports."""
    from ane_sweep.worker.models import _build

    return _build.build(params, inputs, TorchParams.read(params).variant)
