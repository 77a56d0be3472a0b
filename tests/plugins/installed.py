"""A package laid out as an installer leaves it: its code, and what its pyproject.toml says as metadata beside it."""

import shutil
import tomllib
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "plugin_example"


def example(target: Path) -> Path:
    """tests/plugin_example, installed into a folder that may stand in PYTHONPATH."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    shutil.copytree(EXAMPLE / "src", target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return declare(target, project["name"], project["version"], project["entry-points"])


def declare(target: Path, name: str, version: str, entries: dict[str, dict[str, str]]) -> Path:
    """The metadata alone."""
    info = target / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        line for group, rows in entries.items() for line in (f"[{group}]", *(f"{n} = {m}" for n, m in rows.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return target
