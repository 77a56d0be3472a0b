"""install: installs another version of a package into a folder of its own, beside the environment that runs everything.

params  package ("coremltools==8.3.0"), python ("3.11"), requirements (True: with what the package needs; absent: the package
        alone, which takes what it needs from the environment)
leaves  site/; installed.txt: a line "name==version" for each package of it

The conversion's process finds that folder before the environment's own packages (runner/task_runner.py).
"""

import shutil
import subprocess
import sys
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

from ane_sweep.bridge.protocol import SITE
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.worker import params
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=5, many="installs", timeout_s=1800, memory_gib=4, base_gib=0.3, per_byte=0.0, base_s=20, per_gb_s=0,
    network=True, limited=False, leaves="packages",
)  # fmt: skip


class Params(params.Params, frozen=True):
    """The requirement, and the version of Python that it is installed for."""

    package: str
    python: str
    requirements: bool = False


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Install the package. Raises StageError with the installer's own words."""
    given = Params.read(params)
    wanted, alone = given.package, [] if given.requirements else ["--no-deps"]
    command = [*_find_installer(), "install", "--quiet", *alone, "--target", str(out / SITE), wanted]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if "WARNING" not in line and line.strip()]
        raise StageError(
            f"{wanted} could not be installed: {' '.join(lines)[-1500:] or f'exit code {done.returncode}'}"
        )
    found = sorted(f"{one.name}=={one.version}\n" for one in distributions(path=[str(out / SITE)]))
    (out / "installed.txt").write_text("".join(found), encoding="utf-8")
    return StageResult()


def _find_installer() -> list[str]:
    if find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check"]
    if uv := shutil.which("uv"):
        return [uv, "pip"]
    raise StageError("another version is installed by pip or uv, and neither is here: pip install pip")
