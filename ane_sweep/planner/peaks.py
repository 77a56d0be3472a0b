"""Estimates of a task's peak memory from the architecture alone.

The factors here and in the stages' declarations were fitted to peaks on Linux with coremltools 9.0 and torch 2.13, of 20 cells
from MiniLM to gpt2-xl (`python -m tests.bench memory`), and of larger ones by hand.
"""

from collections.abc import Mapping

from ane_sweep.bridge import families, recipes
from ane_sweep.bridge.cell import DECLARED, Cell
from ane_sweep.bridge.programs import DEFAULT
from ane_sweep.bridge.runtimes import traits
from ane_sweep.bridge.stages import STAGES
from ane_sweep.planner import chunking, sizing
from ane_sweep.planner.compressing import is_in_torch

GIB = 1 << 30
_LARGE = GIB  # a reference of more holds one layer (worker/models/_turns.py); a conversion has the rest in files (_mapped.py)
_KEPT = GIB // 2  # of weights in working form, as reference/constants.py has it
# As worker/grow/repeats.py has it, for blocks that are all alike; those that come in turns hold more at once.
GROWN_FROM, AT_ONCE = 9, 5
_FP32 = 0.6  # of a conversion to fp16: nothing is cast
_IN_FILES, _JOINED = 1.15, 2.3  # for each byte of a conversion's weights in files; of two functions that are joined
_WHOLE = 1.5  # of a conversion that holds every weight: gpt2 by coreai-opt took 1.85 GB, all told
_OWN_LAYER = 0.4  # of a user's module: its largest layer, which no plan knows; one of 0.55 of 1.5 GB took 2.2 GB in all
# of an encoder and a decoder, of up to 10.6 GiB: of its conversion, which holds every weight, too, most in files; of its largest layer
_PAIR, _PAIR_IN_FILES, _PAIR_LAYER = 0.92, 0.46, 1.6
# of the largest weight of those that the reference runtime does not keep: it is read, and its form is made, or slices of it are
_MADE, _IN_SLICES = 1.25, 0.55
_TORCH = 0.3 * GIB  # that a runtime of torch's or Core ML's takes beside ours
_UNPACKED = 0.88  # of kept weights that are compressed: their fp16 form
_FUNCTIONS = 0.6  # of kept weights: the pages that a second function reads
# of a compression, for each byte of its largest weight in fp32: pruned ones are held twice, 3 and 6 bits are packed one by one
_PRUNED, _ACTIVATIONS, _ODD_BITS, _PLAIN = 2.4, 0.5, 3.5, 1.6
_READ = 0.5  # of all weights of a program whose activations are quantized: mapped pages that are read


def needed_bytes(
    stage: str, cell: Cell, work: int, arch: Mapping[str, object], positions: int, runtime: object = None
) -> int:
    """Return the bytes that a task needs beside those of an idle process, for `work` bytes of parameters (fp32)."""
    declared, streams = STAGES[stage], traits(runtime).streams and cell.numerics != "ane"
    if declared.holds == "nothing":
        return int(0.4 * GIB + 1.5 * work / chunking.BISECT_WORK) if cell.pipeline == "bisect" else 0
    if declared.per_byte == 0:
        return 0
    outputs, scores = count_activations(cell, arch, positions)
    rest: float = 4 * cell.batch * (declared.outputs * outputs + declared.scores * scores)
    if declared.runs_program:
        rest += _extra_bytes(cell, work, arch) if streams else _TORCH
    held = work if declared.runs_program and not streams else _held_bytes(stage, cell, work, arch)
    if declared.holds == "a weight":
        most = _weigh_recipe(cell.precision_settings.weights)
        return int(most * held + (_READ * work if most == _ACTIVATIONS else 0))
    if declared.holds == "few blocks":
        grown = declared.per_byte * (1.0 if cell.precision_settings.compute == "fp16" else _FP32)
        if cell.kind.pair:
            return int(max(grown * min(held, _LARGE), _PAIR_IN_FILES * held) + rest)
        beyond = _JOINED if cell.cache == "stateful" else _IN_FILES
        return int(grown * min(held, _LARGE) + beyond * max(0, held - _LARGE) + rest)
    return int(declared.per_byte * held + rest)


def _weigh_recipe(recipe: Mapping[str, object] | None) -> float:
    """Return the bytes that a compression takes for each byte of its largest weight in fp32."""
    asked = recipes.canonical(recipe) or {}
    if asked.get("activations"):
        return _ACTIVATIONS
    if asked.get("kind") == "mixed" or asked.get("bits") in (3, 6):
        return _ODD_BITS
    return _PRUNED if asked.get("sparsity") is not None else _PLAIN


