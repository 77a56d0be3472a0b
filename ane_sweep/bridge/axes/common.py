"""Axes that every cell has: the model, how it is written and converted, and its runtime."""

from dataclasses import dataclass

from ane_sweep.bridge.axes import LOADS, RUNS, Asked, axis, mapping
from ane_sweep.bridge.axes.targets import MACOS_TARGETS, TARGETS
from ane_sweep.bridge.kinds import KINDS


def _too_long(asked: Asked) -> str | None:
    if asked["seq_len"] > asked["longest"] and KINDS[asked["task"]].length != "architecture":
        return f"seq_len={asked['seq_len']} is beyond the {asked['longest']} positions of {asked['model']}"
    return None


@dataclass(frozen=True, kw_only=True)
class Common:
    """The axes of every cell. `model` and `precision` name options, whose contents are in `model_options` and `precision_options`."""

    model: str = mapping(shapes=("fetch", "reference", "examples", "convert"))
    family: str
    size: str
    variant: str = axis(
        "the model as it is, or rewritten for the Neural Engine (v2: queries in parts, where a family has it)",
        choices=("original", "split_einsum", "split_einsum_v2"),
        shapes=("convert", RUNS),
    )
    chunks: int | str = axis(
        "how many programs the model is cut into; auto: the fewest that the chip takes",
        least=1,
        words=("auto",),
        most=1000,
        why="each is a program of its own, and no model here has as many places to cut",
        shapes=("chunk", "predict", "compile", LOADS),  # no chunk task is an answer, too
        honoured="chunks",
    )
    precision: str = mapping(shapes=("convert",), honoured="precision")
    compute_units: str = axis(
        "what Core ML may use",
        choices=("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"),
        shapes=("predict", LOADS),
        honoured="compute_units",
    )
    seq_len: int = axis(
        "tokens in one input",
        least=1,
        most=2**20,
        why="attention takes the square of it",
        plain=128,
        shapes=("reference", "examples", "convert"),
        refuses=_too_long,
    )
    target: str = axis(
        "the oldest OS the program must run on",
        choices=(*TARGETS, *MACOS_TARGETS),
        shapes=("convert",),
        honoured="target",
    )
    runtime: str = axis("what executes the program; auto = coreml on macOS, else reference", shapes=("load", RUNS))
    weights: str = axis(
        "pretrained, random, or a folder (a checkpoint, or one sub-folder per model)",
        shapes=("reference", "examples", "convert"),
    )
    seed: int = axis(
        "of random weights and synthetic inputs",
        least=0,
        most=2**63 - 1,
        why="a seed has 63 bits",
        shapes=("reference", "convert"),
    )
    allow_pickle: bool = axis(
        "accept pytorch_model.bin where there are no safetensors", shapes=("fetch", "reference", "convert"), named=False
    )
    fault: str = axis(
        "crash-tests the runner: the fault to commit in the convert process",
        choices=("none", "segfault", "hang", "memory", "raise", "corrupt_weights"),
        shapes=("convert",),
    )
