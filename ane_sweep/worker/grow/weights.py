"""The weight file of a grown program, a constant at a time: from the conversion of a few blocks, or made of the block's own
weights by the recipe of its neighbour's."""

import hashlib
import math
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ane_sweep.mil.weights import ALIGNMENT, BlobFile, BlobWriter, blob_values
from ane_sweep.worker.grow import recipes, repeats
from ane_sweep.worker.grow.program import Plan
from ane_sweep.worker.grow.repeats import Repeat
from ane_sweep.worker.grow.sequence import Placed, Unlike
from ane_sweep.worker.models import _lazy
from ane_sweep.worker.stages import _package

_CODES = {"float16": 1, "float32": 2}
_SHARED = 100  # coremltools keeps one of equal constants of this many numbers or more,
_HASHED = 100  # which it finds by these many of each,
_ATOL = {"float16": 6e-8, "float32": 1e-12}  # and which are equal to it within this


def write(module: Any, lists: list[Repeat], plan: Plan, counts: list[int], few: Any, longer: list[Any]) -> Any:
    """The spec of the grown program; its weight file lies beside the package of few blocks. Raises Unlike."""
    streams = _Streams(module, lists, plan, few, longer)
    streams.prove()
    with BlobWriter(_target(few.package)) as streams.writer, ThreadPoolExecutor(os.cpu_count()) as streams.threads:
        try:
            spec, _ = plan.made(counts, streams.weigh)
            for job in streams.jobs:
                job.result()
        finally:
            streams.threads.shutdown(cancel_futures=True)
    os.truncate(_target(few.package), streams.end)  # coremltools pads between constants, not after the last
    _check_the_rest(module, lists, streams.used)
    return spec


def put(package: Path, spec: Any) -> None:
    """Into a package of few blocks go the program and the weights of all."""
    _target(package).replace(package / _package.WEIGHTS)
    (package / _package.MLMODEL).write_bytes(spec.SerializeToString(deterministic=True))


def _target(package: Path) -> Path:
    return package.with_suffix(".bin")


class _Streams:
    """From where each constant comes."""

    def __init__(self, module: Any, lists: list[Repeat], plan: Plan, few: Any, longer: list[Any]):
        self.lists = lists
        self.plan, self.few, self.longer = plan, few.shallow, [one.shallow for one in longer]
        self.short = BlobFile(few.package / _package.WEIGHTS)
        self.long = [BlobFile(one.package / _package.WEIGHTS) for one in longer]
        self.tensors = dict(
            [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        )
        self.writer: BlobWriter
        self.threads: ThreadPoolExecutor
        self.jobs: list[Future[None]] = []
        self.end = 0
        self.used: set[str] = set()
        self.seen: dict[Any, str] = {}

    def prove(self) -> None:
        """That each constant of a longer conversion is what is made of it here. Raises Unlike."""
        for one, more, blobs in zip(self.lists, self.longer, self.long):
            turns = [one.trial.turns if one is other else 0 for other in self.lists]
            written = iter(zip(more.ops, more.block.operations))

            def hold(op: Any, placed: Placed, one=one, blobs=blobs, written=written) -> None:
                item, other = next(written)
                names = self._leaves(op, item.names, one)
                for value, theirs in zip(blob_values(op), blob_values(other)):
                    own = self.short.payload(value.blobFileValue.offset)
                    content = self._content(op, placed, names, own)
                    if names and content is own:  # the same made of the same
                        continue
                    if not np.array_equal(blobs.payload(theirs.blobFileValue.offset), content):
                        raise Unlike(f"{item.names[0]} is another in a conversion of more blocks")

            self.plan.made(turns, hold)

    def weigh(self, op: Any, placed: Placed) -> None:
        """Place the op's constants in the file, and have them written there by one of the threads."""
        self.used.update(placed.names[1 + len(op.outputs) :])
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
        """The whole module's tensors that a short conversion's constant is made of."""
        return [repeats.in_whole(name, self.lists, longer) for name in names[1 + len(op.outputs) :]]

    def _content(self, op: Any, placed: Placed, names: list[str], own: np.ndarray) -> np.ndarray:
        """A constant made of these tensors: `own`, that of few blocks, where it is of the same."""
        if names == self._leaves(op, self.few.ops[placed.index].names, None):
            return own
        recipe = self.few.recipe(self.few.block.operations[placed.index])
        made = recipes.contiguous(recipes.replay(recipe, self._tensor, names))
        if made.nbytes != own.nbytes or made.dtype.name not in _CODES:
            raise Unlike(f"{placed.names[0]} of one block is not of the size of another's")
        content = made.reshape(-1).view(np.uint8)
        _refuse_special(placed.names[0], made, content, own)
        return content

    def _tensor(self, name: str) -> np.ndarray:
        return _lazy.materialise(self.tensors[name]).detach().numpy()

    def _refuse_equal(self, name: str, shape: tuple[int, ...], content: np.ndarray, dtype: str) -> None:
        """Equal constants are one in a conversion, and here they would be two."""
        if dtype not in ("fp16", "fp32"):
            return
        numbers = content.view(np.float16 if dtype == "fp16" else np.float32)
        if numbers.size < _SHARED:
            return
        key = (dtype, shape, hashlib.sha1(numbers[:_HASHED].tobytes()).digest())
        if (other := self.seen.setdefault(key, name)) != name:
            raise Unlike(f"{other} and {name} are equal, which a conversion keeps once")


def _refuse_special(name: str, made: np.ndarray, content: np.ndarray, own: np.ndarray) -> None:
    """Values for which coremltools would write another program."""
    if not made.size:
        return
    low, high = (one.item() for one in torch.aminmax(torch.from_numpy(made)))  # numpy's of fp16 takes 25 times as long
    if not (math.isfinite(low) and math.isfinite(high)):
        raise Unlike(f"{name} holds numbers beyond {made.dtype}")
    if low == high and not np.array_equal(content, own):
        raise Unlike(f"{name} is one number in one block and another in another")


def _check_the_rest(module: Any, lists: list[Repeat], used: set[str]) -> None:
    """What is in no constant of its own must be what it is in the block that was converted. Raises Unlike."""
    tensors = dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])
    first: dict[int, str] = {}
    for name, tensor in tensors.items():
        first.setdefault(id(tensor), name)
    for one in lists:
        for number in range(1, one.count - 1):
            place = f"{one.path}.{one.before + number}."
            for name in [name for name in tensors if name.startswith(place)]:
                like = f"{one.path}.{one.before + 1 + (number - 1) % one.period}.{name.removeprefix(place)}"
                if name in used or first[id(tensors[name])] in used or tensors[name] is tensors.get(like):
                    continue
                if like not in tensors or not torch.equal(
                    _lazy.materialise(tensors[name]), _lazy.materialise(tensors[like])
                ):
                    raise Unlike(f"{name} is not {like}, and is in no constant of its own")
