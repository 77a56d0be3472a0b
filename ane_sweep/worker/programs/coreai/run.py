"""coreai: executes Core AI's assets in Apple's CPU runtime, which coreai-core brings for Linux and macOS.

Its latency says nothing about Apple's units: on Linux a feed-forward block that takes torch 14 ms took 375 ms.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import numpy as np

from ane_sweep.bridge.runtimes import Traits
from ane_sweep.errors import PackageError, StageError
from ane_sweep.worker.runtimes._runtime import Arrays, Runtime

T = TypeVar("T")
RUNTIME = Traits(
    needs="program", program="coreai", measured="Core AI's runtime on this CPU", hardware="CPU",
    honours=("precision",), auto=1, cannot="ane_sweep.machine.coreai:find_missing",
)  # fmt: skip


class CoreAIRuntime(Runtime):
    """The function `main` of an asset, loaded."""

    def __init__(self, asset: Path):
        from coreai.authoring import AIModelAsset

        self._loop, self._open = asyncio.new_event_loop(), AsyncExitStack()
        loaded = AIModelAsset.load(asset)
        model = self._run(self._open.enter_async_context(loaded.executable()))
        self._function = model.load_function("main")
        described = self._function.desc
        self.inputs, self._outputs = list(described.input_names), list(described.output_names)
        summary = loaded.summary()
        kinds = {str(kind) for kind in summary.compute_types} if summary else set()
        self.realised: dict[str, object] = {
            "runtime": "coreai", "numerics": ", ".join(sorted(kinds)), "threads": None, "compute_units": None, "chunks": 1,
        }  # fmt: skip

    def take(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """Return the type and the shape of each input; a free length is -1."""
        found = {name: self._function.desc.input_descriptor(name) for name in self.inputs}
        return {name: (np.dtype(str(one.dtype)), tuple(one.shape)) for name, one in found.items()}

    def predict(self, inputs: Arrays) -> Arrays:
        """Return outputs by name. Raises errors.PackageError for inputs of other names, StageError with the runtime's words."""
        from coreai.runtime import NDArray

        if set(inputs) != set(self.inputs):
            raise PackageError(f"inputs {', '.join(sorted(inputs))}: the asset takes {', '.join(self.inputs)}")
        try:
            made = self._run(self._function({name: NDArray(np.ascontiguousarray(v)) for name, v in inputs.items()}))
        except (RuntimeError, ValueError, TypeError) as error:
            raise StageError(f"Core AI's runtime: {error}") from error
        arrays = {name: made[name] for name in self._outputs}
        return {name: np.asarray(value.numpy()) for name, value in arrays.items() if isinstance(value, NDArray)}

    def _run(self, work: Awaitable[T]) -> T:
        return self._loop.run_until_complete(work)


def load(params: dict[str, object], inputs: dict[str, Path]) -> CoreAIRuntime:
    """Load the asset in `inputs["program"]`. Raises StageError if Core AI refuses it."""
    (asset,) = sorted(inputs["program"].glob("*.aimodel"))
    try:
        return CoreAIRuntime(asset)
    except (RuntimeError, ValueError) as error:
        raise StageError(f"Core AI does not load it: {error}") from error


def functions(params: dict[str, object], inputs: dict[str, Path], names: tuple[str, ...]) -> dict[str, Runtime]:
    """Raise StageError: assets have one function here, and the planner refuses caches."""
    raise StageError(f"an asset has no functions {', '.join(names)}; cache=none")
