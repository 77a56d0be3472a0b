"""Settings of a request as types: the planner reads them from Hydra's composed configuration after checking it
(planner/schema.py).

A cell stores its options unconverted, since its key and record contain them; code reads them through these types.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from ane_sweep.bridge import conversion

Number = int | float  # 120 stays a whole number


@dataclass(frozen=True)
class TextSettings:
    """How many texts, or inputs of a user's own model, are scored."""

    count: int = 1


@dataclass(frozen=True)
class PackageFolder:
    """The Python package, and the folder in it, that carries a model's weights."""

    module: str
    folder: str


@dataclass(frozen=True)
class ArchKeys:
    """The keys of an architecture that hold its number of layers and its longest input."""

    layers: str
    max_seq_len: str | None


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """An option of the group `model`: a model that is built here has an `arch`, a model that the user gives has a
    `path`.

    planner/schema.py describes each field (GROUP_KEYS).
    """

    name: str
    family: str = ""
    size: str = ""
    task: str = "tensors"
    texts: TextSettings = TextSettings()
    hub: str | None = None
    package: PackageFolder | None = None
    parameters: int = 0
    layers: int = 0
    max_seq_len: int = 0
    cut_points: int = 0
    arch: Mapping[str, object] = field(default_factory=dict)
    arch_keys: ArchKeys | None = None
    path: str | None = None
    function: str | None = None
    inputs: Mapping[str, object] | None = None
    kwargs: Mapping[str, object] | None = None
    sources: list[str] | None = None
    samples: str | None = None
    reference: str | None = None

    @property
    def is_given(self) -> bool:
        """Return True for a model that a user gives by its path, which brings its own shapes."""
        return self.arch_keys is None


@dataclass(frozen=True, kw_only=True)
class PrecisionSettings:
    """An option of the group `precision`; `weights` is a recipe (bridge/recipes.py)."""

    name: str
    compute: str
    fp32_ops: list[str]
    weights: Mapping[str, object] | None
    min_target: str
    min_psnr_db: Number | None


@dataclass(frozen=True)
class NightlySettings:
    """Settings that +sweep=nightly adds to a sweep."""

    enabled: bool = False
    keep_runs: int = 60
    cache_gb: Number = 50


@dataclass(frozen=True)
class SearchSettings:
    """The goal and the limits of `ane-sweep best`."""

    minimise: list[str] = field(default_factory=list)
    maximise: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    trials: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class GateSettings:
    """The conditions of a quiet machine that each timing waits for."""

    wait_s: Number = 30
    busy: Number = 0.25


@dataclass(frozen=True)
class ExecutorSettings:
    """The machines that run the tasks."""

    name: str = "local"
    address: str | None = None
    certificates: str | None = None
    wait_s: Number = 60


@dataclass(frozen=True)
class TrackingSettings:
    """The tracking server that records are logged to."""

    enabled: bool = True
    uri: str | None = None
    experiment: str | None = None
    ui: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How a whole sweep runs: no task's key depends on it. The defaults here are those of the command line.

    `ane-sweep help keys` describes each one (KEYS in planner/schema.py).
    """

    chips: list[str] = field(default_factory=partial(list, ("m4", "m1", "a17_pro")))
    budget_minutes: Number | None = None
    nightly: NightlySettings = NightlySettings()
    search: SearchSettings = SearchSettings()
    gate: GateSettings = GateSettings()
    max_cells: int = 10_000
    executor: ExecutorSettings = ExecutorSettings()
    lanes: int = 2
    memory_gib: Number | None = None
    out: str | None = None
    store: str | None = None
    resume: str | None = None
    tracking: TrackingSettings = TrackingSettings()


def read_model(option: Mapping[str, object]) -> ModelSettings:
    """Convert an option of the group `model` to its type. Raises msgspec.ValidationError for an unchecked one that does not fit."""
    return conversion.convert(option, ModelSettings)


def read_precision(option: Mapping[str, object]) -> PrecisionSettings:
    """Convert an option of the group `precision` to its type. Raises msgspec.ValidationError for an unchecked one that does not fit."""
    return conversion.convert(option, PrecisionSettings)


def read_run(config: Mapping[str, object]) -> RunSettings:
    """Return the run settings of a configuration as a type; missing ones have their defaults. Raises msgspec.ValidationError."""
    return conversion.convert(config, RunSettings)
