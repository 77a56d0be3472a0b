"""A checkpoint (a folder, or a hub id that was fetched) of a class that no family serves: it becomes model=module of
transformers' own class, as `original`.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ane_sweep.errors import ConfigError
from ane_sweep.planner import options
from ane_sweep.planner.checkpoint_files import is_folder

_IMAGE, _CHANNELS = 224, 3  # transformers' defaults, where config.json leaves them out


def option(name: str, folder: Path, config: Mapping[str, object]) -> dict[str, object] | None:
    """Return the option of a checkpoint folder, or None if transformers has no such class or its inputs are not known.

    Raises ConfigError if the weights are not there.
    """
    listed = config.get("architectures")
    kind = listed[0] if isinstance(listed, list) and listed else None
    inputs, weights = _describe_inputs(config), sorted(folder.glob("*.safetensors"))
    if not isinstance(kind, str) or (config.get("model_type"), kind) not in _list_classes() or inputs is None:
        return None
    if not weights:
        fetch = "" if is_folder(name) else f": hf download {name.partition('@')[0]}"
        raise ConfigError(
            f"model={name}: {kind} is taken as transformers has it, and its *.safetensors are not in {folder}; fetch them{fetch}"
        )
    return {
        **options.shipped("model", "module"), "name": name, "size": kind, "inputs": inputs,
        "path": f"transformers:{kind}.from_pretrained", "sources": [str(path) for path in (folder / "config.json", *weights)],
        "kwargs": {"pretrained_model_name_or_path": str(folder.absolute()), "attn_implementation": "eager", "use_safetensors": True},
    }  # fmt: skip


def _describe_inputs(config: Mapping[str, object]) -> dict[str, object] | None:
    """Return model.inputs: token ids for a model with a vocabulary, pictures for one with channels; None for another."""
    vocabulary, size = config.get("vocab_size"), config.get("image_size")
    if isinstance(vocabulary, int) and vocabulary > 0:
        return {"input_ids": {"shape": [1, "${seq_len}"], "dtype": "int64", "range": [0, vocabulary]}}
    if size is None and "num_channels" not in config:
        return None
    channels, side = config.get("num_channels", _CHANNELS), _IMAGE if size is None else size
    return {"pixel_values": [1, channels, side, side]} if isinstance(channels, int) and isinstance(side, int) else None


@cache
def _list_classes() -> frozenset[tuple[str, str]]:
    """Return the pairs (model_type, class) that the installed transformers can load, read from its tables."""
    spec = find_spec("transformers")
    tables = Path(spec.origin).parent / "models" / "auto" / "modeling_auto.py" if spec and spec.origin else Path()
    text = tables.read_text(encoding="utf-8") if tables.is_file() else ""
    return frozenset(re.findall(r'\("([\w-]+)", "(\w+)"\)', text))
