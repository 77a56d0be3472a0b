"""Whether this install has Core AI's packages, the extra `coreai`."""

from importlib.util import find_spec


def find_missing() -> str | None:
    """Return what a refusal says after `runtime=coreai`, or None if the packages are there."""
    if missing := [name for name in ("coreai", "coreai_torch") if find_spec(name) is None]:
        return f"needs {' and '.join(missing)}, which this install leaves out: pip install 'ane-sweep[coreai]'"
    return None
