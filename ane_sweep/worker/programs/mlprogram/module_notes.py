"""The names and source lines of a torch model's modules, which a conversion notes in its package's metadata."""

import inspect
import json
from collections.abc import Iterable
from pathlib import Path

from torch import nn

from ane_sweep.mil.modules import NOTES_KEY


def note_modules(models: Iterable[nn.Module]) -> dict[str, str]:
    """Return the metadata that mil/modules.py reads: the path of each module, its class, and the line of its `forward`.

    A line is named by file, without a folder, so that equal models give equal packages on every machine.
    """
    lines = {
        path: f"{type(module).__name__} at {_find_line(module)}"
        for model in models for path, module in model.named_modules()
    }  # fmt: skip
    return {NOTES_KEY: json.dumps(lines, separators=(",", ":"))}


def _find_line(module: nn.Module) -> str:
    forward = getattr(type(module), "forward", None)  # a TorchScript module's class has none
    code = getattr(inspect.unwrap(forward), "__code__", None) if forward else None
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else "a native module"
