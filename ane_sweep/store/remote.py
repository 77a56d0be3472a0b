"""A folder behind a URL, on any file system that fsspec supports: files are read and written there, each complete or
absent.

One PUT of an object store shows all of a file or nothing; elsewhere a file is written under tmp/ and moved. After a
network fault an operation is repeated over a new connection; a refused one (no such bucket, no permission, no space) is
not.

Credentials come from the places where each file system's own tools look, never from the URL: the environment, ~/.aws,
an SSH agent, fsspec's configuration (~/.config/fsspec/*.json, FSSPEC_<PROTOCOL>_<OPTION>).
"""

import contextlib
import errno
import os
import re
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ane_sweep import native_errors, outward
from ane_sweep.errors import StoreError, Unfit

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from ane_sweep.store.transports import Halting

T = TypeVar("T")
Opened: TypeAlias = "tuple[AbstractFileSystem, str]"  # and the store's folder in it
PAUSES = (0.5, 2.0)  # seconds before each further attempt
SMALL_BYTES = 8 << 20  # of a manifest: one of 50,000 files
_PIECE_BYTES = 1 << 20
_LOOK_S = 0.2  # how often a thread that waits for a store looks whether the sweep is being stopped
ATOMIC = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oci", "oss", "http", "https"}
_SIDE_BY_SIDE = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "http", "https", "file", "local"}
PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs",
    "sftp": "paramiko", "ssh": "paramiko", "http": "aiohttp", "https": "aiohttp", "smb": "smbprotocol",
}  # fmt: skip
_WHERE = (
    "credentials come from the environment (AWS_ACCESS_KEY_ID ...), ~/.aws, an SSH agent or ~/.config/fsspec/*.json"
)
_ONLY_A_USER = re.compile(r"\w+://[^\s/:@?#]+@[^@?#]*")
_REFUSALS = (
    FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError, NotImplementedError,
    ValueError, TypeError, ImportError, StoreError,
)  # fmt: skip
# By name, as their packages may not be there: no credentials, wrong ones, a server that cannot show who it is.
_DISTRUST = (
    "NoCredentialsError", "AuthenticationException", "BadHostKeyException", "SSLError", "SSLCertVerificationError",
)  # fmt: skip
_FORBIDDEN = (401, 403, 405, 501)  # HTTP: who may not write, and a server that takes no PUT


def problem(name: str, url: str) -> str | None:
    """Describe why `name=url` cannot be the address of a store, in one sentence without secrets, or return None."""
    said = f"{name}={outward.mask_credentials(url)}"
    if any(outward.mask_credentials(part) != part and not _ONLY_A_USER.fullmatch(part) for part in url.split("::")):
        return f"{said}: a password or token in an address ends in logs; {_WHERE}"
    if not url.strip() or (url.startswith("http") and re.search(r"[?#]", url)):
        return f"{said}: expected a folder or a URL of one, s3://BUCKET/FOLDER, sftp://HOST/FOLDER or /mnt/FOLDER"
    try:
        import fsspec
    except ImportError:
        return f"{said}: needs fsspec, which this install leaves out: pip install 'ane-sweep[fleet]'"
    scheme = protocol(url)
    try:
        fsspec.get_filesystem_class(scheme)
    except ValueError:
        known = ", ".join(sorted({"file", "gs", "https", "s3", "sftp"}))
        return f"{said}: no file system is called {scheme}; among those there are: {known}"
    except ImportError as error:
        missing = f"pip install {PACKAGES[scheme]}" if scheme in PACKAGES else str(error)
        return f"{said}: {scheme}:// needs a package that is missing: {missing}"
    return None


def protocol(url: str) -> str:
    return url.split("::")[0].partition("://")[0].lower() if "://" in url or "::" in url else "file"


