"""Tracking addresses: the default, the supported ones, a check that a server answers, and the artifacts' folder. No mlflow."""

import os
import socket
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ane_sweep.errors import ConfigError, TrackingError
from ane_sweep.outward import HIDDEN, without_secrets
from ane_sweep.planner import inherited

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

DATABASE = "mlflow.db"
LOGIN = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
_LETTERS = "?#%"  # of a path: what they mean in an address has changed between releases of SQLAlchemy
CONNECT_SECONDS = 5
LOCKED = f"its database is locked: another program has been writing for {CONNECT_SECONDS} s or more"
_SQL_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}


@contextmanager
def own_database(out: Path) -> Iterator[str]:
    """Yield the address of the database in an outputs folder, through a link if no address can contain the folder's
    name.

    (MLflow 3.13 and later refuse ./mlruns, and reuse an opened database for every equal address.)
    """
    if not is_odd(out):
        yield f"sqlite:///{out}/{DATABASE}"
        return
    with tempfile.TemporaryDirectory(prefix="ane-sweep-") as folder:
        link = Path(folder) / "out"
        link.symlink_to(out)
        yield f"sqlite:///{link}/{DATABASE}"


def is_odd(out: Path) -> bool:
    return any(letter in str(out) for letter in _LETTERS)


def reopened(stored: str | None, run: str) -> str | None:
    """Return the address in run.json that a run was logged to, without user, password and tokens.

    For a server they come from the environment. Raises ConfigError if the user must give them again.
    """
    bare = (stored or "").replace(f"{HIDDEN}@", "")
    if stored is None or HIDDEN not in stored:
        return stored
    is_server = urlsplit(bare).scheme in ("http", "https")
    if HIDDEN not in bare and is_server and all(os.environ.get(name) for name in LOGIN):
        return bare
    other = f"; or set {' and '.join(LOGIN)}" if is_server else ""
    raise ConfigError(
        f"{run} was to be logged to {stored}, and its credentials were not kept: ane-sweep log {run} uri=ADDRESS{other}"
    )


def artifact_folder(target: str, out: Path) -> Path | None:
    """Return the folder where a new experiment stores artifacts: next to our own database; None lets a server decide.

    By default, MLflow would store a database's artifacts in ./mlruns of the working folder.
    """
    if target.startswith("sqlite"):
        return sqlite_path(target).parent / "mlartifacts"
    return out / "mlartifacts" if urlsplit(target).scheme.split("+")[0] in _SQL_PORTS else None


def check_uri(target: str) -> None:
    """Raise an error at once for a database that cannot be opened or a host that does not answer, as MLflow would retry for minutes."""
    if problem := _no_scheme(target):
        raise TrackingError(problem)
    dialect = urlsplit(target).scheme.split("+")[0]
    if dialect == "sqlite":
        _check_sqlite(target)
    elif dialect in _SQL_PORTS:
        place = _database_url(target)
        at = place.host or "localhost", place.port or _SQL_PORTS[dialect]
        try:
            socket.create_connection(at, CONNECT_SECONDS).close()
        except OSError as error:
            raise TrackingError(f"{at[0]}:{at[1]} does not answer ({error})") from error


def check_scheme(target: str) -> None:
    """Raise ConfigError for an unsupported tracking address, before a sweep spends hours on results for it."""
    try:
        problem = _no_scheme(target)
    except ValueError as error:
        problem = without_secrets(f"no address ({error})", target)
    if problem:
        name = inherited.URI if target == inherited.tracking_uri() else "tracking.uri"
        raise ConfigError(f"{name}: {problem}")


def _no_scheme(target: str) -> str | None:
    scheme = urlsplit(target).scheme
    if scheme.split("+")[0] in ("sqlite", "http", "https", *_SQL_PORTS) or target.startswith("databricks"):
        return None
    return (
        f"{scheme or 'a plain path'} is no tracking scheme for ane-sweep: use sqlite:///PATH/mlflow.db, "
        "http://HOST:PORT, or postgresql://, mysql:// or mssql:// with MLflow's driver for it"
    )


def _check_sqlite(target: str) -> None:
    path = sqlite_path(target) if target.startswith("sqlite:///") else Path()
    if not path.name:
        raise TrackingError("sqlite needs three slashes and a file: sqlite:///PATH/mlflow.db")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return
    if not os.access(path, os.W_OK):
        raise TrackingError(f"{path} is read-only")
    try:
        with closing(sqlite3.connect(path, timeout=CONNECT_SECONDS, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")  # MLflow would wait 20 s for each thing that it writes
            database.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error as error:
        raise TrackingError(LOCKED if "locked" in str(error) else f"{path}: {error}") from error


def sqlite_path(target: str) -> Path:
    """Return the file of a sqlite address."""
    return Path(_database_url(target).database or "")


def _database_url(target: str) -> "URL":
    """Return an address as the installed SQLAlchemy reads it; a password may hold what ends a host elsewhere."""
    from sqlalchemy.engine import make_url

    return make_url(target)
