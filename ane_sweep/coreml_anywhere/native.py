"""The drop-in for `coremltools.libcoremlpython`, with its classes and functions by name (coremltools 9.0).

Source of the surface: coremlpython/CoreMLPython.mm of coremltools 9.0. All classes can be subclassed and are truthy.
"""

import weakref
from collections.abc import Mapping
from pathlib import Path

from ane_sweep import reference
from ane_sweep.coreml_anywhere import compiled, plan
from ane_sweep.coreml_anywhere.loading import LoadedModel, as_package, as_runtime_error, convert_outputs
from ane_sweep.coreml_anywhere.plan import (
    ALLOWED,
    _MLComputePlanProxy,
    _MLCPUComputeDeviceProxy,
    _MLGPUComputeDeviceProxy,
    _MLModelStructureNeuralNetworkLayerProxy,
    _MLModelStructureProgramOperationProxy,
    _MLNeuralEngineComputeDeviceProxy,
    compute_devices,
)
from ane_sweep.reference.model import ModelState

__all__ = [
    "_MLCPUComputeDeviceProxy", "_MLComputePlanProxy", "_MLGPUComputeDeviceProxy", "_MLModelAssetProxy",
    "_MLModelProxy", "_MLModelStructureNeuralNetworkLayerProxy", "_MLModelStructureProgramOperationProxy",
    "_MLNeuralEngineComputeDeviceProxy", "_State",
]  # fmt: skip

NEWEST_SPECIFICATION = 10  # iOS 26 / macOS 26, what coremltools 9.0 writes at most
numerics: str | None = None  # of models loaded from now on, as in the package reference; None: as each declares


class _State:
    """The state of one model; float16 is read as float32, as the binding does."""

    def __init__(self, state: ModelState):
        self.state = state

    def read_state(self, name: str) -> object:
        with as_runtime_error(f"reading state {name!r}"):
            return convert_outputs({name: self.state.read(name)})[name]

    def write_state(self, name: str, value: object) -> None:
        with as_runtime_error(f"writing state {name!r}"):
            self.state.write(name, value)


class _MLModelAssetProxy:
    """A compiled model: a folder, or one made for a model given as bytes."""

    def __init__(self, folder: Path):
        self.folder = folder


class _MLModelProxy:
    """A loaded model. `path` is empty if `asset` is given; the constructor raises RuntimeError alone."""

    def __init__(
        self,
        path: str,
        compute_units: str,
        function_name: str = "",
        optimization_hints: dict[str, str] | None = None,
        asset: _MLModelAssetProxy | None = None,
    ):
        with as_runtime_error(f"loading {path}"):
            if compute_units not in ALLOWED:
                raise RuntimeError(f"compute units {compute_units!r} are not known; known: {', '.join(ALLOWED)}")
            self._asset = asset
            self._loaded = LoadedModel(str(asset.folder) if asset is not None else path, function_name, numerics)

    def predict(self, data: Mapping[str, object], state: _State | None = None) -> dict[str, object]:
        with as_runtime_error("predicting"):
            return self._loaded.predict([data], None if state is None else state.state)[0]

    def batchPredict(self, batch: list[dict[str, object]]) -> list[dict[str, object]]:
        with as_runtime_error("predicting"):
            return self._loaded.predict(batch)

    def newState(self) -> _State:
        with as_runtime_error("making a state"):
            return _State(self._loaded.model.new_state())

    def get_compiled_model_path(self) -> str:
        """Return the path of the `.mlmodelc`, which is deleted with this object."""
        with as_runtime_error("writing the compiled model"):
            compiled.write_text(self._loaded.folder, self._loaded.spec)
            return str(self._loaded.folder)

    def get_load_duration_in_nano_seconds(self) -> int | None:
        return self._loaded.load_ns

    def get_last_predict_duration_in_nano_seconds(self) -> int | None:
        return self._loaded.predict_ns

    @staticmethod
    def maximum_supported_specification_version() -> int:
        return NEWEST_SPECIFICATION

    @staticmethod
    def auto_set_specification_version(spec: bytes) -> bytes:
        """Return the model unchanged; the real function may lower its version. Raises TypeError, like the real one, if it is not bytes."""
        if not isinstance(spec, bytes):
            raise TypeError(f"a serialised model (bytes) is needed, not {type(spec).__name__}")
        return spec

    @staticmethod
    def compileModel(path: str) -> str:
        """Make a `.mlmodelc` that stays until its owner deletes it."""
        with as_runtime_error(f"compiling {path}"):
            model = reference.load(Path(path), strict=False)
            folder = compiled.create(as_package(Path(path), model.spec))
            compiled.write_text(folder, model.spec)
            return str(folder)

    @staticmethod
    def create_model_asset_from_path(path: str) -> object:
        from coremltools.models.model import MLModelAsset

        with as_runtime_error(f"opening {path}"):
            compiled.read(Path(path))
            return MLModelAsset(_MLModelAssetProxy(Path(path)))

    @staticmethod
    def create_model_asset_from_memory(spec: bytes, blobs: dict[str, bytes]) -> object:
        from coremltools.models.model import MLModelAsset

        with as_runtime_error("reading a model from memory"):
            proxy = _MLModelAssetProxy(compiled.from_memory(spec, blobs))
            weakref.finalize(proxy, compiled.discard, proxy.folder)
            return MLModelAsset(proxy)

    @staticmethod
    def get_model_structure(path: str) -> object:
        with as_runtime_error(f"reading {path}"):
            return plan.read_structure(compiled.read(Path(path)).spec)

    @staticmethod
    def get_compute_plan(path: str, compute_units: str) -> object:
        with as_runtime_error(f"planning {path}"):
            return plan.make_compute_plan(Path(path), compute_units)

    @staticmethod
    def get_available_compute_devices() -> list[object]:
        return list(compute_devices().values())

    get_all_compute_devices = get_available_compute_devices