class Remote:
    """A store behind a URL. The first method call connects. After some attempts, methods raise the file system's errors."""

    def __init__(self, url: str, stop: threading.Event | None = None) -> None:
        self.url, self.protocol = url, protocol(url)
        self._stop = stop or threading.Event()
        self._opened: Opened | None = None
        # paramiko and its like answer one thread at a time
        self._turn = contextlib.nullcontext() if self.protocol in _SIDE_BY_SIDE else threading.Lock()

    def read(self, name: str, most: int = SMALL_BYTES) -> bytes | None:
        """Return a small file's content, or None if the file is missing. Raises Unfit if it is longer than `most` bytes."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "read"
            return path.read_bytes() if self.get(name, path, most) else None

    def get(self, name: str, path: Path, most: int) -> bool:
        """Copy a file to `path`; return False if the file is missing. Raises Unfit if it is longer than `most` bytes,
        or not a regular file.
        """
        with contextlib.suppress(FileNotFoundError):
            self._tried(lambda fs, root: _get(fs, f"{root}/{name}", path, self._halting(most), self.protocol))
            return path.is_file()
        return False

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, None if it is missing, or -1 if the server does not report it."""
        with contextlib.suppress(FileNotFoundError):
            size: int | None = self._tried(lambda fs, root: fs.info(f"{root}/{name}")).get("size")
            return -1 if size is None else size
        return None

    def put(self, name: str, path: Path) -> None:
        """Write a file from a local path, replacing one of its name; readers see it complete or not at all."""
        self._tried(lambda fs, root: _put(fs, root, name, str(path), self._halting(), self.protocol))

    def write(self, name: str, content: bytes) -> None:
        """Write a small file from bytes, replacing one of its name; readers see it complete or not at all."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            self.put(name, Path(file.name))

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._tried(lambda fs, root: fs.rm_file(f"{root}/{name}"))

    def _halting(self, most: int | None = None) -> "Halting":
        from ane_sweep.store.transports import Halting

        return Halting(self._stop, most)

    def _tried(self, do: "Callable[[AbstractFileSystem, str], T]") -> T:
        for pause in PAUSES:
            try:
                return self._once(do)
            except Exception as error:  # file systems have no error in common
                if is_refusal(error):
                    raise
                self._opened = None
                self._stop.wait(pause)
        return self._once(do)

    def _once(self, do: "Callable[[AbstractFileSystem, str], T]") -> T:
        """Call the file system in a separate thread. If the sweep is stopped meanwhile, raise Stopped and abandon the
        thread.

        A store that never answers then delays nothing, and the thread does not keep the process alive.
        """
        answer: Future[T] = Future()

        def ask() -> None:
            try:
                with self._turn:
                    if self._opened is None:
                        self._opened = _connected(self.url, self.protocol)
                    answer.set_result(do(*self._opened))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=ask, daemon=True).start()
        while not wait([answer], _LOOK_S).done:
            self._halting().call()
        return answer.result()


def is_refusal(error: Exception) -> bool:
    """Return True if another attempt would fail the same way, unlike after a fault of the network."""
    refused = isinstance(error, _REFUSALS) and not isinstance(error, ConnectionError)
    distrust = type(error).__name__ in _DISTRUST
    return refused or distrust or is_forbidden(error) or _is_full(error) or 400 <= (_status(error) or 0) < 500


def _is_full(error: Exception) -> bool:
    """Return True if the store has no space left; clients of stores often report that only in their message."""
    return native_errors.is_out_of_space(error) or native_errors.reports_no_space(native_errors.text_of(error))


def is_forbidden(error: Exception) -> bool:
    """Return True if the error means missing permission; for a write, that the store is read-only."""
    read_only = isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
    return isinstance(error, PermissionError | NotImplementedError) or read_only or _status(error) in _FORBIDDEN


def why(error: Exception) -> str:
    """Return an error's text as one clause without secrets."""
    if _is_full(error):
        return "no space left on it"
    text = " ".join(str(error).split()) or "no reason given"
    text = text if len(text) <= 240 else f"{text[:120]} ... {text[-120:]}"
    return outward.make_public(f"{text} ({type(error).__name__})")


def _status(error: Exception) -> int | None:
    return getattr(error, "status", None)


def _connected(url: str, scheme: str) -> Opened:
    """Return the file system and the folder in it. Raises ConnectionError if the folder's parent does not exist (not mounted, perhaps)."""
    import fsspec

    from ane_sweep.store import transports

    if scheme in ("sftp", "ssh"):
        return transports.connect_sftp(url)
    address = url if "://" in url or "::" in url else os.path.abspath(os.path.expanduser(url))
    options: dict[str, object] = {"skip_instance_cache": True}
    if scheme in ("s3", "s3a") and "config_kwargs" not in fsspec.config.conf.get("s3", {}):
        options["config_kwargs"] = {"retries": {"max_attempts": 1}}  # botocore's four, times ours, would be a minute
    if scheme in ("http", "https"):
        options |= transports.http_options()
    fs, root = fsspec.url_to_fs(address, **options)
    if scheme in ("file", "local") and not Path(root).parent.is_dir():
        raise ConnectionError(f"there is no folder {Path(root).parent}: is it mounted?")
    return fs, root.rstrip("/")


def _get(fs: "AbstractFileSystem", place: str, path: Path, callback: "Halting", scheme: str) -> None:
    """Copy a file here. On file systems with pipes the type is checked first, as opening a pipe would wait for ever."""
    if scheme not in ATOMIC and fs.info(place)["type"] != "file":
        raise Unfit("is no regular file")
    if scheme not in ("file", "local"):
        fs.get_file(place, str(path), callback=callback)
        return
    with (
        open(place, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as source,
        open(path, "wb") as target,
    ):
        while piece := source.read(_PIECE_BYTES):
            target.write(piece)
            callback.relative_update(len(piece))


def _put(fs: "AbstractFileSystem", root: str, name: str, path: str, callback: "Halting", scheme: str) -> None:
    place = f"{root}/{name}"
    if scheme in ATOMIC:
        fs.put_file(path, place, callback=callback, **({"method": "put"} if scheme.startswith("http") else {}))
        return
    aside = f"{root}/tmp/{os.urandom(8).hex()}"
    for folder in (f"{root}/tmp", place.rpartition("/")[0]):
        try:
            fs.makedirs(folder, exist_ok=True)
        except Exception:  # another machine may make it at the same moment, which not every file system forgives
            if not fs.isdir(folder):
                raise
    try:
        fs.put_file(path, aside, callback=callback)
        fs.mv(aside, place)
    except BaseException:
        with contextlib.suppress(Exception):
            fs.rm_file(aside)
        raise
