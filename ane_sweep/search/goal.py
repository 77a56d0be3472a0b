"""The goal of a search: figures to minimise or maximise, and limits on others (`minimise=latency_ms psnr_db>=40`)."""

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from ane_sweep.bridge import metrics
from ane_sweep.bridge.metrics import METRICS
from ane_sweep.bridge.record import Record
from ane_sweep.bridge.settings import SearchSettings
from ane_sweep.errors import ConfigError, suggestion
from ane_sweep.placement.chips import canonical
from ane_sweep.placement.types import Kind
from ane_sweep.results import search_log
from ane_sweep.results.headline import HEADLINE, answers_by_timing, measured_ms

TIMED = ("measured", "planned")  # kinds of which a figure may be known only when a cell was timed
SPEED = METRICS[HEADLINE].search_word
ESTIMATE, SHARE = METRICS["latency_ms"].search_word, METRICS["cost_share_ane"].search_word
_OF_TIMING = re.compile(r"_ms$|_per_s$|_m[jw]$|memory|footprint|peak|celsius|service|machine|latency")
KINDS: tuple[Kind, ...] = get_args(Kind)
_LIMIT = re.compile(r"([\w.]+)(>=|<=)(.*)")
_WORDS = {"minimise": -1, "maximise": 1}


@dataclass(frozen=True)
class Limit:
    """A limit on a figure: at least (sign 1) or at most (sign -1) a value."""

    figure: str
    sign: Literal[1, -1]
    value: float

    def __str__(self) -> str:
        return f"{self.figure}{'>=' if self.sign > 0 else '<='}{self.value:g}"

    def holds(self, value: float) -> bool:
        return self.sign * value >= self.sign * self.value

    def excess(self, value: float) -> float:
        """Return by which share of the limit a value violates it; 0 if it does not."""
        return max(0.0, self.sign * (self.value - value)) / (abs(self.value) or 1.0)


@dataclass(frozen=True)
class Goal:
    """Objectives (figure -> 1 if more is better, -1 if less is) and limits. by_default: no objective was asked for."""

    objectives: dict[str, int]
    limits: tuple[Limit, ...]
    by_default: bool = False

    @property
    def figures(self) -> set[str]:
        return {*self.objectives, *(limit.figure for limit in self.limits)}

    @property
    def chip(self) -> str | None:
        """Return the chip that the first objective names, or None."""
        word, *rest = next(iter(self.objectives)).split(".")
        named = word in _words_of_chips() or (word in ("estimated", "predicted") and len(rest) > 1)
        return canonical(rest[0]) if named and rest else None

    def of_chips(self, chips: Sequence[str]) -> "Goal":
        """Return the goal with a chip in each figure that needs one. Raises ConfigError if no chip is predicted."""
        return self._renamed(lambda name: _with_chip(name, chips))

    def by_estimates(self, chips: Sequence[str]) -> "Goal":
        """Return the goal with the estimate for the first of the chips in place of `latency_ms`, for cells whose timing
        does not answer. Raises ConfigError if no chip is predicted.
        """
        return self._renamed(lambda name: _with_chip(ESTIMATE if name == SPEED else name, chips))

    def by_shares(self, chips: Sequence[str]) -> "Goal":
        """Return the goal of cells without a latency: the largest predicted share of the cost on the Neural Engine."""
        return replace(self, objectives={_with_chip(SHARE, chips): 1}, by_default=False)

    def _renamed(self, rename: Callable[[str], str]) -> "Goal":
        limits = tuple(replace(limit, figure=rename(limit.figure)) for limit in self.limits)
        return replace(self, objectives={rename(name): sign for name, sign in self.objectives.items()}, limits=limits)

    @property
    def timed(self) -> list[str]:
        """Return the figures that only a timing or Core ML's own plan gives."""
        return [
            name
            for name in sorted(self.figures)
            if _is_timed(name) and (name.startswith("planned.") or _OF_TIMING.search(name))
        ]

    def unknowable(self, record: Record) -> str | None:
        """Return a figure that a prepared record lacks and that timing will not provide, or None."""
        return next(
            (name for name in sorted(self.figures) if not _is_timed(name) and figure(record, name) is None), None
        )

    def fits(self, record: Record) -> bool:
        """Return True if a record violates no limit that can be checked and lacks no figure that timing would not provide."""
        return self.broken(record) is None and self.unknowable(record) is None

    def untimed(self, record: Record) -> bool:
        """Return True if a figure is missing that timing may provide."""
        return any(_is_timed(name) and figure(record, name) is None for name in self.figures)

    def broken(self, record: Record) -> Limit | None:
        """Return the first limit that a known figure violates, or None."""
        for limit in self.limits:
            value = figure(record, limit.figure)
            if value is not None and not limit.holds(value):
                return limit
        return None

    def excess(self, record: Record) -> dict[str, float]:
        """Return {limit: share by which it is violated} for known figures."""
        values = {limit: figure(record, limit.figure) for limit in self.limits}
        return {
            str(limit): limit.excess(value)
            for limit, value in values.items()
            if value is not None and not limit.holds(value)
        }

    def gains(self, record: Record) -> tuple[float, ...] | None:
        """Return the figure of each objective with signs such that more is better; None if one is unknown."""
        values = [figure(record, name) for name in self.objectives]
        if any(value is None for value in values):
            return None
        return tuple(sign * value for sign, value in zip(self.objectives.values(), values) if value is not None)

    def hopes(self, record: Record, latency_ms: float) -> tuple[float, ...]:
        """Return the gains that a record would have at that latency; unknown figures count as infinite."""
        said = {name: latency_ms if name == SPEED else figure(record, name) for name in self.objectives}
        return tuple(math.inf if (v := said[name]) is None else sign * v for name, sign in self.objectives.items())

    def __str__(self) -> str:
        return str(search_log.LoggedGoal(self.objectives, [str(limit) for limit in self.limits]))


