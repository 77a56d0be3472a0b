"""Modules that a test gives, as `model=module` converts them."""

import sys
from pathlib import Path
from typing import Any

import pytest

from ane_sweep.planner import modules


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """Return a function that puts a file of nets into an empty folder of one's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield lambda source: Path("nets.py").write_text(Path(source).read_text())
    for name in [name for name, one in sys.modules.items() if str(tmp_path) in str(getattr(one, "__file__", ""))]:
        del sys.modules[name]


def asked(kwargs: dict[str, Any], shape: list[int], compute: str) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return the parameters and inputs of the conversion of `made(**kwargs)` in nets.py."""
    option = {"name": "module", "path": "nets.py:made", "kwargs": kwargs, "inputs": {"x": shape}}
    source = modules.resolve(option, "pretrained", 0, Path("d.json"))
    params = {
        "model": {"family": "module", "task": "tensors", "arch": dict(source.arch)}, "seq_len": 0, "compute": compute,
        "weights": {"kind": source.kind, "digest": source.digest, "allow_pickle": False, "seed": 0}, "target": "iOS18",
        "texts": {"count": 2, "seed": 0, "text": "x", "tokenizer": None}, "variant": "original", "options": {},
    }  # fmt: skip
    return params, dict(source.beside)
