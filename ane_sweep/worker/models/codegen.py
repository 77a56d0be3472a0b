"""CodeGen: like GPT-J, with one norm for attention and feed-forward in parallel, and neighbouring channels rotated."""

from dataclasses import replace

import torch

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _ane, _layouts, gptj
from ane_sweep.worker.models._types import Dynamic

_SHARDS = 4  # the fused projection is stored as four shards (a trace of the training hardware), each query, value, key


def _attention(config: Dynamic, read: _ane.Reader) -> _layouts.Convs:
    rows = torch.arange(3 * config.hidden_size).view(_SHARDS, 3, -1)
    query, key, value = (read.conv("attn.qkv_proj", rows[:, part].flatten()) for part in (0, 2, 1))
    return query, key, value, read.conv("attn.out_proj")


FAMILY = replace(
    gptj.FAMILY,
    config="CodeGenConfig",
    builds={"causal_lm": "CodeGenForCausalLM"},
    ignored=(r"(transformer\.)?h\.\d+\.attn\.causal_mask$",),
    attention=_attention,
)
SERVES = Serves(
    architectures={"CodeGenForCausalLM": "causal_lm"},
    model_types=("codegen",),
    layers="n_layer",
    longest="n_positions",
    tied=False,
)
