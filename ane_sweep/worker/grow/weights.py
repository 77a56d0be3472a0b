"""The weight file of a grown program, written one constant at a time.

A constant is copied from the conversion of few blocks, or computed from its block's weights by the recipe of a
neighbouring block.
"""

import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from ane_sweep.mil.proto import MIL_pb2, Model_pb2
from ane_sweep.mil.weights import ALIGNMENT, BlobFile, BlobWriter, blob_values
from ane_sweep.worker.grow import recipes, repeats
from ane_sweep.worker.grow.program import GrowthPlan, Shallow
from ane_sweep.worker.grow.proof import Differing
from ane_sweep.worker.grow.repeats import Repeat
from ane_sweep.worker.grow.sequence import Placed, Unlike
from ane_sweep.worker.programs.mlprogram import size as packages

_SHARED = 100  # coremltools merges equal constants of this many numbers or more,
_HASHED = 100  # and compares this many numbers of each first
_FLOATS = {"fp16": np.float16, "fp32": np.float32}


def grow_package(differing: Differing, plan: GrowthPlan) -> None:
    """Replace the program and the weights in the package of few blocks by the grown ones. Raises Unlike."""
    streams = _Streams(differing, plan)
    for one, more in zip(differing.lists, plan.longer):
        streams.prove(one, more)
    spec = streams.write()
    streams.target.replace(plan.few.path / packages.WEIGHTS)
    (plan.few.path / packages.MLMODEL).write_bytes(spec.SerializeToString(deterministic=True))


class _Streams:
    """A writer of a grown program's constants in threads, with the sources of these constants."""

    def __init__(self, differing: Differing, plan: GrowthPlan):
        self.differing, self.plan, self.few, self.lists = differing, plan, plan.few, differing.lists
        self.target = plan.few.path.with_suffix(".bin")
        self.short = BlobFile(plan.few.path / packages.WEIGHTS)
        self.writer: BlobWriter
        self.threads: ThreadPoolExecutor
        self.jobs: list[Future[None]] = []
        self.end = 0
        self.seen: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def prove(self, longer: Repeat, more: Shallow) -> None:
        """Raise Unlike if a constant of a longer conversion differs from the one computed here from its blocks' weights."""
        blobs = BlobFile(more.path / packages.WEIGHTS)
        written = iter(zip(more.ops, more.block.operations))

        def compare(op: MIL_pb2.Operation, placed: Placed) -> None:
            item, other = next(written)
            names = self._name_tensors(op, item.names, longer)
            for value, theirs in zip(blob_values(op), blob_values(other)):
                own = self.short.payload(value.blobFileValue.offset)
                content = self._content(op, placed, names, own, changed=True)
                if names and content is own:  # the same made of the same
                    continue
                if not np.array_equal(blobs.payload(theirs.blobFileValue.offset), content):
                    raise Unlike(f"{item.names[0]} is not what the numbers of its block make of it")

        self.plan.build([one.trial.turns if one is longer else 0 for one in self.lists], compare)

    def write(self) -> Model_pb2.Model:
        """Write the weights to a file next to the package of few blocks, and return the spec of the grown program."""
        with BlobWriter(self.target) as self.writer, ThreadPoolExecutor(os.cpu_count()) as self.threads:
            try:
                spec = self.plan.build([one.count_copies() for one in self.lists], self._weigh)
                for job in self.jobs:
                    job.result()
            finally:
                self.threads.shutdown(cancel_futures=True)
        os.truncate(self.target, self.end)  # coremltools pads between constants, not after the last
        return spec

    def _weigh(self, op: MIL_pb2.Operation, placed: Placed) -> None:
        """Reserve space in the file for the op's constants, and let a thread write them."""
        for value in blob_values(op):
            reference = value.blobFileValue
            source = reference.offset
            record = self.short.record(source)
            reference.offset = self.writer.reserve(record.dtype, record.size, record.padding_bits)
            self.end = reference.offset + ALIGNMENT + record.size
            shape = tuple(one.constant.size for one in value.type.tensorType.dimensions)
            self.jobs.append(self.threads.submit(self._fill, op, placed, source, reference.offset, shape))

    def _fill(self, op: MIL_pb2.Operation, placed: Placed, source: int, target: int, shape: tuple[int, ...]) -> None:
        own, dtype = self.short.payload(source), self.short.record(source).dtype_name
        content = self._content(op, placed, list(placed.names[1 + len(op.outputs) :]), own)
        if dtype in _FLOATS:
            self._refuse_equal(dtype, shape, content.view(_FLOATS[dtype]), placed.names[0])
        self.writer.fill(target, self.short.pieces(source) if content is own else [content])

    def _name_tensors(self, op: MIL_pb2.Operation, names: tuple[str, ...], longer: Repeat | None) -> list[str]:
        """Return the names, in the whole module, of the tensors in a constant's recipe from a short conversion."""
        return [repeats.name_in_whole(name, self.lists, longer) for name in names[1 + len(op.outputs) :]]

    def _content(
        self, op: MIL_pb2.Operation, placed: Placed, names: list[str], own: np.ndarray, changed: bool = False
    ) -> np.ndarray:
        """Return a constant computed from the named tensors (real or `changed` numbers); `own` itself if few blocks
        used the same tensors.
        """
        is_same = names == self._name_tensors(op, self.few.ops[placed.index].names, None)
        if is_same and not (changed and self.differing.names.intersection(names)):
            return own
        recipe = self.few.recipe(self.few.block.operations[placed.index])
        replayed = recipes.replay(recipe, self.differing.read_changed if changed else self._read_tensor, names)
        made = recipes.make_contiguous(np.asarray(replayed))
        if made.nbytes != own.nbytes or made.dtype not in _FLOATS.values():
            raise Unlike(f"{placed.names[0]} of one block is not of the size of another's")
        content = made.reshape(-1).view(np.uint8)
        _refuse_special(placed.names[0], made, content, own)
        return content

    def _read_tensor(self, name: str) -> np.ndarray:
        """Return a tensor's numbers as the conversion saw them: equal tensors of two blocks may be one constant."""
        value = self.differing.read_real(name)
        if name in self.differing.names:
            self._refuse_equal(f"tensor {value.dtype}", value.shape, value.reshape(-1), name)
        return value

    def _refuse_equal(self, kind: str, shape: tuple[int, ...], numbers: np.ndarray, name: str) -> None:
        """Raise Unlike if an equal constant was written before, as a conversion would merge the two."""
        if numbers.size >= _SHARED:
            key = (kind, shape, hashlib.sha1(numbers[:_HASHED].tobytes()).digest())
            if (other := self.seen.setdefault(key, name)) != name:
                raise Unlike(f"{other} and {name} are equal, which a conversion keeps once")


def _refuse_special(name: str, made: np.ndarray, content: np.ndarray, own: np.ndarray) -> None:
    """Raise Unlike for values from which coremltools would write another program."""
    if not made.size:
        return
    low, high = (one.item() for one in torch.aminmax(torch.from_numpy(made)))  # numpy's of fp16 takes 25 times as long
    if not max(-low, high) < np.finfo(made.dtype).max:  # a little beyond is rounded to it, and was not narrowed
        raise Unlike(f"{name} holds numbers beyond {made.dtype}")
    if low == high and not np.array_equal(content, own):
        raise Unlike(f"{name} is one number in one block and another in another")
