"""A package as a git revision has it, without touching the work tree."""

import os
import subprocess
from pathlib import Path, PurePosixPath

from ane_sweep.errors import PackageError

_MOST_FILES = 1000  # of one package or folder of chunks
_TIMEOUT_S = 120


def check_out(revision: str, path: str, target: Path) -> Path | None:
    """Write the files that a revision has at a path into the folder `target`; return the package there, or None if nothing is there.

    path   from the root of the repository, or from the working folder if it begins with "./", as git reads REV:PATH

    Filters apply as in a checkout, so that files of Git LFS are fetched. Raises PackageError with git's message.
    """
    options = ("--verify", "--quiet", "--end-of-options")
    _git("rev-parse", *options, f"{revision}^{{commit}}", why=f"no revision {revision!r} here")
    prefix = _git("rev-parse", "--show-prefix").decode().strip() if path.startswith("./") else ""
    wanted = PurePosixPath(prefix, path)
    listed = _git("ls-tree", "-r", "-z", "--full-tree", "--name-only", revision, "--", str(wanted))
    names = [name.decode() for name in listed.split(b"\0") if name]
    if len(names) > _MOST_FILES:
        raise PackageError(f"{revision}:{path}: {len(names):,} files are no package; name the package itself")
    for name in names:
        file = target / wanted.name / PurePosixPath(name).relative_to(wanted)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_git("cat-file", "--filters", f"{revision}:{name}"))
    return target / wanted.name if names else None


def find_in_repository(path: Path) -> str:
    """Return a path of this machine as the repository names it. Raises PackageError outside of one."""
    top = Path(_git("rev-parse", "--show-toplevel").decode().rstrip("\n"))
    try:
        return path.resolve().relative_to(top.resolve()).as_posix()
    except ValueError:
        raise PackageError(f"{path}: lies outside the repository {top}; name its place there: REV:PATH") from None


def _git(*words: str, why: str = "") -> bytes:
    """Return git's output. Raises PackageError with `why`, or git's own words."""
    try:
        done = subprocess.run(
            ("git", *words), stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S,
            env=os.environ | {"LC_ALL": "C"},
        )  # fmt: skip
    except FileNotFoundError:
        raise PackageError(
            "git is not installed, and a baseline REV:PATH needs it; give a package or a JSON file"
        ) from None
    except subprocess.TimeoutExpired:
        raise PackageError(
            f"git {words[0]} took more than {_TIMEOUT_S} s; give the package itself as the baseline"
        ) from None
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        if "not a git repository" in message:
            raise PackageError(
                "a baseline REV:PATH is read from a git repository, and this folder is in none; give a package or a lint report (.json)"
            )
        hint = "; a shallow clone has no history: fetch it (actions/checkout: fetch-depth: 0)" if why else ""
        raise PackageError(f"git {words[0]}: {why or message or f'exit code {done.returncode}'}{hint}")
    return done.stdout
