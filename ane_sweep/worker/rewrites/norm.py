"""norm: a layer norm as one op of the Neural Engine, as separate ops, or partly in fp32."""

from collections.abc import Callable

from ane_sweep.bridge.rewrites import Rewrite
from ane_sweep.worker.rewrites import Op, module_names

REWRITE = Rewrite(
    order=20,
    help="the norms of an fp16 program: one op, single ops in fp16, those with their means in fp32, or all of them in fp32",
    plain="fp16",
    choices=("fp16", "fp16_ops", "fp32_mean", "fp32"),
    changes="program",
    only=(
        {
            "other": "variant", "among": ("split_einsum",), "when": ("fp16_ops", "fp32_mean"),
            "why": "norm={value} needs a norm of single ops, and variant={variant} has it in one; "
            "use variant=split_einsum, or norm=fp32",
        },
        {
            "other": "compute", "among": ("fp16",),
            "why": "norm={value} asks for more than fp16, which precision={compute} already gives; use norm=fp16",
        },
    ),
)  # fmt: skip
FUSES = "common::fuse_layernorm_or_instancenorm"


def change_left_out(names: set[str], value: str) -> None:
    if value != "fp32":
        names.add(FUSES)


def select_fp32(value: str) -> Callable[[Op], bool] | None:
    if value == "fp16_ops":
        return None
    if value == "fp32_mean":
        return lambda op: op.op_type == "reduce_mean"
    return lambda op: op.op_type == "layer_norm" or any(name.endswith("Norm") for name in module_names(op))
