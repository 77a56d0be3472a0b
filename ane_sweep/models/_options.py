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
cache           none | stateful     decoders: keys and values kept in states between calls, see _cache.py
inputs          int32 | fp16        dtype of the token ids; with fp16 all inputs but `cache_position` are fp16, as in
                                    the notebooks, which is exact for ids up to 2,048 (applied by stages/convert.py)
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ane_sweep.cell import TARGETS

PREFILL, DECODE = "prefill", "decode"  # the functions of a program with cache=stateful
POSITION = "cache_position"  # the input of decode that says where its token stands
STEPS = 32  # tokens that are decoded one by one where such a program is scored
FP16_EXACT = 2048  # beyond this, fp16 has not every whole number (11 bits of significand)


@dataclass(frozen=True)
class Options:
    """One value for each; the defaults are the plain model."""

    head: str = "all"
    mask: str = "causal_const"
    embeddings: str = "in"
    lm_head_splits: int = 1
    norm: str = "fp16"
    pad_last_axis: int = 0
    cache: str = "none"
    inputs: str = "int32"

    def changed(self, *names: str) -> dict[str, Any]:
        """The options that are not at their default, of those named (or of all): what enters a key."""
        mine, plain = vars(self), vars(PLAIN)
        return {name: mine[name] for name in NAMES if mine[name] != plain[name] and (not names or name in names)}

    def padded(self, seq_len: int) -> int:
        """Length of the sequence inside the program."""
        return -(-seq_len // self.pad_last_axis) * self.pad_last_axis if self.pad_last_axis else seq_len


PLAIN = Options()
NAMES = tuple(field.name for field in fields(Options))
# These change what goes in and comes out, and so the reference outputs; the others must not change the outputs at all.
INTERFACE = ("head", "mask", "embeddings")
IN_TORCH = (*INTERFACE, "lm_head_splits", "pad_last_axis", "cache")  # the rest is up to the conversion


def options(params: Mapping[str, Any]) -> Options:
    """The options of a stage's params (`params["options"]`, absent or partial where defaults hold)."""
    return Options(**params.get("options", {}))


def refusal(
    chosen: Options,
    *,
    model: str,
    task: str,
    variant: str,
    compute: str,
    seq_len: int,
    longest: int,
    target: str,
    vocabulary: int,
) -> str | None:
    """Why this model cannot be built that way, in one sentence; None when it can.

    longest     positions that the model has
    target      the oldest OS, as an iOS name
    vocabulary  token ids that the model knows
    """
    reasons = (
        _wrong_task(chosen, model, task),
        _wrong_variant(chosen, variant),
        _wrong_precision(chosen, compute),
        _wrong_target(chosen, target),
        _wrong_size(chosen, model, seq_len, longest, vocabulary),
    )
    return next((reason for reason in reasons if reason), None)


def _wrong_task(chosen: Options, model: str, task: str) -> str | None:
    if task == "features" and (changed := chosen.changed()):
        name, value = next(iter(changed.items()))
        return f"{name}={value}: {model} is a probe of plain layers, which has nothing of the kind; leave it out"
    changed = chosen.changed("head", "mask", "lm_head_splits", "cache")
    if task != "causal_lm" and changed:
        name, value = next(iter(changed.items()))
        lacks = "decodes no text" if name == "cache" and task != "seq2seq" else "has no causal mask and head"
        if task == "seq2seq" and name == "cache":
            lacks = "is one program that encodes and decodes a whole window"
        return f"{name}={value} is for decoders; {model} is of task {task}, which {lacks}"
    if task == "seq2seq" and chosen.embeddings == "out":
        return f"embeddings=out is not built for {model}: encoder and decoder each look up their own; use embeddings=in"
    return None


def _wrong_variant(chosen: Options, variant: str) -> str | None:
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
    return None


def _wrong_precision(chosen: Options, compute: str) -> str | None:
    if compute != "fp16" and chosen.norm != "fp16":
        return f"norm={chosen.norm} asks for more than fp16, which precision={compute} already gives; use norm=fp16"
    if compute != "fp16" and chosen.cache == "stateful":
        return f"cache=stateful keeps fp16, the one dtype of Core ML's states, and precision={compute} promises more"
    return None


def _wrong_target(chosen: Options, target: str) -> str | None:
    for name, value, least, what in (
        ("cache", "stateful", "iOS18", "states"),
        ("inputs", "fp16", "iOS16", "fp16 inputs"),
    ):
        if getattr(chosen, name) == value and TARGETS.index(target) < TARGETS.index(least):
            return f"{name}={value} needs target={least} or newer, not {target}: {what} came with it"
    return None


def _wrong_size(chosen: Options, model: str, seq_len: int, longest: int, vocabulary: int) -> str | None:
    if chosen.padded(seq_len) > longest:
        return (
            f"pad_last_axis={chosen.pad_last_axis} makes seq_len={seq_len} {chosen.padded(seq_len)} inside, beyond the "
            f"{longest} positions of {model}"
        )
    if chosen.inputs == "fp16" and chosen.embeddings == "in" and vocabulary - 1 > FP16_EXACT:
        return (
            f"inputs=fp16: {model} has {vocabulary:,} token ids, and fp16 holds whole numbers exactly up to "
            f"{FP16_EXACT:,} only; use embeddings=out, whose inputs are numbers, or inputs=int32"
        )
    return None
