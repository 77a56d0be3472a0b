"""The inputs of a model that the user supplies: shapes, dtypes and ranges of values. Standard library only.

{image: [1, 3, 224, 224], ids: {shape: [1, 128], dtype: int32, range: [0, 30000]}}
{x: [[1, 3, 224, 224], [1, 3, 256, 256]]}     several shapes; the first is the default
{x: [1, "1..8", 64]}                          any size from 1 to 8; the largest is the default
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ane_sweep.errors import ConfigError

DTYPES = ("float32", "int32", "int64", "bool")
_KEYS = ("shape", "dtype", "range")
_RANGE = re.compile(r"\s*(\d{1,9})\s*\.\.\s*(\d{1,9})\s*")
_LARGEST = 2**31 - 1
_MOST_SHAPES = 128  # Core ML's limit of enumerated shapes
Size = int | tuple[int, int]


@dataclass(frozen=True)
class Input:
    """One input of a user's model.

    dtype   the dtype that the module receives; the program takes int32 for int64 and bool, which Core ML lacks
    values  (low, high) to draw from: integers exclude high; None: normal numbers, or 0 and 1 for bool
    shapes  one shape, or several enumerated ones; a size (low, high) allows any between
    """

    name: str
    dtype: str
    values: tuple[float, float] | None
    shapes: tuple[tuple[Size, ...], ...]

    @property
    def flexible(self) -> bool:
        return len(self.shapes) > 1 or any(isinstance(size, tuple) for size in self.shapes[0])

    def points(self) -> list[tuple[int, ...]]:
        """Return the shapes to score and time at, the default first: each enumerated shape, or of a range the largest,
        the smallest and the middle.
        """
        if len(self.shapes) > 1 or not self.flexible:
            return [tuple(_at(size, 1.0) for size in shape) for shape in self.shapes]
        return [tuple(_at(size, share) for size in self.shapes[0]) for share in (1.0, 0.0, 0.5)]


def _at(size: Size, share: float) -> int:
    return size if isinstance(size, int) else round(size[0] + share * (size[1] - size[0]))


def points(inputs: tuple[Input, ...]) -> list[tuple[tuple[int, ...], ...]]:
    """Return the combinations of shapes of all inputs to score and time at, the default first. A fixed shape repeats."""
    several = [one.points() for one in inputs]
    count = max((len(shapes) for shapes in several), default=1)
    return list(dict.fromkeys(zip(*(shapes * (count if len(shapes) == 1 else 1) for shapes in several))))


def label(inputs: tuple[Input, ...], point: tuple[tuple[int, ...], ...]) -> str:
    """Return a text such as `1x3x256x256`: the shapes of the inputs that take several, each different shape once."""
    named = ["x".join(map(str, shape)) for one, shape in zip(inputs, point) if one.flexible]
    return "_".join(dict.fromkeys(named))


def problem(name: str, spec: Mapping[str, object]) -> str | None:
    """Return the first problem of `model.inputs` as one sentence, or None."""
    try:
        read(spec, name)
    except ConfigError as error:
        return error.problems[0]
    return None


def read(spec: Mapping[str, object], name: str = "model.inputs") -> tuple[Input, ...]:
    """Parse `model.inputs` in order. Raises ConfigError with the first problem."""
    if not spec:
        raise ConfigError(f"{name}={{}}: no inputs; the form is {{image: [1,3,224,224]}}")
    found = tuple(_input(f"{name}.{key}", str(key), value) for key, value in spec.items())
    counts = {len(one.points()) for one in found if one.flexible}
    if len({len(one.shapes) for one in found if one.flexible}) > 1 or len(counts) > 1:
        raise ConfigError(f"{name}: inputs of several shapes have equally many, as they are taken together")
    return found


def _input(where: str, name: str, value: object) -> Input:
    if not re.fullmatch(r"[A-Za-z_]\w{0,99}", name):
        raise ConfigError(f"{where}: expected a name of letters, digits and _, as the parameters of forward have")
    spec = value if isinstance(value, dict) else {"shape": value}
    if (unknown := [key for key in spec if key not in _KEYS]) or "shape" not in spec:
        what = f"nothing reads {unknown[0]!r}" if unknown else "shape is missing"
        raise ConfigError(f"{where}: {what}; an input is a shape, or {{{', '.join(_KEYS)}}}")
    dtype = spec.get("dtype", "float32")
    if dtype not in DTYPES:
        raise ConfigError(f"{where}: dtype {dtype!r} is unknown; choices: {', '.join(DTYPES)}")
    return Input(name, dtype, _values(where, dtype, spec.get("range")), _shapes(where, spec["shape"]))


def _shapes(where: str, shape: object) -> tuple[tuple[Size, ...], ...]:
    several = shape if isinstance(shape, list) and shape and all(isinstance(one, list) for one in shape) else [shape]
    if len(several) > _MOST_SHAPES:
        raise ConfigError(f"{where}: {len(several)} shapes, and Core ML lists {_MOST_SHAPES} at most; give a range")
    found = tuple(_shape(where, one) for one in several)
    if len({len(one) for one in found}) > 1:
        raise ConfigError(f"{where}: its shapes have different numbers of axes; Core ML takes one")
    if len(found) > 1 and any(isinstance(size, tuple) for one in found for size in one):
        raise ConfigError(f"{where}: shapes are listed, or sizes are ranges; not both")
    return tuple(dict.fromkeys(found))


def _shape(where: str, shape: object) -> tuple[Size, ...]:
    if not isinstance(shape, list) or not 1 <= len(shape) <= 5:
        raise ConfigError(f'{where}: expected a shape of 1 to 5 sizes as [1,3,224,224] or [1,"1..8",64], not {shape!r}')
    return tuple(_size(where, size) for size in shape)


def _size(where: str, size: object) -> Size:
    if isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= _LARGEST:
        return size
    if isinstance(size, str) and (bounds := _RANGE.fullmatch(size)):
        low, high = int(bounds[1]), int(bounds[2])
        if 1 <= low < high:
            return low, high
    raise ConfigError(f'{where}: a size is a number from 1, or a range such as "1..8", not {size!r}')


def _values(where: str, dtype: str, values: object) -> tuple[float, float] | None:
    if values is None:
        if dtype in ("int32", "int64"):
            raise ConfigError(f"{where}: whole numbers need range: [LOW, HIGH], those from LOW that are below HIGH")
        return None
    numbers = values if isinstance(values, list) and all(type(one) in (int, float) for one in values) else []
    if len(numbers) != 2 or numbers[0] > numbers[1] or (dtype != "float32" and numbers[0] == numbers[1]):
        raise ConfigError(f"{where}: expected range: [LOW, HIGH], not {values!r}")
    if dtype != "float32" and not all(type(one) is int and abs(one) <= _LARGEST for one in numbers):
        raise ConfigError(f"{where}: range={values!r}: the program takes whole numbers of 32 bits")
    return numbers[0], numbers[1]
