"""Constants that remember which weights they were made of, so that the same can be made of other layers' weights.

coremltools folds, transposes, scales and casts weights with numpy. A `Traced` array holds real values, and beside them the
calls that made it; a call that is not seen here loses the memory, never the values.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

_METHODS = ("astype", "reshape", "transpose", "copy", "squeeze", "swapaxes", "flatten", "ravel", "__getitem__")
_LARGE = 1 << 16  # numbers from which on asking torch is worth it
_FEW = 400  # beneath this many numbers coremltools keeps what would vanish in fp16


@dataclass(frozen=True)
class Leaf:
    """A tensor of the module, by name."""

    name: str


@dataclass(frozen=True)
class Recipe:
    """What `call` gives for `arguments` (leaves and recipes among them); of several results the one `picked`."""

    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...] = ()
    picked: int | None = None


class Traced(np.ndarray):
    recipe: Leaf | Recipe | None

    def __array_finalize__(self, source: Any) -> None:
        self.recipe = None

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, value)
        self.recipe = None

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **named: Any) -> Any:
        if "out" in named:
            for value in named["out"]:
                if isinstance(value, Traced):
                    value.recipe = None
            named["out"] = tuple(_plain(value) for value in named["out"])
        return _called(ufunc if method == "__call__" else getattr(ufunc, method), given, named)

    def __array_function__(self, func: Any, types: Any, given: Any, named: Any) -> Any:
        return _called(func, given, named)

    @property
    def T(self) -> Any:
        return self.transpose()


def _method(name: str) -> Callable[..., Any]:
    original = getattr(np.ndarray, name)

    def method(self: Traced, *given: Any, **named: Any) -> Any:
        call = narrowed if name == "astype" and _to_half(self, given, named) else original
        return _called(call, (self,) if call is narrowed else (self, *given), {} if call is narrowed else named)

    return method


for _name in _METHODS:
    setattr(Traced, _name, _method(_name))


def _to_half(value: np.ndarray, given: tuple[Any, ...], named: dict[str, Any]) -> bool:
    wanted = [*given, *named.values()]
    alone = len(wanted) == 1 and (bool(given) or "dtype" in named)
    return alone and value.dtype == np.float32 and np.dtype(wanted[0]) == np.float16


def narrowed(value: np.ndarray) -> np.ndarray:
    """fp32 -> fp16 as coremltools' fp16 pass has it: in small tensors no number but 0 becomes 0."""
    half = _half(value)
    if value.size >= _FEW:
        return half
    least = np.nextafter(np.float16(0), np.float16(1))
    lost = (np.abs(half) <= least) & (np.abs(value) > np.nextafter(np.float32(0), np.float32(1)))
    return np.where(lost, np.where(value > 0, least, -least), half) if lost.any() else half


def _half(value: np.ndarray) -> np.ndarray:
    """numpy casts one number after the other; torch gives the same bits in a seventh of the time."""
    if value.size >= _LARGE and value.flags.writeable and min(value.strides) > 0:
        return torch.from_numpy(value.view(np.ndarray)).half().numpy()
    with np.errstate(over="ignore"):
        return value.astype(np.float16)


def contiguous(value: np.ndarray) -> np.ndarray:
    """np.ascontiguousarray, of large transposed arrays in a quarter of its time."""
    if value.size < _LARGE or value.flags.c_contiguous or not value.flags.writeable or min(value.strides) < 0:
        return np.ascontiguousarray(value)
    return torch.from_numpy(value.view(np.ndarray)).contiguous().numpy()


def traced(value: np.ndarray, recipe: Leaf | Recipe) -> Traced:
    found = value.view(Traced)
    found.recipe = recipe
    return found


def recipe_of(value: Any) -> Leaf | Recipe | None:
    return getattr(value, "recipe", None)


@contextmanager
def through_numpy() -> Iterator[None]:
    """While this is open, functions that make a plain array of any keep what a Traced one remembers."""
    originals = {name: getattr(np, name) for name in ("array", "asarray", "ascontiguousarray")}

    def keeping(original: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any, **named: Any) -> Any:
            known = bool(given) and isinstance(given[0], Traced)
            return _called(original, given, named) if known else original(*given, **named)

        return made

    try:
        for name, original in originals.items():
            setattr(np, name, keeping(original))
        yield
    finally:
        for name, original in originals.items():
            setattr(np, name, original)


def _plain(value: Any) -> Any:
    if isinstance(value, Traced):
        return value.view(np.ndarray)
    return type(value)(_plain(one) for one in value) if type(value) in (list, tuple) else value


def _known(value: Any) -> bool:
    if isinstance(value, Traced):
        return value.recipe is not None
    return all(_known(one) for one in value) if type(value) in (list, tuple) else True


def _kept(value: Any) -> Any:
    if isinstance(value, Traced):
        return value.recipe
    return tuple(_kept(one) for one in value) if type(value) in (list, tuple) else value


def _called(call: Callable[..., Any], given: Any, named: dict[str, Any]) -> Any:
    result = call(*_plain(tuple(given)), **{key: _plain(value) for key, value in named.items()})
    if not _known(tuple(given)) or not _known(tuple(named.values())) or "out" in named:
        return result
    kept, rest = _kept(tuple(given)), tuple((key, _kept(value)) for key, value in named.items())
    if isinstance(result, np.ndarray):
        return traced(result, Recipe(call, kept, rest))
    if isinstance(result, (list, tuple)) and all(isinstance(one, np.ndarray) for one in result):
        return type(result)(traced(one, Recipe(call, kept, rest, index)) for index, one in enumerate(result))
    return result


def leaves(recipe: Any) -> Iterator[str]:
    """Names of the module's tensors in a recipe, in its order."""
    if isinstance(recipe, Leaf):
        yield recipe.name
    elif isinstance(recipe, Recipe):
        yield from leaves((recipe.arguments, recipe.named))
    elif isinstance(recipe, tuple):
        for one in recipe:
            yield from leaves(one)


def shape_of(recipe: Any) -> Any:
    """A recipe without the names of its leaves: equal where the same is done."""
    if isinstance(recipe, Leaf):
        return "leaf"
    if isinstance(recipe, Recipe):
        return (
            getattr(recipe.call, "__qualname__", repr(recipe.call)),
            shape_of(recipe.arguments),
            shape_of(recipe.named),
            recipe.picked,
        )
    if isinstance(recipe, tuple):
        return tuple(shape_of(one) for one in recipe)
    if isinstance(recipe, np.ndarray):
        return str(recipe.dtype), recipe.shape, hashlib.sha256(recipe.tobytes()).hexdigest()
    return repr(recipe)


def replay(recipe: Any, tensors: Callable[[str], np.ndarray], names: Iterator[str]) -> Any:
    """The value of a recipe with other leaves: those that `names` gives, in `leaves`' order."""
    if isinstance(recipe, Leaf):
        return tensors(next(names))
    if isinstance(recipe, Recipe):
        given, named = replay(recipe.arguments, tensors, names), replay(recipe.named, tensors, names)
        result = recipe.call(*given, **dict(named))
        return result if recipe.picked is None else result[recipe.picked]
    if isinstance(recipe, tuple):
        return tuple(replay(one, tensors, names) for one in recipe)
    return recipe
