"""Suites: test modules of the installed coremltools, by patterns relative to its folder."""

import importlib.util
from pathlib import Path

SUITES = {
    "mil_ops": ["converters/mil/mil/ops/tests/**/test_*.py"],
    "passes": ["converters/mil/mil/passes/tests/test_*.py", "converters/mil/backend/mil/passes/test_*.py"],
    "mil": [
        "converters/mil/mil/tests/test_*.py",
        "converters/mil/backend/mil/test_*.py",
        "converters/mil/frontend/milproto/test_*.py",
        "converters/mil/test_*.py",
    ],
    "torch_ops": [
        "converters/mil/frontend/torch/test/test_torch_ops.py",
        "converters/mil/frontend/torch/test/test_torch_quantization_ops.py",
    ],
    "torch_api": ["converters/mil/frontend/torch/test/test_*.py"],
    "ml_program": ["test/ml_program/**/test_*.py"],
    "api": [
        "test/api/test_*.py",
        "test/modelpackage/test_*.py",
        "test/blob/test_*.py",
        "test/pipeline/test_pipeline.py",
    ],
    "optimize_coreml": ["test/optimize/coreml/test_*.py", "test/optimize/api/test_*.py", "test/optimize/test_*.py"],
    "optimize_torch": ["test/optimize/torch/**/test_*.py"],
}


def folder() -> Path:
    """Where coremltools is installed; found without importing it."""
    spec = importlib.util.find_spec("coremltools")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("coremltools is not installed: pip install coremltools==9.0")
    return Path(next(iter(spec.submodule_search_locations)))


def resolve(words: list[str]) -> dict[str, list[Path]]:
    """Files by suite for names of suites, files, or parts of their paths; all suites where nothing is given."""
    root, found = folder(), {}
    for name, patterns in SUITES.items():
        found[name] = sorted({path for pattern in patterns for path in root.glob(pattern)})
    found["torch_api"] = [path for path in found["torch_api"] if path not in found["torch_ops"]]
    if not words:
        return found
    chosen: dict[str, list[Path]] = {}
    for word in words:
        if word in found:
            chosen[word] = found[word]
            continue
        wanted = word.removeprefix("coremltools/")
        hits = {
            name: [path for path in paths if wanted in path.relative_to(root).as_posix()]
            for name, paths in found.items()
        }
        if not any(hits.values()):
            raise SystemExit(f"no suite and no test file is called {word!r}; suites: {', '.join(SUITES)}")
        for name, paths in hits.items():
            chosen[name] = sorted({*chosen.get(name, []), *paths})
    return {name: paths for name, paths in chosen.items() if paths}
