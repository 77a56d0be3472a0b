"""A torch module of the user (model=module), built by the user's code, called by name or in order, and returning a
tuple.

arch   path, kwargs, inputs (bridge/shapes.py; null: the code returns them beside the module), files, packages, samples
"""

import hashlib
import inspect
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from ane_sweep.bridge import shapes
from ane_sweep.errors import ConfigError, StageError
from ane_sweep.worker.models import _mapped, _own
from ane_sweep.worker.models._ports import Port, Ports
from ane_sweep.worker.models._types import OwnArch, WeightsWish

Around = Callable[[], AbstractContextManager[object]]
Built = tuple[nn.Module, object, bool]  # the user's module, its inputs or None, True if random numbers were drawn
_DTYPES = {"float32": torch.float32, "int32": torch.int32, "int64": torch.int64, "bool": torch.bool}


class OwnModule(nn.Module):
    """The user's module with graph inputs in order, in the dtypes of its ports; it returns a tuple of tensors.

    taken    the inputs as the user described them
    example  the first inputs that it was run on; `ports` are those inputs and their outputs
    draws    True if the user's code drew random numbers for its weights
    real     the dtype that fp32 inputs are given to the user's module in
    """

    ports: Ports
    example: tuple[torch.Tensor, ...]
    draws = False
    real = torch.float32

    def __init__(self, inner: nn.Module, taken: tuple[shapes.Input, ...], path: str):
        super().__init__()
        self.inner, self.taken, self.path = inner, taken, path
        self.by_name = _takes_names(inner, [one.name for one in taken], path)

    def half(self) -> "OwnModule":
        """Compute in fp16, with inputs and outputs as before."""
        self.real = torch.float16
        return super().half()

    def call(self, *values: torch.Tensor) -> dict[str, torch.Tensor]:
        """Run the module and return its outputs by name, in fp32 and int32."""
        inputs = [value.to(_DTYPES[one.dtype]) for one, value in zip(self.taken, values, strict=True)]
        inputs = [value.to(self.real) if value.dtype == torch.float32 else value for value in inputs]
        with _own.user_code(f"model.path={self.path}: its forward"), _without_fast_path():
            by_name = dict(zip([one.name for one in self.taken], inputs))
            made = self.inner(**by_name) if self.by_name else self.inner(*inputs)
        return {name: _narrow_dtype(value) for name, value in name_outputs(made, self.path).items()}

    def compute_reference(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs that every program of this module is compared with."""
        with _mapped.releasing_pages(self.inner):
            return self.forward(*values)

    def weights_digest(self) -> str:
        """Return a digest of parameters and buffers, which shows if two processes built the same module."""
        sha256 = hashlib.sha256()
        for name, value in sorted(self.inner.state_dict().items()):
            sha256.update(name.encode() + b"\0")
            sha256.update(value.contiguous().view(-1).view(torch.uint8).numpy().data)
            _mapped.release_pages(value.data_ptr())
        return sha256.hexdigest()

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.call(*values).values())


@contextmanager
def _without_fast_path() -> Iterator[None]:
    """Make nn.MultiheadAttention and nn.TransformerEncoder compute with ops that convert.

    In eval mode torch uses one op for a whole layer, which coremltools lacks, and returns zeros for hidden tokens.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def build_given(params: dict[str, Any], inputs: dict[str, Path]) -> OwnModule:
    """Build the user's module and run it once. Raises StageError for any failure of the user's code, WeightsError."""
    arch, seed = params["model"]["arch"], int(params["weights"].get("seed", 0))
    before = set(sys.modules)
    inner, example, draws = _build(arch, inputs, seed)
    inner = prepare_for_scoring(inner, params["weights"], inputs.get("weights"), arch["path"])
    module = OwnModule(inner, find_inputs(arch["path"], arch["inputs"], inner, example), arch["path"]).eval()
    run_once(module, example if arch["inputs"] is None else None)
    if params["weights"]["kind"] == "random":
        _own.set_norm_statistics(inner, lambda: module(*module.example))
    _own.check_imports(arch, before)
    module.draws = draws and params["weights"]["kind"] == "own"
    return module


@contextmanager
def _ignore_seeding() -> Iterator[None]:
    """Make calls that seed torch's, numpy's or Python's random numbers have no effect inside this context."""
    with (
        patch.object(torch, "manual_seed", lambda seed: torch.default_generator),
        patch.object(np.random, "seed", lambda *seed: None),
        patch.object(random, "seed", lambda *seed: None),
    ):
        yield


def _build(arch: OwnArch, inputs: dict[str, Path], seed: int, around: Around = nullcontext, held: int = 0) -> Built:
    """Run the user's code, inside `around` if given, and return (module, its inputs or None, True if it drew random numbers).

    Code that fails or forks while tensors of it lie in files is run again, with all of them in memory. Raises StageError.

    held   bytes of an earlier module that are in memory
    """
    files = _mapped.BuildInFiles(held)
    try:
        made = _build_once(arch, inputs, seed, around, files)
        if not files.was_forked:
            return made
    except StageError:  # a tensor in a file cannot be resized, for one
        if not files.last:
            raise
    return _build_once(arch, inputs, seed, around, nullcontext())


def _build_once(
    arch: OwnArch, inputs: dict[str, Path], seed: int, around: Around, files: AbstractContextManager[object]
) -> Built:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    state = _random_state()
    with around(), files:
        code = _own.load_object(arch, inputs["code"], inputs.get("file"))
        made: object = code
        if not isinstance(code, nn.Module):
            with _own.user_code(f"model.path={arch['path']}: calling it"):
                made = code(**arch["kwargs"])
    inner, example = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(inner, nn.Module):
        raise StageError(
            f"model.path={arch['path']} gave a {type(inner).__name__}; expected a torch.nn.Module, or one and its inputs"
        )
    return inner, example, _random_state() != state


def _random_state() -> tuple[bytes, str, str]:
    return torch.get_rng_state().numpy().tobytes(), repr(np.random.get_state(legacy=False)), repr(random.getstate())


def find_drawn_weights(params: dict[str, Any], inputs: dict[str, Path], module: OwnModule) -> list[str]:
    """Return the names of the parameters that depend on the seed, rather than on a file that the user's code reads.

    The module is built once more, with another seed, if building it has drawn any random number. Seeds set by the
    user's code are then ignored.
    """
    if not module.draws:
        return []
    first = {name: _digest(value) for name, value in module.inner.named_parameters()}
    seed = int(params["weights"].get("seed", 0)) + 1
    held = min(_mapped.LARGE, sum(value.nbytes for value in module.inner.parameters()))
    inner, _, _ = _build(params["model"]["arch"], inputs, seed, _ignore_seeding, held)
    return [name for name, value in inner.named_parameters() if _digest(value.detach().float()) != first.get(name)]


def _digest(value: torch.Tensor) -> str:
    digest = hashlib.sha256(value.detach().contiguous().numpy().data).hexdigest()
    _mapped.release_pages(value.data_ptr())
    return digest


VARIANTS = {"original": build_given}


def prepare_for_scoring(inner: nn.Module, wish: WeightsWish, file: Path | None, path: str) -> nn.Module:
    """Return the module in fp32 on the CPU, in eval mode, with the requested weights."""
    if placed := {str(value.device) for value in [*inner.parameters(), *inner.buffers()]} - {"cpu"}:
        raise StageError(
            f"model.path={path}: its parameters are on {', '.join(sorted(placed))}; it is traced on the CPU: build it there"
        )
    has_no_eval = "eval" in vars(inner)  # torch.export puts one there that raises
    if isinstance(inner, torch.jit.ScriptModule) or has_no_eval:
        raise StageError(
            f"model.path={path} gave a program of TorchScript or torch.export: save it (torch.jit.save, torch.export.save), and "
            "sweep the file with model=exported"
        )
    with _own.user_code(f"model.path={path}: eval() and float()"), _mapped.BuildInFiles():
        inner = inner.eval().float().requires_grad_(False)
    if wish["kind"] == "random":
        _own.redraw(inner, int(wish["seed"]))
    if file is not None:
        _own.load_weights(inner, file, path)
    return inner


def find_inputs(
    path: str, inputs: dict[str, object] | None, inner: nn.Module, example: object
) -> tuple[shapes.Input, ...]:
    if inputs is not None:
        return shapes.read(inputs)
    if example is None:
        raise StageError(
            f"model.path={path} gave a module and no inputs for it; say them: model.inputs={{NAME: [1,3,224,224]}}"
            f", where forward takes {_describe_forward(inner)}"
        )
    try:
        return shapes.read({name: _describe_input(value) for name, value in name_inputs(inner, example, path).items()})
    except ConfigError as error:
        raise StageError(f"model.path={path}: of the inputs that it gave, {error}") from None


def name_inputs(inner: nn.Module, example: object, path: str) -> dict[str, torch.Tensor]:
    """Return the inputs that the user's code gave, by name. Raises StageError."""
    if isinstance(example, torch.Tensor):
        example = (example,)
    if isinstance(example, (tuple, list)):
        parameters = [name for name, one in _parameters(inner).items() if one.kind is not one.VAR_POSITIONAL]
        names = [*parameters[: len(example)], *(f"input_{n}" for n in range(len(parameters), len(example)))]
        example = dict(zip(names, example))
    if not isinstance(example, Mapping) or not all(isinstance(one, torch.Tensor) for one in example.values()):
        raise StageError(
            f"model.path={path} gave a {type(example).__name__} beside the module; expected its inputs: tensors, by name or in order"
        )
    return dict(example)


def _describe_input(value: torch.Tensor) -> dict[str, object]:
    spec: dict[str, object] = {"shape": list(value.shape), "dtype": "float32"}
    if value.dtype == torch.bool:
        spec["dtype"] = "bool"
    elif not value.dtype.is_floating_point:
        spec |= {"dtype": "int64", "range": [int(value.min()), int(value.max()) + 1]}
    return spec


def _parameters(inner: nn.Module) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(inner.forward).parameters


def _describe_forward(inner: nn.Module) -> str:
    return f"({', '.join(map(str, _parameters(inner).values()))})"


def _takes_names(inner: nn.Module, names: list[str], path: str) -> bool:
    """Return True if forward knows all names, and False if it knows none. Raises StageError if it knows some."""
    known = _parameters(inner)
    if all(name in known for name in names):
        return True
    kinds = {one.kind for one in known.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds and any(name in known for name in names):
        return True
    if any(name in known for name in names) or (
        len(names) > len(known) and inspect.Parameter.VAR_POSITIONAL not in kinds
    ):
        raise StageError(
            f"model.path={path}: its inputs are {', '.join(names)}, and forward takes {_describe_forward(inner)}"
        )
    return False


def name_outputs(made: object, path: str, name: str = "") -> dict[str, torch.Tensor]:
    """Return {name: tensor} from a tensor, or a sequence, mapping or dataclass of tensors; None entries are left out."""
    if made is None:
        return {}
    if isinstance(made, torch.Tensor):
        return {name or "output": made}
    if isinstance(made, Mapping):
        parts = {str(key): value for key, value in made.items()}
    elif isinstance(made, tuple) and hasattr(made, "_fields"):
        parts = dict(zip(made._fields, made))
    elif is_dataclass(made):
        parts = {field.name: getattr(made, field.name) for field in fields(made)}
    elif isinstance(made, (tuple, list)):
        parts = {str(number) if name else f"output_{number}": value for number, value in enumerate(made)}
    else:
        raise StageError(
            f"model.path={path}: its forward gave a {type(made).__name__} ({name or 'as its output'}); expected tensors, "
            "or tuples, lists and dicts of them"
        )
    tensors: dict[str, torch.Tensor] = {}
    for key, value in parts.items():
        tensors |= name_outputs(value, path, re.sub(r"\W", "_", f"{name}_{key}" if name else key))
    return tensors


def _narrow_dtype(value: torch.Tensor) -> torch.Tensor:
    """Convert to fp32 or int32, the dtypes of a Core ML program's inputs and outputs."""
    return value.float() if value.dtype.is_floating_point else value.to(torch.int32)


def run_once(module: OwnModule, example: object) -> None:
    """Run the module on its first inputs and set its ports. Raises StageError if it returns no tensor."""
    point = shapes.points(module.taken)[0]
    arrays = draw_inputs(module.taken, point, seed=0)
    if example is not None:
        tensors = name_inputs(module.inner, example, module.path).values()
        arrays = [_narrow_dtype(one.detach().cpu()).contiguous().numpy() for one in tensors]
    module.example = tuple(map(torch.from_numpy, arrays))
    ins = tuple(
        Port(one.name, shape, "float32" if one.dtype == "float32" else "int32", one.shapes if one.flexible else ())
        for one, shape in zip(module.taken, point)
    )
    with torch.inference_mode(), _mapped.releasing_pages(module.inner):
        made = module.call(*module.example)
    if not made:
        raise StageError(f"model.path={module.path}: its forward gave no tensor")
    taken = {one.name for one in module.taken}
    outs = tuple(
        Port(f"{name}_out" if name in taken else name, tuple(value.shape), str(value.dtype).removeprefix("torch."))
        for name, value in made.items()
    )
    module.ports = Ports(ins, outs)


def draw_inputs(taken: tuple[shapes.Input, ...], point: tuple[tuple[int, ...], ...], seed: int) -> list[np.ndarray]:
    """Draw seeded inputs of these shapes, in the dtypes of the program."""
    source = np.random.default_rng(seed)
    return [_draw_input(one, shape, source) for one, shape in zip(taken, point)]


def _draw_input(one: shapes.Input, shape: tuple[int, ...], source: np.random.Generator) -> np.ndarray:
    if one.dtype == "float32":
        if one.values is None:
            return source.standard_normal(shape, np.float32)
        return source.uniform(*one.values, shape).astype(np.float32)
    low, high = one.values or (0, 2)
    return source.integers(int(low), int(high), shape, dtype=np.int32)
