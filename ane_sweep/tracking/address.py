"""Tracking addresses: which ones we take, whether somebody is there, where artifacts of a database go. No mlflow."""

import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from ane_sweep.errors import TrackingError

_CONNECT_SECONDS = 5
_SQL_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}


def artifact_folder(target: str, out: Path) -> Path | None:
    """Where a new experiment keeps artifacts: beside a database of ours; None leaves it to a server.

    Left to itself, MLflow would put those of a database into ./mlruns of wherever one happens to be.
    """
    if target.startswith("sqlite"):
        return sqlite_path(target).parent / "mlartifacts"
    return out / "mlartifacts" if urlsplit(target).scheme.split("+")[0] in _SQL_PORTS else None


def check_uri(target: str) -> None:
    """Fails at once where MLflow would retry for minutes: a database that cannot be opened, a host that is away."""
    scheme = urlsplit(target).scheme
    dialect = scheme.split("+")[0]
    if dialect == "sqlite":
        _check_sqlite(target)
    elif dialect in _SQL_PORTS:
        _check_host(target, _SQL_PORTS[dialect])
    elif scheme not in ("http", "https") and not target.startswith("databricks"):
        raise TrackingError(
            f"{scheme or 'a plain path'} is no tracking scheme for ane-sweep: use sqlite:///PATH/mlflow.db, "
            "http://HOST:PORT, or postgresql://, mysql:// or mssql:// with MLflow's driver for it"
        )


def _check_sqlite(target: str) -> None:
    path = sqlite_path(target)
    if not target.startswith("sqlite:///") or not path.name:
        raise TrackingError("sqlite needs three slashes and a file: sqlite:///PATH/mlflow.db")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path, timeout=_CONNECT_SECONDS)) as database:
            database.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error as error:
        raise TrackingError(f"{path}: {error}") from error
    if not os.access(path, os.W_OK):
        raise TrackingError(f"{path} is read-only")


def sqlite_path(target: str) -> Path:
    """The file of a sqlite address."""
    return Path(target.split("sqlite:///", 1)[-1].split("?")[0])


def _check_host(target: str, port: int) -> None:
    place = urlsplit(target)
    try:
        socket.create_connection((place.hostname or "localhost", place.port or port), _CONNECT_SECONDS).close()
    except OSError as error:
        raise TrackingError(f"{place.hostname}:{place.port or port} does not answer ({error})") from error
