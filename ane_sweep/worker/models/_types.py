"""Types that the model families share."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

if TYPE_CHECKING:
    from torch import Tensor


class Model(TypedDict):
    """A model as a task describes it; `arch` is the architecture with the keys of its config.json."""

    family: str
    task: str
    arch: dict[str, Any]


class OwnArch(TypedDict):
    """The architecture of a user's own module: the place of its code, digests of the code's files, and its arguments."""

    path: str
    kwargs: dict[str, object]
    inputs: dict[str, object] | None
    files: dict[str, str]


class WeightsWish(TypedDict, total=False):
    """The source of the weights."""

    kind: str
    seed: int
    allow_pickle: bool


class Dynamic(Protocol):
    """A configuration or module of transformers, whose attributes depend on the architecture."""

    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any, /) -> None: ...


class Tensors(Protocol):
    """The tensors of a checkpoint's folder: their shapes by name, and a way to read some of them."""

    folder: Path

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...
    def tensors(self, names: list[str]) -> "Iterator[tuple[str, Tensor]]": ...
