"""The reference of a user's own module: inputs drawn or read from the user's file, and the module's outputs for them.

Leaves inputs.npz, outputs.npz and calibration.npz, and for each further shape inputs@SHAPE.npz and outputs@SHAPE.npz.
"""

from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from ane_sweep.bridge import shapes
from ane_sweep.bridge.task import DRAWN
from ane_sweep.errors import StageError
from ane_sweep.worker.feeds.arrays import StackWriter
from ane_sweep.worker.models import _build
from ane_sweep.worker.models import module as own
from ane_sweep.worker.models._ports import Port, Ports
from ane_sweep.worker.params import Model, Texts
from ane_sweep.worker.stages import StageResult

CALIBRATION = 8
UNSEEN = "what its code read beside the files that it imports (data files, environment, network, clock) is in no key"
Arrays = dict[str, np.ndarray]
Expected = dict[str, Port]  # the ports of a module by name


class Given(Protocol):
    """A module or package of the user's own, built and run once."""

    ports: Ports
    path: str
    taken: tuple[shapes.Input, ...]
    example: tuple[torch.Tensor, ...]

    def __call__(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]: ...
    def compute_reference(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]: ...


def write_reference(
    params: dict[str, object], model: Model, texts: Texts, inputs: dict[str, Path], out: Path
) -> StageResult:
    """Write the reference of a user's module into `out`.

    Raises StageError for errors in the user's code, samples that do not fit, and outputs that are not finite.
    """
    module: Given = _build.build(params, inputs, "original")[0]
    count, seed = texts.count, texts.seed
    if "expected" in inputs:
        return _write_expected(module, inputs["expected"], out)
    samples: list[Arrays] = []
    if path := inputs.get("samples"):
        samples = _check_rows(path, _read_arrays(path), {port.name: port for port in module.ports.inputs})
    for number, point in enumerate(shapes.points(module.taken)):
        rows = samples[:count] if samples and not number else _draw_rows(module, point, seed, count, first=not number)
        at = f"@{shapes.label(module.taken, point)}" if number else ""
        _write_stack(out / f"inputs{at}.npz", rows, are_inputs=True)
        _write_stack(out / f"outputs{at}.npz", [_compute_outputs(module, row, n) for n, row in enumerate(rows)])
    rest = samples[count:][:CALIBRATION] or samples[:CALIBRATION]
    rest = rest or _draw_rows(module, shapes.points(module.taken)[0], seed + 1, CALIBRATION, first=False)
    _write_stack(out / "calibration.npz", rest, are_inputs=True)
    realised = {"texts": "samples" if samples else "seeded inputs", "packages": model.arch["packages"]}
    if not isinstance(module, own.OwnModule):  # a package: its weights are its content, and no code draws them
        return StageResult(realised=realised)
    facts = {"weights": module.weights_digest()}
    if "code" not in inputs:
        return StageResult(facts=facts, realised=realised)
    return StageResult(
        facts=facts, realised=realised | {"unseen": UNSEEN} | _describe_drawn_weights(params, inputs, module)
    )


def _describe_drawn_weights(
    params: dict[str, object], inputs: dict[str, Path], module: own.OwnModule
) -> dict[str, str]:
    """Return the record's note on weights that the module's code drew at random, or {} if the code reads all of them."""
    all_of_them = sum(1 for _ in module.inner.parameters())
    if not (names := own.find_drawn_weights(params, inputs, module)):
        return {}
    some = f" ({', '.join(names[:3])}{' ...' if len(names) > 3 else ''})" if len(names) < all_of_them else ""
    return {DRAWN: f"{len(names)} of {all_of_them} parameters{some} are random numbers, drawn by the module's own code"}


def _draw_rows(module: Given, point: tuple[tuple[int, ...], ...], seed: int, count: int, first: bool) -> list[Arrays]:
    """Return seeded inputs; with `first`, one of them is the example that the module was first run with."""
    names = [port.name for port in module.ports.inputs]
    rows = [dict(zip(names, own.draw_inputs(module.taken, point, seed * 1000 + number))) for number in range(count)]
    if first and rows:
        rows[0] = {name: value.numpy() for name, value in zip(names, module.example)}
    return rows


def _write_expected(module: Given, path: Path, out: Path) -> StageResult:
    """Write inputs and expected outputs from the user's file. Raises StageError if they do not fit."""
    arrays = _read_arrays(path)
    names = {port.name for port in module.ports.inputs}
    inputs = {name: array for name, array in arrays.items() if name in names}
    outputs = {name: array for name, array in arrays.items() if name not in names}
    known = {port.name: port for port in module.ports.outputs}
    if not outputs or not set(outputs) <= set(known):
        raise StageError(
            f"{path} holds the outputs {', '.join(outputs) or '(none)'}; the package gives {', '.join(known)}"
        )
    rows = _check_rows(path, inputs, {port.name: port for port in module.ports.inputs})
    expected = _check_rows(path, outputs, {name: known[name] for name in outputs})
    if len(rows) != len(expected):
        raise StageError(f"{path} holds {len(rows)} inputs and {len(expected)} outputs")
    _write_stack(out / "inputs.npz", rows, are_inputs=True)
    _write_stack(out / "outputs.npz", expected)
    _write_stack(out / "calibration.npz", rows[:CALIBRATION], are_inputs=True)
    return StageResult(realised={"texts": "reference file", "packages": {}})


def _read_arrays(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError) as error:
        raise StageError(f"{path}: no .npz of plain arrays ({error})") from error


def _check_rows(path: Path, arrays: Arrays, ports: Expected) -> list[Arrays]:
    if set(arrays) != set(ports):
        raise StageError(f"{path} holds {', '.join(arrays) or 'nothing'}; the module takes {', '.join(ports)}")
    for name, array in arrays.items():
        port = ports[name]
        if array.shape[1:] != port.shape or array.dtype.kind not in "biuf":
            raise StageError(
                f"{path}: {name} is {array.dtype} {list(array.shape)}; expected [count, {', '.join(map(str, port.shape))}]"
            )
        if not np.isfinite(array).all():
            raise StageError(f"{path}: {name} holds NaN or infinite values")
    if len(counts := {len(array) for array in arrays.values()}) > 1 or 0 in counts:
        raise StageError(f"{path}: its arrays hold {sorted(counts)} inputs; expected as many in each, and one at least")
    rows = zip(*(np.ascontiguousarray(arrays[name], ports[name].dtype) for name in ports))
    return [dict(zip(ports, row)) for row in rows]


def _compute_outputs(module: Given, row: Arrays, index: int) -> Arrays:
    with torch.inference_mode():
        made = module.compute_reference(*(torch.from_numpy(np.array(value)) for value in row.values()))
    outputs = {port.name: value.numpy() for port, value in zip(module.ports.outputs, made, strict=True)}
    for name, value in outputs.items():
        if not np.isfinite(value).all():
            bad = int(value.size - np.isfinite(value).sum())
            raise StageError(
                f"model.path={module.path}: output {name!r} of input {index} holds {bad} values that are NaN or infinite (of "
                f"{value.size}) in fp32 torch, so nothing can be compared with it; give inputs that it takes: range in "
                "model.inputs, or model.samples=FILE.npz"
            )
    return outputs


def _write_stack(path: Path, rows: list[Arrays], are_inputs: bool = False) -> None:
    with StackWriter(path, len(rows)) as stack:
        for index, row in enumerate(rows):
            stack.put(index, {**row, "valid": np.ones(1, bool)} if are_inputs else row)
