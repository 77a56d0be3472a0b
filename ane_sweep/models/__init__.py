"""Model families, one file each; the file's name is its registration.

A family `models/<family>.py` holds

    VARIANTS = {"original": fn, "split_einsum": fn}   a literal dict; `variants` reads its keys without importing
    fn(model, state, seq_len, options) -> Module      eval mode, fp32; graph inputs in, tuple of outputs out
    skeleton(model) -> torch.nn.Module                the Hugging Face module itself, built on the meta device
    ports(model, seq_len, options) -> Ports           names, shapes and dtypes of the graph's inputs and outputs
    RENAMED                                           optional: (beginning of a checkpoint's name, the module's) pairs
    IGNORED                                           patterns of checkpoint tensors that this family has no use for

`options` are those of `_options.py`, optional; decoders and encoders of a known shape are one `Family` of names, see
`_decoder.py` and `_encoder.py`. `model` is {"family", "task", "arch"}; `state` maps Hugging Face tensor names to fp32
tensors (`weights.load_state`).
This file imports nothing heavy: the planner calls it.
"""

import ast
import importlib
import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

from ane_sweep.errors import ConfigError

_HERE = Path(__file__).parent
_NOT_FAMILIES = {"weights"}


def names() -> list[str]:
    """Known families, sorted: the modules of this folder that are not helpers."""
    found = {path.stem for path in _HERE.glob("*.py")}
    return sorted(name for name in found - _NOT_FAMILIES if not name.startswith("_"))


def get(family: str) -> ModuleType:
    """Import a family (and with it torch). Raises ConfigError for an unknown name; a broken import is not caught."""
    _find(family)
    return importlib.import_module(f"{__name__}.{family}")


@cache
def variants(family: str) -> list[str]:
    """Names of a family's variants, read from its source without importing it (torch stays out of the planner)."""
    path = _find(family)
    for node in ast.parse(path.read_text(encoding="utf-8"), str(path)).body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)):
            continue
        if any(isinstance(target, ast.Name) and target.id == "VARIANTS" for target in node.targets):
            return [ast.literal_eval(key) for key in node.value.keys if key is not None]
    raise ConfigError(f'{path} has no top-level `VARIANTS = {{"name": function}}`; write one, as the other families do')


def _find(family: str) -> Path:
    known = names()
    # The listing is compared before find_spec so that a name such as "os.path" or "_ane" is never a family.
    spec = importlib.util.find_spec(f"{__name__}.{family}") if family in known else None
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"unknown model family {family!r}; known: {', '.join(known)}. To add it, write "
            f"ane_sweep/models/{family}.py and conf/model/<name>.yaml with `family: {family}`"
        )
    return Path(spec.origin)
