"""Faults for the crash test: failures that occur on users' machines, produced inside a real worker.

    segfault         reads address 0 in native code                     -> crashed (SIGSEGV)
    hang             ignores SIGTERM and sleeps                         -> timeout
    memory           allocates and touches until its limit ends it      -> out_of_memory
    raise            a plain Python exception                           -> failed
    corrupt_weights  the right sizes, every value a NaN                 -> failed, by the stage that reads the weights

The first four need nothing but the standard library, so the worker runs them before any heavy import. The axis `fault`
enters the task's options, which the worker alone reads.
"""

import ctypes
import json
import shutil
import signal
import struct
import time
from pathlib import Path
from typing import Any

from ane_sweep.bridge.task import TaskRequest
from ane_sweep.errors import StageError, WeightsError

_BLOCK_BYTES = 16 << 20


def _hang(memory_bytes: int | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(3600)


def _memory(memory_bytes: int | None) -> None:
    if memory_bytes is None:
        raise StageError(
            "fault=memory was refused: this task has no memory limit, so it would eat the whole machine; "
            "set a memory limit for the stage first"
        )
    held: list[bytes] = []
    while len(held) * _BLOCK_BYTES < memory_bytes + 4 * _BLOCK_BYTES:
        held.append(b"\x01" * _BLOCK_BYTES)  # not bytearray(n): zeroed pages are handed out untouched and cost nothing
    time.sleep(2)  # no kernel limit here (macOS): time for the watching parent to see it
    raise StageError(f"fault=memory holds {len(held) * _BLOCK_BYTES} bytes and no memory limit ended it")


def _raise(memory_bytes: int | None) -> None:
    raise RuntimeError("raised on purpose by the crash test")


_EARLY = {"segfault": lambda memory_bytes: ctypes.string_at(0), "hang": _hang, "memory": _memory, "raise": _raise}
NAMES = (*_EARLY, "corrupt_weights")


def commit_fault(task: TaskRequest) -> tuple[dict[str, Any], dict[str, Path]]:
    """Commit the fault in the task's options, if any, and return params and inputs for the stage.

    Raises StageError that names the known faults if the name is unknown.
    """
    options = dict(task.params.get("options", {}))
    name = options.pop("fault", None)
    if name is None:
        return task.params, task.inputs
    if name not in NAMES:
        raise StageError(f"unknown fault {name!r}; known faults: {', '.join(NAMES)}")
    if name in _EARLY:
        _EARLY[name](task.limits.memory_bytes)
    return corrupt_inputs(name, {**task.params, "options": options}, task.inputs, task.tmp)


def corrupt_inputs(
    name: str | None, params: dict[str, Any], inputs: dict[str, Path], tmp: Path
) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return params and inputs, with corrupted weights under fault=corrupt_weights.

    Random weights are first drawn and saved as a checkpoint; the stage then reads that folder.
    Raises StageError for a stage that reads no weights.
    """
    if name != "corrupt_weights":
        return params, inputs
    if "weights" not in params:
        raise StageError("fault=corrupt_weights was refused: this stage reads no weights")
    if "checkpoint" not in inputs:
        params = {**params, "weights": {**params["weights"], "kind": "path"}}
        inputs = {**inputs, "checkpoint": _save_random(params, tmp / "random")}
    return params, {**inputs, "checkpoint": corrupt_checkpoint(inputs["checkpoint"], tmp / "corrupt")}


def corrupt_checkpoint(checkpoint: Path, into: Path) -> Path:
    """Copy a checkpoint folder to `into` with every payload byte of its *.safetensors set to 0xFF; return `into`.

    Names, shapes, dtypes and file sizes do not change, and 0xFF.. is a NaN in fp16, bf16, fp32 and fp64: a bad disk or
    a broken download of the right length looks like this. Raises WeightsError if no file can be corrupted.
    """
    into.mkdir(parents=True)
    corrupted = 0
    for source in sorted(path for path in checkpoint.iterdir() if path.is_file()):
        if source.suffix == ".safetensors":
            _corrupt_file(source, into / source.name)
            corrupted += 1
        else:
            shutil.copyfile(source, into / source.name)
    if not corrupted:
        raise WeightsError(f"fault=corrupt_weights found no *.safetensors in {checkpoint}")
    return into


def _corrupt_file(source: Path, target: Path) -> None:
    """Copy a safetensors file (8-byte little-endian header length, JSON header, payload) with a payload of 0xFF."""
    with open(source, "rb") as reader, open(target, "wb") as writer:
        prefix = reader.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        size = source.stat().st_size
        if not 2 <= length <= size - 8:
            raise WeightsError(f"{source} is not a safetensors file: its header length is out of range")
        header = reader.read(length)
        json.loads(header)
        writer.write(prefix + header)
        left = size - 8 - length
        while left:
            left -= writer.write(b"\xff" * min(left, _BLOCK_BYTES))


def _save_random(params: dict[str, Any], folder: Path) -> Path:
    from safetensors.torch import save_file

    from ane_sweep.worker.models.weights import load_state

    state = load_state({**params["weights"], "kind": "random"}, None, params["model"])
    folder.mkdir(parents=True)
    save_file({name: tensor.contiguous().clone() for name, tensor in state.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(params["model"]["arch"]), encoding="utf-8")
    return folder
