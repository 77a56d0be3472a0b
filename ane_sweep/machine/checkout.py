"""The git checkout that a folder lies in: which commit, and whether anything in it was changed since."""

from pathlib import Path

from ane_sweep.machine import tools

ASK_S = 3.0  # a sweep does not wait for a large repository on a slow disk


def state(folder: Path) -> dict[str, object] | None:
    """{"commit": hash, "dirty": whether tracked files differ from it}; None where there is no git, checkout or commit."""
    said = tools.text(
        "git", "--no-optional-locks", "-C", str(folder), "status", "--porcelain=v2", "--branch", "--untracked-files=no",
        timeout_s=ASK_S,
    )  # fmt: skip
    lines = (said or "").splitlines()
    commit = next((line.split()[2] for line in lines if line.startswith("# branch.oid ")), "(initial)")
    if commit == "(initial)":
        return None
    return {"commit": commit, "dirty": any(not line.startswith("#") for line in lines)}