def _extra_bytes(cell: Cell, work: int, arch: Mapping[str, object]) -> float:
    """Return the bytes that the reference runtime holds beside fp32 forms: fp16 ones of compressed weights, a second function."""
    kept = min(work, _KEPT)
    if cell.precision_settings.weights:
        again = 2.45 if _weigh_recipe(cell.precision_settings.weights) == _ODD_BITS else 0.2
        return _UNPACKED * kept + again * work * _shares(cell, arch)[2]
    return _FUNCTIONS * kept if cell.cache == "stateful" else 0.0


def _held_bytes(stage: str, cell: Cell, work: int, arch: Mapping[str, object]) -> int:
    """Return the bytes of parameters (fp32) that a task holds at once.

    Most hold all. The reference runtime holds those that its budget keeps and one further weight or slices of it, for mixed bits with its
    palette's values as well; a conversion that grows its few blocks, a reference of large weights one layer, a compression
    one weight. A user's module counts in full, an upper bound, as does a U-Net in a conversion or a reference; but a reference
    of a user's module has what is beyond the first GiB in files, and a layer of it in memory.
    """
    by_op = STAGES[stage].runs_program or STAGES[stage].holds == "kept weights"
    if cell.kind.length == "caller" and STAGES[stage].holds == "a layer":
        return min(work, _LARGE + int(_OWN_LAYER * work))
    if (STAGES[stage].holds == "all" and not by_op) or cell.kind.length == "caller":
        return work
    if cell.kind.pair and STAGES[stage].holds == "few blocks":
        return int(_PAIR * work)
    if cell.kind.blocks == "several" and not cell.kind.pair and STAGES[stage].holds in ("few blocks", "a layer"):
        return work
    is_ours = cell.toolchain == DECLARED["toolchain"].plain and not is_in_torch(cell, DEFAULT)
    if STAGES[stage].holds == "few blocks" and not is_ours:
        return int(work * _WHOLE)
    layers, block, weight = _shares(cell, arch)
    if by_op:
        is_mixed = not STAGES[stage].runs_program and _weigh_recipe(cell.precision_settings.weights) == _ODD_BITS
        kept = min(work * (2 if is_mixed else 1), _KEPT)
        is_fp16 = cell.precision_settings.compute == "fp16" and cell.numerics in ("auto", "fp16")
        is_plain = is_fp16 and not cell.precision_settings.weights and cell.cache == "none" and cell.copies == 1
        made = _IN_SLICES if is_plain and cell.seq_len * cell.batch >= 17 else _MADE
        return kept + int((3.5 if is_mixed else made) * min(work if is_mixed else work - kept, work * weight))
    if STAGES[stage].holds == "a layer":
        return work if work < _LARGE else int(work * max(block, weight) * (_PAIR_LAYER if cell.kind.pair else 1))
    if STAGES[stage].holds == "a weight":
        return int(work * weight)
    if layers < GROWN_FROM or cell.cache == "stateful":  # whose two functions are joined with all their weights
        return work
    return int(work * (1 - block * (layers - AT_ONCE)))


def _shares(cell: Cell, arch: Mapping[str, object]) -> tuple[int, float, float]:
    """Return the number of blocks, and the shares in all parameters of one block and of the largest weight, a third of it or a table."""
    task, serves = cell.model_settings.task, families.serves(cell.family)
    if serves is None:
        keys = cell.model_settings.arch_keys
        layers = arch.get(keys.layers) if keys else None
        return (layers, 1 / (layers + 1), 1 / (layers + 1)) if isinstance(layers, int) else (0, 1.0, 1.0)
    own = sizing.own(arch, serves, task)
    layers = own.get(serves.layers)
    if not isinstance(layers, int) or layers < 1:
        return (0, 1.0, 1.0)
    whole, less, ends = (
        sizing.estimate({**own, serves.layers: count, **more}, serves, task)
        for count, more in ((layers, {}), (layers - 1, {}), (0, {"num_decoder_layers": 0}))
    )
    block = (whole - less) / whole
    return layers, block, max(block / 3, ends / whole / sizing.count_tables(own, serves, task))


def count_activations(cell: Cell, arch: Mapping[str, object], positions: int) -> tuple[int, int]:
    """Return the numbers in the outputs of one input, where these are words, and in the attention scores of one layer."""
    task, serves = cell.model_settings.task, families.serves(cell.family)
    own = arch if serves is None else sizing.own(arch, serves, task)
    words = own.get("vocab_size") if cell.kind.leaves == "tokens" and cell.head == "all" else 0
    return positions * (words if isinstance(words, int) else 0), sizing.count_heads(own) * positions**2
