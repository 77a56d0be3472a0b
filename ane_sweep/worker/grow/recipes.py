"""Constants that remember their source weights, so that the same constants can be computed from other layers' weights.

coremltools folds, transposes, scales and casts weights with numpy. A `Traced` array holds real values and a recipe, the calls
that made them; an untracked call loses the recipe, never the values. If a number is read, compared or stored in an untracked
place, its recipe is collected while `collect_recipes` is open.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ane_sweep.worker.models._mapped import release_pages
from ane_sweep.worker.patches import replace_attributes

_READING = ("item", "tolist", "__float__", "__int__", "__bool__", "__index__")
_SHAPES = (np.size, np.ndim, np.shape)
_METHODS = ("astype", "reshape", "transpose", "copy", "squeeze", "swapaxes", "flatten", "ravel", "__getitem__")
_channel_by_channel = [False]  # True: single numbers are traced, too
_LARGE = 1 << 16  # numbers from which on asking torch is worth it
_FEW = 400  # beneath this many numbers coremltools keeps what would vanish in fp16


@dataclass(frozen=True)
class Leaf:
    """A tensor of the module, as part of a recipe."""

    name: str


@dataclass(frozen=True)
class Recipe:
    """The result of `call` for `arguments`, which may hold leaves and recipes; `picked` selects one of several results."""

    call: Callable[..., Any]
    arguments: tuple[object, ...]
    named: tuple[tuple[str, object], ...] = ()
    picked: int | None = None


Origin = Leaf | Recipe
_observed: list[list[Origin]] = []  # lists of the open `collect_recipes`, the innermost last


class Traced(np.ndarray):
    """An array with the recipe of its numbers; an untracked change sets the recipe to None."""

    recipe: Origin | None

    def __array_finalize__(self, source: object) -> None:
        self.recipe = None
        observe(source)

    def __setitem__(self, index: Any, value: Any) -> None:
        observe(self, value)
        super().__setitem__(index, value)
        self.recipe = None

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *given: object, out: tuple[object, ...] = (), **named: object
    ) -> object:
        for value in out:
            if isinstance(value, Traced):
                observe(value)
                value.recipe = None
        if out:
            named["out"] = tuple(_strip(value) for value in out)
        return _call_and_trace(ufunc if method == "__call__" else getattr(ufunc, method), given, named)

    def __array_function__(
        self, func: Callable[..., object], types: Iterable[type], given: Iterable[object], named: Mapping[str, object]
    ) -> object:
        return _call_and_trace(func, tuple(given), named)

    @property
    def T(self) -> "Traced":
        return self.transpose()


def _method(name: str) -> Callable[..., object]:
    original = getattr(np.ndarray, name)

    def method(self: Traced, *given: object, **named: object) -> object:
        if name == "astype" and _to_half(self, given, named):
            return _call_and_trace(narrow_to_half, (self,), {})
        return _call_and_trace(original, (self, *given), named)

    return method


def _reading(name: str) -> Callable[..., object]:
    original: Callable[..., object] = getattr(np.ndarray, name)

    def method(self: Traced, *given: object) -> object:
        observe(self)
        return original(self, *given)

    return method


for _name in _METHODS:
    setattr(Traced, _name, _method(_name))
for _name in _READING:
    setattr(Traced, _name, _reading(_name))


def _to_half(value: np.ndarray, given: tuple[object, ...], named: Mapping[str, object]) -> bool:
    if len(given) + len(named) != 1 or not (given or "dtype" in named) or value.dtype != np.float32:
        return False
    wanted: Any = given[0] if given else named["dtype"]
    return bool(np.dtype(wanted) == np.float16)


def narrow_to_half(value: np.ndarray) -> np.ndarray:
    """Cast fp32 to fp16 like coremltools' fp16 pass: in small tensors only an exact 0 becomes 0."""
    half = _cast_to_half(value)
    if value.size >= _FEW:
        return half
    least = np.nextafter(np.float16(0), np.float16(1))
    lost = (np.abs(half) <= least) & (np.abs(value) > np.nextafter(np.float32(0), np.float32(1)))
    return np.where(lost, np.where(value > 0, least, -least), half) if lost.any() else half


def _cast_to_half(value: np.ndarray) -> np.ndarray:
    """Cast to fp16, large arrays with torch: the same bits as numpy's in a seventh of the time."""
    if value.size >= _LARGE and value.flags.writeable and min(value.strides) > 0:
        half: np.ndarray = torch.from_numpy(value.view(np.ndarray)).half().numpy()
        release_pages(value.ctypes.data)  # the fp32 numbers are hardly read again
        return half
    with np.errstate(over="ignore"):
        return value.astype(np.float16)


def make_contiguous(value: np.ndarray) -> np.ndarray:
    """Return a C-contiguous array like np.ascontiguousarray, in a quarter of its time for large transposed arrays."""
    if value.size < _LARGE or value.flags.c_contiguous or not value.flags.writeable or min(value.strides) < 0:
        return np.ascontiguousarray(value)
    return torch.from_numpy(value.view(np.ndarray)).contiguous().numpy()


def traced(value: np.ndarray, recipe: Origin) -> Traced:
    found = value.view(np.ndarray).view(Traced)
    found.recipe = recipe
    return found


