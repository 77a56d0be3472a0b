"""lm_head_splits: the vocabulary projection in several convolutions.

The Neural Engine does not accept a single weight of a vocabulary's size; its pieces may fit.
"""

from torch import nn

from ane_sweep.bridge.rewrites import Rewrite
from ane_sweep.worker.models import _ane
from ane_sweep.worker.models._ports import Ports

REWRITE = Rewrite(
    order=10,
    help="decoders: convolutions that share the vocabulary",
    plain=1,
    most=1000,
    why="each is an op of its own",
    changes="module",
    models="decoders",
    only=(
        {
            "other": "variant", "among": ("split_einsum",),
            "why": "lm_head_splits={value} rewrites the head, and variant={variant} is left as it is; use variant=split_einsum",
        },
    ),
)  # fmt: skip


def rewrite(module: nn.Module, ports: Ports, value: int) -> nn.Module:
    for head in module.modules():
        if isinstance(head, _ane.Head):
            head.split(value)
    return module
