"""Workflows for hosted CI, from templates/; they hold no path of this machine."""

import re
from collections.abc import Sequence
from pathlib import Path

from ane_sweep.ci.formats.markdown import MARKER
from ane_sweep.errors import ConfigError
from ane_sweep.placement import chips

ACTION = "OWNER/ane-sweep/.github/actions/lint@main"
EVERY_PACKAGE = "**/*.mlpackage"
_ACTION = re.compile(r"(\./)?[\w.-]+(/[\w.-]+)+(@[\w./-]+)?")
_PATH = re.compile(r"[\w./*?\[\]{}@+ -]+")


def render(packages: Sequence[str], wanted: str, action: str) -> str:
    """Return the workflow for GitHub Actions. Raises ConfigError for a chip, path or action that it cannot name."""
    names = [wanted] if wanted == "all" else [chips.get(name).chip for name in wanted.split(",")]
    if not _ACTION.fullmatch(action):
        raise ConfigError(f"--action {action}: expected OWNER/REPO/PATH@REF, or ./PATH in the same repository")
    for path in packages:
        if not _PATH.fullmatch(path) or Path(path).is_absolute() or ".." in Path(path).parts:
            raise ConfigError(f"{path}: expected a path or glob within the repository, such as models/*.mlpackage")
    lines = "\n".join(f"            {path}" for path in packages or [EVERY_PACKAGE])
    text = (Path(__file__).parent / "templates" / "github.yml").read_text(encoding="utf-8")
    for mark, value in (("ACTION", action), ("PACKAGES", lines), ("CHIPS", ",".join(names)), ("MARKER", MARKER)):
        text = text.replace(f"@{mark}@", value)
    return text
