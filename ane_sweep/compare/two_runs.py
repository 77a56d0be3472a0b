"""Two runs, or selections of their cells, from their names to what changed."""

from pathlib import Path

from ane_sweep.compare import judge, sides
from ane_sweep.compare.match import match
from ane_sweep.errors import ConfigError
from ane_sweep.results.difference import LEAST_PERCENT, LEVEL


def comparison(
    out: Path, first: str, second: str, level: float = LEVEL, least: float = LEAST_PERCENT
) -> judge.Comparison:
    """Match two sides and judge the changes. Raises RunNotFound, ConfigError."""
    found = judge.judge(match(*sides.both(out, first, second)), level=level, least_percent=least)
    if found.pairs and all(pair.a == pair.b for pair in found.pairs):
        raise ConfigError(
            f"compare {first} {second}: both are {found.pairs[0].a.sweep}, and a run compared with itself shows nothing; "
            "name two runs, or cells of one as RUN:axis=value"
        )
    return found


def not_comparable(found: judge.Comparison, *, across_hosts: bool) -> str | None:
    """Return why these two cannot be compared at all, or None if they can."""
    if not found.pairs:
        return "not comparable: no cell of one is a cell of the other; give A:axis=value B:axis=value to compare across an axis"
    if not across_hosts and all(pair.unlike for pair in found.pairs):
        reasons = "; ".join(dict.fromkeys(reason for pair in found.pairs for reason in pair.unlike))
        return f"not comparable: {reasons}. --across-hosts compares what does not depend on the host"
    return None
