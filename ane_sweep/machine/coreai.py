"""Whether this install has Core AI's packages, the extra `coreai`."""

from importlib.util import find_spec


def find_missing(modules: tuple[str, ...] = ("coreai", "coreai_torch")) -> str | None:
    """Return what a refusal says after what needs them, as `runtime=coreai`, or None if the packages are there."""
    if missing := [name for name in modules if find_spec(name) is None]:
        return f"needs {' and '.join(missing)}, which this install leaves out: pip install 'ane-sweep[coreai]'"
    return None
