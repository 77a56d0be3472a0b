"""A check of the install: the planner's side alone, or also the packages that run a sweep. Imports none of them."""

from importlib.util import find_spec

from ane_sweep.errors import ConfigError

WORKER = ("torch", "transformers", "safetensors", "tokenizers")  # the extra `run` of pyproject.toml


def need_worker(what: str) -> None:
    """Raise ConfigError if the packages that `what` runs with are not installed."""
    if missing := [name for name in WORKER if find_spec(name) is None]:
        raise ConfigError(
            f"{what} needs {', '.join(missing)}, which this install leaves out: pip install 'ane-sweep[run]', in a "
            "checkout pip install -e '.[run]' (ane_sweep/docs/installing.md: without CUDA on Linux). plan, lint, report, "
            "compare, history, import, export and log work without"
        )