def parse(words: Sequence[str]) -> tuple[Goal, list[str]]:
    """Parse the words of a goal. Return (goal, words that do not belong to it). Raises ConfigError."""
    limits, rest = [], []
    objectives: dict[str, int] = {}
    for word in words:
        name, _, value = word.partition("=")
        if found := _LIMIT.fullmatch(word):
            limits.append(_limit(*found.groups()))
        elif name in _WORDS:
            named = value.strip("[]").split(",")
            objectives |= {check_figure(one.strip(), f"{name}="): _WORDS[name] for one in named}
        else:
            rest.append(word)
    return Goal(objectives, tuple(limits)), rest


def of_settings(settings: SearchSettings, given: Goal) -> Goal:
    """Return the goal in a saved matrix's settings (`search.minimise`, `search.maximise`, `search.limits`), joined with
    the command line's.

    The command line's limits are added and its objectives replace the others. The default is the least headline
    latency. Raises ConfigError if two limits exclude each other.
    """
    words = [f"{way}={','.join(names)}" for way in _WORDS if (names := getattr(settings, way))]
    kept, other = parse([*words, *settings.limits])
    if other:
        raise ConfigError(f"search.limits: {other[0]}: expected FIGURE>=NUMBER or FIGURE<=NUMBER")
    limits = (*kept.limits, *given.limits)
    for least, most in itertools.product(limits, repeat=2):
        if least.figure == most.figure and least.sign > 0 > most.sign and least.value > most.value:
            raise ConfigError(f"{least} and {most}: no cell can keep to both")
    objectives = given.objectives or kept.objectives
    return Goal(objectives or {SPEED: -1}, limits, by_default=not objectives)


def _with_chip(name: str, chips: Sequence[str]) -> str:
    """Return a figure's word with its chip, by default the first of chips=[...]. Raises ConfigError."""
    word, *rest = name.split(".")
    if word in _words_of_chips():
        chip = rest[0] if rest else next(iter(chips), None)
    elif word in ("estimated", "predicted") and len(rest) > 1:
        chip = rest[0]
    else:
        return name
    chip = chip and canonical(chip)
    if chip is None or chip not in chips:
        raise ConfigError(
            f"{name}: nothing is predicted for {chip or 'any chip'}; say chips=[{','.join([*chips, chip or 'm4'])}]"
        )
    return ".".join([word, chip, *rest[1:]])


def _limit(name: str, way: str, text: str) -> Limit:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{name}{way}{text}: expected a number after {way}")
    return Limit(check_figure(name, ""), 1 if way == ">=" else -1, value)


def check_figure(name: str, before: str) -> str:
    """Return a figure's word if a record can have it. Raises ConfigError otherwise, with a message that begins with `before`."""
    kind, *rest = name.split(".")
    words, of_chips = sorted(metrics.by_search_word()), _words_of_chips()
    if name in words or (kind in KINDS and rest and all(rest)) or (kind in of_chips and len(rest) == 1 and rest[0]):
        return name
    raise ConfigError(
        f"{before}{name}: no figure{suggestion(name, words)}; choices: {', '.join(words)}, "
        f"of a chip also {of_chips[0]}.m4, or KIND.NAME and KIND.CHIP.NAME as MLflow has them (estimated.m1.latency_ms)"
    )


def _words_of_chips() -> list[str]:
    """Return the words of figures that are estimated or predicted per chip."""
    return [word for word, spec in metrics.by_search_word().items() if spec.kind in ("estimated", "predicted")]


def _is_timed(name: str) -> bool:
    word = name.split(".")[0]
    spec = metrics.by_search_word().get(word)
    return (spec.kind if spec else word) in TIMED


def figure(record: Record, name: str) -> float | None:
    """Return a figure of a record in the unit of its word, or None if the record lacks it.

    `latency_ms` is a timing that answers: a goal on cells whose headline latency is an estimate names that (`by_estimates`).
    """
    if name == SPEED:
        return measured_ms(record) if answers_by_timing(record) else None
    word, *middle = name.split(".")
    if kind := next((kind for kind in KINDS if kind == word), None):
        return record.read(middle[-1], kind, middle[0] if len(middle) > 1 else None)
    spec, chip = metrics.by_search_word()[word], middle[0] if middle else None
    value = metrics.value(record, spec, chip)
    return value / spec.divisor if value is not None else None