def recipe_of(value: object) -> Origin | None:
    return getattr(value, "recipe", None)


@contextmanager
def collect_recipes() -> Iterator[list[Origin]]:
    """Collect the recipe of each value whose numbers are read inside this context, as they may decide anything."""
    _observed.append([])
    try:
        yield _observed[-1]
    finally:
        _observed.pop()


def observe(*values: object) -> None:
    """Add to the open collection the recipes of arrays whose numbers are read, or stored in an untracked place."""
    for value in values:
        if isinstance(value, (list, tuple)):
            observe(*value)
        elif _observed and (recipe := recipe_of(value)) is not None:
            _observed[-1].append(recipe)


def patch_numpy() -> AbstractContextManager[None]:
    """Make np.array, np.asarray and np.ascontiguousarray keep the recipes of Traced arrays, inside this context."""

    def make(original: Callable[..., object], *given: object, **named: object) -> object:
        parts = given[0] if given and type(given[0]) is list else given[:1]
        known = any(isinstance(one, Traced) for one in parts)
        return _call_and_trace(original, given, named) if known else original(*given, **named)

    names = ("array", "asarray", "ascontiguousarray")
    return replace_attributes((np, name, partial(make, getattr(np, name))) for name in names)


@contextmanager
def remember_single_numbers() -> Iterator[None]:
    """Return single numbers as Traced arrays of rank 0 inside this context, for folds that go channel by channel."""
    before, _channel_by_channel[0] = _channel_by_channel[0], True
    try:
        yield
    finally:
        _channel_by_channel[0] = before


def _strip(value: object) -> object:
    if isinstance(value, Traced):
        return value.view(np.ndarray)
    if type(value) is list or type(value) is tuple:
        return type(value)(map(_strip, value))
    return value


def _has_recipes(value: object) -> bool:
    if isinstance(value, Traced):
        return value.recipe is not None
    return all(map(_has_recipes, value)) if type(value) is list or type(value) is tuple else True


def _replace_by_recipes(value: object) -> object:
    if isinstance(value, Traced):
        return value.recipe
    return tuple(map(_replace_by_recipes, value)) if type(value) is list or type(value) is tuple else value


def _call_and_trace(call: Callable[..., object], given: tuple[object, ...], named: Mapping[str, object]) -> object:
    result = call(*map(_strip, given), **{key: _strip(value) for key, value in named.items()})
    is_paired = call is np.not_equal and len(given) == 2
    if is_paired and recipe_of(given[0]) is recipe_of(given[1]) is not None:
        return result  # coremltools computes a constant again and compares it with itself
    if call in _SHAPES:
        return result
    every = (*given, *named.values())
    if "out" in named or not _has_recipes(every):
        observe(*every)
        return result
    if _channel_by_channel[0] and isinstance(result, np.generic):
        result = np.asarray(result)
    recipe = Recipe(
        call,
        tuple(map(_replace_by_recipes, given)),
        tuple((key, _replace_by_recipes(one)) for key, one in named.items()),
    )
    if isinstance(result, np.ndarray):
        return traced(result, recipe)
    if isinstance(result, (list, tuple)) and all(isinstance(one, np.ndarray) for one in result):
        return type(result)(traced(one, replace(recipe, picked=index)) for index, one in enumerate(result))
    if _observed:
        _observed[-1].append(recipe)
    return result


def list_leaves(recipe: object) -> list[str]:
    """Return the names of the module's tensors in a recipe, each once, in order of appearance."""
    found: dict[str, None] = {}

    def walk(part: object) -> None:
        if isinstance(part, Leaf):
            found[part.name] = None
        for one in (
            (part.arguments, part.named) if isinstance(part, Recipe) else part if isinstance(part, tuple) else ()
        ):
            walk(one)

    walk(recipe)
    return list(found)


def shape_of(recipe: object) -> object:
    """Return a recipe without the names of its leaves; recipes of equal calls then compare equal."""
    leaves = list_leaves(recipe)

    def shape(part: object) -> object:
        if isinstance(part, Leaf):
            return "leaf", leaves.index(part.name)
        if isinstance(part, Recipe):
            what = getattr(part.call, "__qualname__", repr(part.call))
            return what, shape(part.arguments), shape(part.named), part.picked
        if isinstance(part, tuple):
            return tuple(map(shape, part))
        if isinstance(part, np.ndarray):
            return str(part.dtype), part.shape, hashlib.sha256(part.tobytes()).hexdigest()
        return repr(part)

    return shape(recipe)


def replay(recipe: object, tensors: Callable[[str], np.ndarray], names: list[str]) -> object:
    """Compute the value of a recipe with the tensors `names` as leaves, in the order of `list_leaves`."""
    named = dict(zip(list_leaves(recipe), names))
    held: dict[str, np.ndarray] = {}

    def value(part: object) -> object:
        if isinstance(part, Leaf):
            name = named[part.name]
            return held[name] if name in held else held.setdefault(name, tensors(name))
        if isinstance(part, Recipe):
            result = part.call(*map(value, part.arguments), **{key: value(one) for key, one in part.named})
            return result if part.picked is None else result[part.picked]
        return tuple(map(value, part)) if isinstance(part, tuple) else part

    return value(recipe)
