"""Model families, one file each; the file's name registers the family.

A family `models/<family>.py` holds SERVES, if it takes checkpoints of transformers, and a declaration

    FAMILY = DecoderFamily(...)    or another subclass of `_family.Family`, whose variants are original and split_einsum

or, in its place, what such a declaration gives:

    VARIANTS = {"original": fn, "split_einsum": fn}   a literal dict; bridge/families.py reads its keys without importing
    fn(model, state, seq_len, options) -> Module      eval mode, fp32; graph inputs in, tuple of outputs out
    skeleton(model) -> torch.nn.Module                the module whose parameters are the weights: Hugging Face's, or one's own
    ports(model, seq_len, options) -> Ports           names, shapes and dtypes of the graph's inputs and outputs
    RENAMED                                           optional: (pattern in a checkpoint's name, the module's) pairs
    IGNORED                                           optional: patterns of checkpoint tensors that this family has no use for

`options` are those of bridge/building.py, optional. `model` is {"family", "task", "arch"}; `state` maps Hugging Face tensor names to fp32
tensors (`weights.load_state`).
"""

import importlib
from types import ModuleType

from ane_sweep.bridge import families, plugins


def get(family: str) -> ModuleType:
    """Import a family (and with it torch). Raises ConfigError for an unknown name; a broken import is not caught."""
    if (plugin := families.plugin_of(family)) is not None:
        module = plugins.import_plugin(plugin)
    else:
        families.source(family)
        module = importlib.import_module(f"{__name__}.{family}")
    if "FAMILY" in vars(module) and "VARIANTS" not in vars(module):
        vars(module).update(module.FAMILY.members())
    return module
