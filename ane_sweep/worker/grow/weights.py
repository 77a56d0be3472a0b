"""The weight file of a grown program, written one constant at a time.

A constant is copied from the conversion of a few blocks, or computed from its block's weights by a neighbouring block's recipe.
"""

import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ane_sweep.mil.weights import ALIGNMENT, BlobFile, BlobWriter, blob_values
from ane_sweep.worker.grow import recipes, repeats
from ane_sweep.worker.grow.program import Plan
from ane_sweep.worker.grow.proof import Differing
from ane_sweep.worker.grow.repeats import Repeat
from ane_sweep.worker.grow.sequence import Placed, Unlike
from ane_sweep.worker.programs.mlprogram import size as packages

_CODES = {"float16": 1, "float32": 2}
_SHARED = 100  # coremltools merges equal constants of this many numbers or more,
_HASHED = 100  # compares this many numbers of each first,
_ATOL = {"float16": 6e-8, "float32": 1e-12}  # and calls them equal within this tolerance


def write(differing: Differing, plan: Plan, counts: list[int], few: Any, longer: list[Any]) -> Any:
    """Return the spec of the grown program; write its weights to a file next to the package of few blocks. Raises Unlike."""
    streams = _Streams(differing, plan, few, longer)
    streams.prove()
    with BlobWriter(_target(few.package)) as streams.writer, ThreadPoolExecutor(os.cpu_count()) as streams.threads:
        try:
            spec, _ = plan.build(counts, streams.weigh)
            for job in streams.jobs:
                job.result()
        finally:
            streams.threads.shutdown(cancel_futures=True)
    os.truncate(_target(few.package), streams.end)  # coremltools pads between constants, not after the last
    return spec


def install(package: Path, spec: Any) -> None:
    """Replace the program and the weights in a package of few blocks by the grown ones."""
    _target(package).replace(package / packages.WEIGHTS)
    (package / packages.MLMODEL).write_bytes(spec.SerializeToString(deterministic=True))


def _target(package: Path) -> Path:
    return package.with_suffix(".bin")


class _Streams:
    """The sources of the constants of a grown program, and the threads that write them."""

    def __init__(self, differing: Differing, plan: Plan, few: Any, longer: list[Any]):
        self.differing, self.lists = differing, differing.lists
        self.plan, self.few, self.longer = plan, few.shallow, [one.shallow for one in longer]
        self.short = BlobFile(few.package / packages.WEIGHTS)
        self.long = [BlobFile(one.package / packages.WEIGHTS) for one in longer]
        self.writer: BlobWriter
        self.threads: ThreadPoolExecutor
        self.jobs: list[Future[None]] = []
        self.end = 0
        self.seen: dict[Any, str] = {}

    def prove(self) -> None:
        """Raise Unlike if a constant of a longer conversion differs from the one computed here from its blocks' numbers."""
        for one, more, blobs in zip(self.lists, self.longer, self.long):
            turns = [one.trial.turns if one is other else 0 for other in self.lists]
            written = iter(zip(more.ops, more.block.operations))

            def hold(op: Any, placed: Placed, one=one, blobs=blobs, written=written) -> None:
                item, other = next(written)
                names = self._leaves(op, item.names, one)
                for value, theirs in zip(blob_values(op), blob_values(other)):
                    own = self.short.payload(value.blobFileValue.offset)
                    content = self._content(op, placed, names, own, changed=True)
                    if names and content is own:  # the same made of the same
                        continue
                    if not np.array_equal(blobs.payload(theirs.blobFileValue.offset), content):
                        raise Unlike(f"{item.names[0]} is not what the numbers of its block make of it")

            self.plan.build(turns, hold)

    def weigh(self, op: Any, placed: Placed) -> None:
        """Reserve places for the op's constants in the file, and submit their writing to a thread."""
        for value in blob_values(op):
            reference = value.blobFileValue
            source = reference.offset
            record = self.short.record(source)
            reference.offset = self.writer.reserve(record.dtype, record.size, record.padding_bits)
            self.end = reference.offset + ALIGNMENT + record.size
            shape = tuple(one.constant.size for one in value.type.tensorType.dimensions)
            self.jobs.append(self.threads.submit(self._fill, op, placed, source, reference.offset, shape))

    def _fill(self, op: Any, placed: Placed, source: int, target: int, shape: tuple[int, ...]) -> None:
        own = self.short.payload(source)
        content = self._content(op, placed, list(placed.names[1 + len(op.outputs) :]), own)
        self._refuse_equal(placed.names[0], shape, content, self.short.record(source).dtype_name)
        self.writer.fill(target, self.short.pieces(source) if content is own else [content])

    def _leaves(self, op: Any, names: tuple[str, ...], longer: Repeat | None) -> list[str]:
        """Return the names in the whole module of the tensors that a short conversion's constant was made of."""
        return [repeats.name_in_whole(name, self.lists, longer) for name in names[1 + len(op.outputs) :]]

    def _content(self, op: Any, placed: Placed, names: list[str], own: np.ndarray, changed: bool = False) -> np.ndarray:
        """Return a constant computed from the named tensors, real or `changed`; `own`, if few blocks used the same tensors."""
        is_same = names == self._leaves(op, self.few.ops[placed.index].names, None)
        if is_same and not (changed and self.differing.names.intersection(names)):
            return own
        recipe = self.few.recipe(self.few.block.operations[placed.index])
        made = recipes.make_contiguous(
            recipes.replay(recipe, self.differing.read_changed if changed else self._tensor, names)
        )
        if made.nbytes != own.nbytes or made.dtype.name not in _CODES:
            raise Unlike(f"{placed.names[0]} of one block is not of the size of another's")
        content = made.reshape(-1).view(np.uint8)
        _refuse_special(placed.names[0], made, content, own)
        return content

    def _tensor(self, name: str) -> np.ndarray:
        """Return a tensor's numbers; equal tensors of two blocks may be one constant before they are folded into others."""
        value = self.differing.read_real(name)
        if value.size >= _SHARED and name in self.differing.names:
            first = np.ascontiguousarray(value.reshape(-1)[:_HASHED])
            self._refuse_equal_start(f"tensor {value.dtype}", value.shape, first, name)
        return value

    def _refuse_equal(self, name: str, shape: tuple[int, ...], content: np.ndarray, dtype: str) -> None:
        """Raise Unlike if an equal constant was written before: a conversion would merge the two."""
        if dtype not in ("fp16", "fp32"):
            return
        numbers = content.view(np.float16 if dtype == "fp16" else np.float32)
        if numbers.size >= _SHARED:
            self._refuse_equal_start(dtype, shape, numbers[:_HASHED], name)

    def _refuse_equal_start(self, kind: str, shape: tuple[int, ...], start: np.ndarray, name: str) -> None:
        key = (kind, shape, hashlib.sha1(start.tobytes()).digest())
        if (other := self.seen.setdefault(key, name)) != name:
            raise Unlike(f"{other} and {name} are equal, which a conversion keeps once")


def _refuse_special(name: str, made: np.ndarray, content: np.ndarray, own: np.ndarray) -> None:
    """Raise Unlike for values for which coremltools would write another program."""
    if not made.size:
        return
    low, high = (one.item() for one in torch.aminmax(torch.from_numpy(made)))  # numpy's of fp16 takes 25 times as long
    if (
        not max(-low, high) < np.finfo(made.dtype).max
    ):  # what lies a little beyond is rounded to it, and was not narrowed
        raise Unlike(f"{name} holds numbers beyond {made.dtype}")
    if low == high and not np.array_equal(content, own):
        raise Unlike(f"{name} is one number in one block and another in another")
