"""Constants that remember their source weights, so that the same constants can be computed from other layers' weights.

coremltools folds, transposes, scales and casts weights with numpy. A `Traced` array holds real values and a recipe, the calls
that made them; an untracked call loses the recipe, never the values. If a number is read, compared or stored in an untracked
place, its recipe is collected while `collect_recipes` is open.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

_READING = ("item", "tolist", "__float__", "__int__", "__bool__", "__index__")
_SHAPES = (np.size, np.ndim, np.shape)
_METHODS = ("astype", "reshape", "transpose", "copy", "squeeze", "swapaxes", "flatten", "ravel", "__getitem__")
_channel_by_channel = [False]  # True: single numbers are traced, too
_observed: list[list[Any]] = []  # lists of the open `collect_recipes`, the innermost last
_LARGE = 1 << 16  # numbers from which on asking torch is worth it
_FEW = 400  # beneath this many numbers coremltools keeps what would vanish in fp16


@dataclass(frozen=True)
class Leaf:
    """A tensor of the module, by name."""

    name: str


@dataclass(frozen=True)
class Recipe:
    """The result of `call` for `arguments`, which may hold leaves and recipes; `picked` selects one of several results."""

    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...] = ()
    picked: int | None = None


class Traced(np.ndarray):
    """An array with the recipe of its numbers, or None after a change that is not tracked."""

    recipe: Leaf | Recipe | None

    def __array_finalize__(self, source: Any) -> None:
        self.recipe = None
        observe(source)

    def __setitem__(self, index: Any, value: Any) -> None:
        observe(self, value)
        super().__setitem__(index, value)
        self.recipe = None

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **named: Any) -> Any:
        if "out" in named:
            for value in named["out"]:
                if isinstance(value, Traced):
                    observe(value)
                    value.recipe = None
            named["out"] = tuple(_strip(value) for value in named["out"])
        return _call_and_trace(ufunc if method == "__call__" else getattr(ufunc, method), given, named)

    def __array_function__(self, func: Any, types: Any, given: Any, named: Any) -> Any:
        return _call_and_trace(func, given, named)

    @property
    def T(self) -> Any:
        return self.transpose()


def _method(name: str) -> Callable[..., Any]:
    original = getattr(np.ndarray, name)

    def method(self: Traced, *given: Any, **named: Any) -> Any:
        call = narrow_to_half if name == "astype" and _to_half(self, given, named) else original
        return _call_and_trace(
            call, (self,) if call is narrow_to_half else (self, *given), {} if call is narrow_to_half else named
        )

    return method


def _reading(name: str) -> Callable[..., Any]:
    original = getattr(np.ndarray, name)

    def method(self: Traced, *given: Any) -> Any:
        observe(self)
        return original(self, *given)

    return method


for _name in _METHODS:
    setattr(Traced, _name, _method(_name))
for _name in _READING:
    setattr(Traced, _name, _reading(_name))


def _to_half(value: np.ndarray, given: tuple[Any, ...], named: dict[str, Any]) -> bool:
    wanted = [*given, *named.values()]
    alone = len(wanted) == 1 and (bool(given) or "dtype" in named)
    return alone and value.dtype == np.float32 and np.dtype(wanted[0]) == np.float16


def narrow_to_half(value: np.ndarray) -> np.ndarray:
    """Cast fp32 to fp16 like coremltools' fp16 pass: in small tensors only 0 becomes 0."""
    half = _cast_to_half(value)
    if value.size >= _FEW:
        return half
    least = np.nextafter(np.float16(0), np.float16(1))
    lost = (np.abs(half) <= least) & (np.abs(value) > np.nextafter(np.float32(0), np.float32(1)))
    return np.where(lost, np.where(value > 0, least, -least), half) if lost.any() else half


def _cast_to_half(value: np.ndarray) -> np.ndarray:
    """Cast to fp16, large arrays with torch: the same bits as numpy's in a seventh of the time."""
    if value.size >= _LARGE and value.flags.writeable and min(value.strides) > 0:
        return torch.from_numpy(value.view(np.ndarray)).half().numpy()
    with np.errstate(over="ignore"):
        return value.astype(np.float16)


def make_contiguous(value: np.ndarray) -> np.ndarray:
    """Return a C-contiguous array like np.ascontiguousarray, in a quarter of its time for large transposed arrays."""
    if value.size < _LARGE or value.flags.c_contiguous or not value.flags.writeable or min(value.strides) < 0:
        return np.ascontiguousarray(value)
    return torch.from_numpy(value.view(np.ndarray)).contiguous().numpy()


def traced(value: np.ndarray, recipe: Leaf | Recipe) -> Traced:
    found = _strip(value).view(Traced)
    found.recipe = recipe
    return found


def recipe_of(value: Any) -> Leaf | Recipe | None:
    return getattr(value, "recipe", None)


@contextmanager
def collect_recipes() -> Iterator[list[Leaf | Recipe]]:
    """Collect the recipe of each value whose numbers are read, while this is open: they may decide anything."""
    _observed.append([])
    try:
        yield _observed[-1]
    finally:
        _observed.pop()


