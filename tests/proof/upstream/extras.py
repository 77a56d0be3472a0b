"""What coremltools' tests import beyond ane-sweep's own dependencies; `pip install ane-sweep[upstream]` has it all."""

import importlib.util
import subprocess
import sys
from pathlib import Path

# module -> requirement
NEEDED = {
    "PIL": "pillow>=10",
    "accelerate": "accelerate>=1.0",  # peft's
    "mock": "mock>=5",
    "pandas": "pandas>=2",
    "peft": "peft>=0.15",
    "pytest": "pytest>=8.2",
    "pytest_asyncio": "pytest-asyncio>=1.0",
    "pytest_mock": "pytest-mock>=3.14",
    "pytest_timeout": "pytest-timeout>=2.3",
}


def ensure(target: Path) -> list[Path]:
    """Install what is missing into `target`, aside from the environment; returns what to put on PYTHONPATH."""
    if target.is_dir():
        sys.path.append(str(target))
        importlib.invalidate_caches()
    missing = [requirement for module, requirement in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        print(f"installing {', '.join(missing)} into {target}", flush=True)
        pip = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--no-deps"]
        done = subprocess.run([*pip, "--target", str(target), *missing], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"pip could not install {', '.join(missing)}: {done.stderr.strip()[-500:]}")
    return [target] if target.is_dir() else []
