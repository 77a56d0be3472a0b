"""The user who logs a sweep and the code that it was started from, as MLflow's tags mlflow.user and mlflow.source.*."""

import getpass
from typing import Any


def tags(info: dict[str, Any]) -> dict[str, Any]:
    """info: run.json, whose `source` says the commit of the folder that the sweep was started in."""
    found = info.get("source")
    commit = found if isinstance(found, dict) else {}
    return {
        "mlflow.user": _user(),
        "mlflow.source.name": "ane-sweep",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": commit.get("commit"),
        "mlflow.source.git.dirty": "true" if commit.get("dirty") else None,
    }


def _user() -> str | None:
    """Return the user name as MLflow's own clients do: LOGNAME, or the account's. It is in no record."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's number without a name
        return None