def observe(*values: Any) -> None:
    """Add to the open collection the recipes of arrays whose numbers are read, or stored in an untracked place."""
    for value in values:
        if isinstance(value, (list, tuple)):
            observe(*value)
        elif _observed and (recipe := recipe_of(value)) is not None:
            _observed[-1].append(recipe)


@contextmanager
def patch_numpy() -> Iterator[None]:
    """Make np.array, np.asarray and np.ascontiguousarray keep the recipes of Traced arrays, while this is open."""
    originals = {name: getattr(np, name) for name in ("array", "asarray", "ascontiguousarray")}

    def keeping(original: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any, **named: Any) -> Any:
            parts = given[0] if given and type(given[0]) is list else given[:1]
            known = any(isinstance(one, Traced) for one in parts)
            return _call_and_trace(original, given, named) if known else original(*given, **named)

        return made

    try:
        for name, original in originals.items():
            setattr(np, name, keeping(original))
        yield
    finally:
        for name, original in originals.items():
            setattr(np, name, original)


@contextmanager
def remember_single_numbers() -> Iterator[None]:
    """Return single numbers as Traced arrays without a dimension, while this is open, for folds a channel at a time."""
    before, _channel_by_channel[0] = _channel_by_channel[0], True
    try:
        yield
    finally:
        _channel_by_channel[0] = before


def _strip(value: Any) -> Any:
    if isinstance(value, Traced):
        return value.view(np.ndarray)
    return type(value)(_strip(one) for one in value) if type(value) in (list, tuple) else value


def _has_recipes(value: Any) -> bool:
    if isinstance(value, Traced):
        return value.recipe is not None
    return all(_has_recipes(one) for one in value) if type(value) in (list, tuple) else True


def _replace_by_recipes(value: Any) -> Any:
    if isinstance(value, Traced):
        return value.recipe
    return tuple(_replace_by_recipes(one) for one in value) if type(value) in (list, tuple) else value


def _call_and_trace(call: Callable[..., Any], given: Any, named: dict[str, Any]) -> Any:
    result = call(*_strip(tuple(given)), **{key: _strip(value) for key, value in named.items()})
    if call in _SHAPES or _compares_with_itself(call, given):
        return result
    if not _has_recipes(tuple(given)) or not _has_recipes(tuple(named.values())) or "out" in named:
        observe(given, tuple(named.values()))
        return result
    if _channel_by_channel[0] and isinstance(result, np.generic):
        result = np.asarray(result)
    kept, rest = (
        _replace_by_recipes(tuple(given)),
        tuple((key, _replace_by_recipes(value)) for key, value in named.items()),
    )
    if isinstance(result, np.ndarray):
        return traced(result, Recipe(call, kept, rest))
    if isinstance(result, (list, tuple)) and all(isinstance(one, np.ndarray) for one in result):
        return type(result)(traced(one, Recipe(call, kept, rest, index)) for index, one in enumerate(result))
    if _observed:
        _observed[-1].append(Recipe(call, kept, rest))
    return result


def _compares_with_itself(call: Any, given: Any) -> bool:
    """Return True if both sides share a recipe: coremltools infers a constant again and compares it with itself."""
    return call is np.not_equal and len(given) == 2 and recipe_of(given[0]) is recipe_of(given[1]) is not None


def list_leaves(recipe: Any) -> list[str]:
    """Return the names of the module's tensors in a recipe, each once, in order of appearance."""
    return list(_leaves(recipe, {}))


def _leaves(recipe: Any, found: dict[str, int]) -> dict[str, int]:
    if isinstance(recipe, Leaf):
        found.setdefault(recipe.name, len(found))
    elif isinstance(recipe, Recipe):
        _leaves((recipe.arguments, recipe.named), found)
    elif isinstance(recipe, tuple):
        for one in recipe:
            _leaves(one, found)
    return found


def shape_of(recipe: Any) -> Any:
    """Return a recipe without the names of its leaves; two recipes of the same calls give equal values."""
    return _shape(recipe, _leaves(recipe, {}))


def _shape(recipe: Any, places: dict[str, int]) -> Any:
    if isinstance(recipe, Leaf):
        return "leaf", places[recipe.name]
    if isinstance(recipe, Recipe):
        what = getattr(recipe.call, "__qualname__", repr(recipe.call))
        return what, _shape(recipe.arguments, places), _shape(recipe.named, places), recipe.picked
    if isinstance(recipe, tuple):
        return tuple(_shape(one, places) for one in recipe)
    if isinstance(recipe, np.ndarray):
        return str(recipe.dtype), recipe.shape, hashlib.sha256(recipe.tobytes()).hexdigest()
    return repr(recipe)


def replay(recipe: Any, tensors: Callable[[str], np.ndarray], names: list[str]) -> Any:
    """Return the value of a recipe with its leaves replaced by the tensors `names`, in the order of `list_leaves`."""
    places = _leaves(recipe, {})
    held: dict[str, np.ndarray] = {}

    def value(part: Any) -> Any:
        if isinstance(part, Leaf):
            name = names[places[part.name]]
            return held[name] if name in held else held.setdefault(name, tensors(name))
        if isinstance(part, Recipe):
            result = part.call(*value(part.arguments), **dict(value(part.named)))
            return result if part.picked is None else result[part.picked]
        return tuple(value(one) for one in part) if isinstance(part, tuple) else part

    return value(recipe)
