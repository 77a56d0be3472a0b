"""The ONNX ops that have a conversion to torch, read from the sources of onnx2torch and of ours without importing them."""

import importlib.util
import re
from functools import cache
from pathlib import Path

import ane_sweep

NEEDED = ("onnx", "onnx2torch", "onnxruntime")
OURS = Path(ane_sweep.__file__).parent / "worker" / "models" / "_onnx_ops.py"
FOLDED = {"QuantizeLinear", "DequantizeLinear"}  # worker/models/_onnx_graph.py takes them out
BRANCHES = {"If"}  # folded there, if shapes alone decide them
_REGISTERED = re.compile(r"""add_converter\(\s*operation_type=['"](\w+)""")


def find_missing() -> list[str]:
    """Return the names of the packages of the extra `onnx` that are not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


@cache
def list_converted() -> frozenset[str]:
    """Return the types of ops with a converter. The package onnx2torch must be installed."""
    spec = importlib.util.find_spec("onnx2torch")
    folders = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    files = [path for folder in folders for path in Path(folder, "node_converters").glob("*.py")]
    return frozenset(name for path in [*files, OURS] for name in _REGISTERED.findall(path.read_text(encoding="utf-8")))


def safe_name(name: str) -> str:
    """Return a graph value's name as an input or output of a program has it: letters, digits and _."""
    safe = re.sub(r"\W", "_", name)
    return safe if safe[:1].isalpha() or safe[:1] == "_" else f"_{safe}"
