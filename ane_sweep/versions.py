"""The version of each stage: a digest of the code that decides its result."""

import hashlib
from functools import cache
from pathlib import Path

from ane_sweep import models

PACKAGE = Path(__file__).parent
CODE = {  # stage -> the code that decides its result, beside stages/NAME.py; a test follows the imports
    "fetch": [],
    "reference": ["models/*.py", "nanogpt.py", "foreign.py", "data/*.txt", "stages/_arrays.py", "stages/_tokens.py"],
    "convert": ["models/*.py", "nanogpt.py", "foreign.py", "stages/_lean.py", "stages/_package.py"],
    "calibrate": [
        "compress/*",
        "recipes.py",
        "stages/_*.py",
        "stats/*.py",
        "coreml_anywhere/*",
        "runtimes/**/*.py",
        "mil/**/*.py",
        "foreign.py",
    ],
    "compress": ["compress/*", "recipes.py", "stats/psnr.py", "stages/_package.py", "mil/**/*.py", "foreign.py"],
    "chunk": ["mil/**/*.py", "placement/**/*", "foreign.py"],  # placement: where a program is cut by time
    "predict": ["placement/**/*", "mil/**/*.py", "foreign.py"],
    "compile": ["runtimes/_coremltools.py"],
    "place": ["stages/_*.py", "stats/*.py", "placement/path.py", "runtimes/_coremltools.py"],
    "load": ["stages/_*.py", "stats/*.py", "stages/compile.py", "runtimes/*.py", "mil/identity.py"],
    "latency": ["stages/_*.py", "stats/*.py", "runtimes/**/*.py", "mil/**/*.py"],
    "score": ["stages/_*.py", "stats/*.py", "runtimes/**/*.py", "mil/**/*.py"],
    "throughput": ["stages/_*.py", "stats/*.py", "runtimes/**/*.py", "mil/**/*.py"],
    "evidence": ["evidence/*", "stats/*.py", "runtimes/**/*.py", "mil/**/*.py"],
}


@cache
def code_digest(stage: str, family: str | None) -> str:
    """sha256 of the code that decides a stage's result: the stage's version, which nobody can forget to raise.

    Families other than the task's own are left out, so that adding one invalidates nothing.
    """
    others = {PACKAGE / "models" / f"{name}.py" for name in models.names() if name != family}
    sha256 = hashlib.sha256()
    for path in sorted(code_files(stage, family) - others):
        sha256.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return sha256.hexdigest()


def code_files(stage: str, family: str | None) -> set[Path]:
    """The files that count, those of all families among them."""
    files = {PACKAGE / "stages" / f"{stage}.py"}
    for pattern in [*CODE[stage], *(["models/*.py"] if family else [])]:
        files |= {path for path in PACKAGE.glob(pattern) if path.is_file() and "__pycache__" not in path.parts}
    return files
