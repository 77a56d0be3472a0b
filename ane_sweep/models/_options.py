"""What can be varied in how a model is built, and who can honour it. Standard library only: the planner asks, too.

head            all | last          logits of every position, or of the last one alone (selected before the projection)
mask            causal_const | causal_input | qk_and_k
                                    the causal mask as a constant, as an input `causal_mask` (1,1,S,S), or as that
                                    and a second one, `key_mask` (1,S), 1 where a key may be seen
embeddings      in | out            the lookup inside the program, or outside: `inputs_embeds` (1,S,C) in place of ids
lm_head_splits  1 ..                convolutions that share the vocabulary
norm            fp16 | fp32_mean | fp32
                                    dtype of the norms in an fp16 program: the fused op in fp16, the norm as single
                                    ops with its means in fp32, the whole norm in fp32 (applied by stages/convert.py)
pad_last_axis   0 | 64              the sequence inside the program padded to a multiple of this
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Options:
    """One value for each; the defaults are the plain model."""

    head: str = "all"
    mask: str = "causal_const"
    embeddings: str = "in"
    lm_head_splits: int = 1
    norm: str = "fp16"
    pad_last_axis: int = 0

    def changed(self, *names: str) -> dict[str, Any]:
        """The options that are not at their default, of those named (or of all): what enters a key."""
        return {k: v for k, v in asdict(self).items() if v != asdict(PLAIN)[k] and (not names or k in names)}

    def padded(self, seq_len: int) -> int:
        """Length of the sequence inside the program."""
        return -(-seq_len // self.pad_last_axis) * self.pad_last_axis if self.pad_last_axis else seq_len


PLAIN = Options()
NAMES = tuple(field.name for field in fields(Options))
# These change what goes in and comes out, and so the reference outputs; the others must not change the outputs at all.
INTERFACE = ("head", "mask", "embeddings")
IN_TORCH = (*INTERFACE, "lm_head_splits", "pad_last_axis")  # the rest is up to the conversion


def options(params: Mapping[str, Any]) -> Options:
    """The options of a stage's params (`params["options"]`, absent or partial where defaults hold)."""
    return Options(**params.get("options", {}))


def refusal(
    chosen: Options, *, model: str, task: str, variant: str, compute: str, seq_len: int, longest: int
) -> str | None:
    """Why this model cannot be built that way, in one sentence; None when it can. `longest` in tokens."""
    changed = chosen.changed()
    decoder_only = [name for name in ("head", "mask", "lm_head_splits") if name in changed]
    if task != "causal_lm" and decoder_only:
        name = decoder_only[0]
        return f"{name}={changed[name]} is for decoders; {model} is of task {task}, which has no causal mask and head"
    if task == "seq2seq" and "embeddings" in changed:
        return f"embeddings=out is not built for {model}: encoder and decoder each look up their own; use embeddings=in"
    if variant == "original" and chosen.lm_head_splits > 1:
        return (
            f"lm_head_splits={chosen.lm_head_splits} rewrites the head, and variant=original is left as it is; "
            "use variant=split_einsum"
        )
    if variant == "original" and chosen.norm == "fp32_mean":
        return (
            "norm=fp32_mean needs a norm of single ops, and variant=original has it in one; "
            "use variant=split_einsum, or norm=fp32"
        )
    if compute != "fp16" and chosen.norm != "fp16":
        return f"norm={chosen.norm} asks for more than fp16, which precision={compute} already gives; use norm=fp16"
    if chosen.padded(seq_len) > longest:
        return (
            f"pad_last_axis={chosen.pad_last_axis} makes seq_len={seq_len} {chosen.padded(seq_len)} inside, beyond the "
            f"{longest} positions of {model}"
        )
    return None
