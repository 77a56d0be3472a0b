"""Options of how a model is built, and the families and runtimes that support each. Standard library only, for the planner.

An option that differs from its default is part of the keys of those stages only that use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from ane_sweep.bridge import families, rewrites
from ane_sweep.bridge.axes import RUNS, Asked, Only, axis, since
from ane_sweep.bridge.kinds import tasks_with
from ane_sweep.bridge.rewrites import FOR_DECODERS, IN_TORCH, MODELS, OF_POSITIONS, REWRITES, round_up

PREFILL, DECODE = "prefill", "decode"  # the functions of a program with a cache
NEW = "new_"  # before the name of a key or value that comes in, with cache=explicit: what goes out in its place
POSITION = "cache_position"  # the input of decode that says where its token stands
STEPS = 32  # tokens that are decoded one by one where such a program is scored
FP16_EXACT = 2048  # beyond this, fp16 has not every whole number (11 bits of significand)

# The stages of axes that change what goes in and comes out, and so the reference outputs.
_interface = partial(axis, enters=("reference", "examples", "convert", RUNS))


def _own_mask(asked: Asked) -> str | None:
    served = families.serves(asked["family"])
    if asked["variant"] != "original" or served is None or not served.own_mask:
        return None
    said = [f"{name}={asked[name]}" for name in ("mask", "cache") if asked[name] != getattr(PLAIN, name)]
    if not said:
        return None
    why = f"transformers' own module of {asked['model']} makes its causal mask and keeps nothing"
    return f"{' '.join(said)} with variant=original is not built: {why}; leave it out, or use variant=split_einsum"


def _ids_beyond_fp16(asked: Asked) -> str | None:
    vocabulary = asked["vocabulary"]
    if asked["inputs"] == "fp16" and asked["embeddings"] == "in" and vocabulary - 1 > FP16_EXACT:
        return (
            f"inputs=fp16: {asked['model']} has {vocabulary:,} token ids, and fp16 holds whole numbers exactly up to "
            f"{FP16_EXACT:,} only; use embeddings=out, whose inputs are numbers, or inputs=int32"
        )
    return None


def _came_with(target: str, what: str) -> Only:
    why = f"{{name}}={{value}} needs target={target} or newer, not {{ios_target}}: {what} came with it"
    return Only("ios_target", since(target), why)


@dataclass(frozen=True)
class _Interface:
    """Options of a model's inputs and outputs.

    head    positions selected before the projection to the vocabulary
    mask    a constant (one for all heads, or a copy for each), computed inside the program as converters of 2023 wrote
            it, an input
            `causal_mask` (1,1,S,S), or that and a second one, `key_mask` (1,S), 1 where a key may be seen
    mask_dtype  fp32: the additions of the causal mask stay in fp32 (applied by stages/convert.py)
    batch   inputs in one prediction; rows of a batch do not affect each other
    classes  probabilities and the class's name in place of logits, as exporters write classifiers
    embeddings  outside: `inputs_embeds` (1,S,C) in place of ids
    """

    head: str = _interface(
        "decoders: logits of every position, or of the last one",
        choices=("all", "last"),
        plain="all",
        only=MODELS["decoders"],
    )
    mask: str = _interface(
        "decoders: the causal mask",
        choices=("causal_const", "causal_per_head", "band_part", "causal_input", "qk_and_k"),
        plain="causal_const",
        only=(
            *MODELS["decoders"],
            Only(
                "variant",
                ("original",),
                "mask=causal_per_head with variant={variant}: each head adds its own there, and coremltools keeps equal constants "
                "once, as mask=causal_const does; use variant=original",
                when=("causal_per_head",),
            ),
            Only(
                "cache",
                ("none",),
                "mask={value} with cache={cache} is not built: decode takes one row of a mask; use mask=causal_const",
                when=("causal_per_head", "band_part"),
            ),
        ),
        refuses=_own_mask,
    )
    mask_dtype: str = axis(
        "decoders, fp16 programs: the dtype in which the causal mask is added",
        choices=("fp16", "fp32"),
        plain="fp16",
        enters=("convert",),
        only=(
            *MODELS["decoders"],
            Only(
                "compute",
                ("fp16",),
                "mask_dtype={value} asks for more than fp16, which precision={compute} already gives; use mask_dtype=fp16",
            ),
        ),
    )
    batch: int = axis(
        "inputs in one prediction",
        least=1,
        most=1024,
        why="all of them are in memory at once",
        plain=1,
        enters=IN_TORCH,
        only=(
            Only(
                "task",
                OF_POSITIONS,
                "batch={value} is built for models that take seq_len positions; {model} is of task {task}; leave it out",
            ),
            Only("copies", (1,), "batch={value} with copies={copies} is not built: only one is timed; use copies=1"),
        ),
    )
    classes: str = _interface(
        "classifiers: what comes out, logits, or probabilities and the class's name as exporters have it",
        choices=("logits", "labels"),
        plain="logits",
        only=(
            *MODELS["blocks"],
            Only(
                "task",
                tasks_with(lambda kind: kind.leaves == "labels" and bool(kind.reads)),
                "classes={value} is for classifiers of texts, and {model} is of task {task}",
            ),
            Only("batch", (1,), "classes={value} with batch={batch}: Core ML names one input's class; use batch=1"),
            Only(
                "precision",
                ("fp16", "fp32"),
                "classes={value} with precision={precision} is not built: coremltools compresses no classifier's program here; "
                "use precision=fp16",
            ),
            Only(
                "chunks",
                (1,),
                "classes={value} with chunks={chunks} is not built: a class's name crosses no cut; use chunks=1",
            ),
        ),
    )
    embeddings: str = _interface(
        "the token lookup inside the program, or outside",
        choices=("in", "out"),
        plain="in",
        only=(
            *MODELS["texts"],
            Only(
                "task",
                tasks_with(lambda kind: kind.length == "seq_len" and not kind.pair),
                "embeddings=out is not built for {model}: encoder and decoder each look up their own; use embeddings=in",
            ),
        ),
    )


if TYPE_CHECKING:

    class RewriteAxes:
        """The axes that rewrites add; worker/rewrites declares them."""
else:
    RewriteAxes = rewrites.make_axes()


@dataclass(frozen=True)
class Options(RewriteAxes, _Interface):
    """The build options of one model, one value each; the defaults build the unchanged model.

    cache   the form of the key-value cache: see _cache.py
    inputs  with fp16 all inputs but `cache_position` are fp16, as in the notebooks, which is exact for ids up to 2,048
            (applied by stages/convert.py)
    """

    cache: str = axis(
        "decoders: keys and values kept between calls, in states, or as inputs and outputs",
        choices=("none", "stateful", "explicit"),
        plain="none",
        enters=IN_TORCH,
        only=(
            *MODELS["texts"],
            Only("task", tasks_with(lambda kind: kind.leaves == "tokens"), f"{FOR_DECODERS}decodes no text"),
            Only(
                "task",
                tasks_with(lambda kind: kind.causal),
                f"{FOR_DECODERS}is one program that encodes and decodes a whole window",
            ),
            Only(
                "compute",
                ("fp16",),
                "cache={value} keeps fp16, the one dtype of Core ML's states, and precision={compute} promises more",
            ),
            _came_with("iOS18", "programs of several functions"),
            Only(
                "copies",
                (1,),
                "copies={copies} with cache={value} is not built: copies are timed by whole predictions; use copies=1",
            ),
            Only(
                "device",
                ("local",),
                "device=usb with cache={value} is not built: predictions there keep nothing; use device=local",
            ),
            Only("batch", (1,), "batch={batch} with cache={value} is not built: one text is decoded; use batch=1"),
        ),
        refuses=_own_mask,
    )
    inputs: str = axis(
        "dtype of token ids, or of all inputs of the program",
        choices=("int32", "fp16"),
        plain="int32",
        enters=("convert",),
        only=(*MODELS["blocks"], _came_with("iOS16", "fp16 inputs")),
        refuses=_ids_beyond_fp16,
    )
    output_type: str = axis(
        "dtype of the program's float outputs; auto: fp16 of an fp16 program from iOS16 on, else fp32",
        choices=("auto", "fp16", "fp32"),
        plain="auto",
        enters=("convert",),
        only=(
            Only(
                "cache",
                ("none",),
                "output_type={value} with cache={cache}: a cache has the dtype of its outputs; use output_type=auto",
            ),
            Only(
                "ios_target",
                since("iOS16"),
                "output_type=fp16 needs target=iOS16 or newer, not {ios_target}",
                when=("fp16",),
            ),
        ),
        late=True,
    )

    def padded(self, seq_len: int) -> int:
        """Return the length of the sequence inside the program."""
        for name, rewrite in REWRITES.items():
            seq_len = round_up(seq_len, getattr(self, name)) if rewrite.pads else seq_len
        return seq_len


PLAIN = Options()
_NAMES = frozenset(field.name for field in fields(Options))


def options(params: Mapping[str, Any]) -> Options:
    """Return the options of a stage's params (`params["options"]`, absent or partial if defaults hold)."""
    return Options(**{name: value for name, value in params.get("options", {}).items() if name in _NAMES})
