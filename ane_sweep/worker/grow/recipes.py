"""Constants that remember which weights they were made of, so that the same can be made of other layers' weights.

coremltools folds, transposes, scales and casts weights with numpy. A `Traced` array holds real values, and beside them the
calls that made it; a call that is not seen here loses the memory, never the values. A number that leaves the memory, as it is
read, compared or put where it is not followed, is collected with its recipe while `observing` is open.
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
_channel_by_channel = [False]  # whether single numbers are remembered, too
_observed: list[list[Any]] = []  # where recipes are collected whose numbers leave
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
    found = _plain(value).view(Traced)
    found.recipe = recipe
    return found


def recipe_of(value: Any) -> Leaf | Recipe | None:
    return getattr(value, "recipe", None)


@contextmanager
def observing() -> Iterator[list[Leaf | Recipe]]:
    """Collect, while this is open, the recipe of each value that leaves the memory: its numbers may decide anything."""
    _observed.append([])
    try:
        yield _observed[-1]
    finally:
        _observed.pop()


def observe(*values: Any) -> None:
    """Collect the recipes of arrays whose numbers are read, or go where they are not followed."""
    for value in values:
        if isinstance(value, (list, tuple)):
            observe(*value)
        elif _observed and (recipe := recipe_of(value)) is not None:
            _observed[-1].append(recipe)


@contextmanager
def through_numpy() -> Iterator[None]:
    """While this is open, functions that make a plain array of any keep what a Traced one remembers."""
    originals = {name: getattr(np, name) for name in ("array", "asarray", "ascontiguousarray")}

    def keeping(original: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any, **named: Any) -> Any:
            parts = given[0] if given and type(given[0]) is list else given[:1]
            known = any(isinstance(one, Traced) for one in parts)
            return _called(original, given, named) if known else original(*given, **named)

        return made

    try:
        for name, original in originals.items():
            setattr(np, name, keeping(original))
        yield
    finally:
        for name, original in originals.items():
            setattr(np, name, original)


@contextmanager
def channel_by_channel() -> Iterator[None]:
    """While this is open, single numbers are arrays without a dimension, which remember: what is folded a channel at a time."""
    before, _channel_by_channel[0] = _channel_by_channel[0], True
    try:
        yield
    finally:
        _channel_by_channel[0] = before


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
    if call in _SHAPES or _compares_with_itself(call, given):
        return result
    if not _known(tuple(given)) or not _known(tuple(named.values())) or "out" in named:
        observe(given, tuple(named.values()))
        return result
    if _channel_by_channel[0] and isinstance(result, np.generic):
        result = np.asarray(result)
    kept, rest = _kept(tuple(given)), tuple((key, _kept(value)) for key, value in named.items())
    if isinstance(result, np.ndarray):
        return traced(result, Recipe(call, kept, rest))
    if isinstance(result, (list, tuple)) and all(isinstance(one, np.ndarray) for one in result):
        return type(result)(traced(one, Recipe(call, kept, rest, index)) for index, one in enumerate(result))
    if _observed:
        _observed[-1].append(Recipe(call, kept, rest))
    return result


def _compares_with_itself(call: Any, given: Any) -> bool:
    """Whether both sides were made alike, as where coremltools infers a constant again and compares it with itself."""
    return call is np.not_equal and len(given) == 2 and recipe_of(given[0]) is recipe_of(given[1]) is not None


def leaves(recipe: Any) -> list[str]:
    """Names of the module's tensors in a recipe, each once, in its order."""
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
    """A recipe without the names of its leaves: equal where the same is done."""
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
    """The value of a recipe with other leaves: those of these names, in `leaves`' order."""
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
